"""Settings of one run, under the names that each place's own clients use."""

from __future__ import annotations

from pathlib import Path

from pydantic import Field, SecretStr
from pydantic_settings import BaseSettings, SettingsConfigDict

from sunfleet_api.settings import UnusableSettings, read
from sunfleet_weights.errors import InvalidSettings


class WeightsSettings(BaseSettings):
    """From the environment, most of it from the Secret that ``credentialsSecretRef`` names.

    The stores' client reads its own variables besides (``AWS_*``, ``GOOGLE_*``), and all read the proxy's.
    """

    model_config = SettingsConfigDict(frozen=True)
    hf_endpoint: str = "https://huggingface.co"
    hf_token: SecretStr = SecretStr("")
    # Only looked at for http://, which the client refuses unless it is told to allow it.
    aws_endpoint_url: str = ""
    aws_endpoint_url_s3: str = ""
    google_base_url: str = ""
    oci_username: str = ""
    oci_password: SecretStr = SecretStr("")
    oci_plain_http: bool = False  # for a registry without TLS
    ssl_cert_file: str = ""  # instead of the system's certificates
    # Parallel hashes and downloads. More helps little: one stream fills a disk, four fill most links.
    sunfleet_weights_workers: int = Field(default=4, ge=1, le=64)
    sunfleet_weights_ca_file: Path | None = None  # certificates to trust besides
    sunfleet_weights_engine_key: SecretStr = SecretStr("")  # that the engines of a verification ask for
    sunfleet_weights_engine_ca_file: Path | None = None  # authority of their certificates; URLs are https:// then
    sunfleet_weights_secret: Path | None = None  # where the Secret is mounted: its files count too


def from_environment() -> WeightsSettings:
    """Raises :class:`.errors.InvalidSettings`, which names each variable that is wrong."""
    try:
        return read(WeightsSettings)
    except UnusableSettings as error:
        raise InvalidSettings(f"settings cannot be used: {'; '.join(str(error).splitlines())}") from None
