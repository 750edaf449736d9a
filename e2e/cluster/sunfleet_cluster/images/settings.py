"""Settings of image builds: which base, which engine, and how this machine reaches its package indexes."""

from enum import StrEnum
from pathlib import Path

from pydantic import Field
from pydantic_settings import BaseSettings, SettingsConfigDict

# Where Linux distributions keep the bundle of trusted authorities.
_SYSTEM_BUNDLES = (Path("/etc/ssl/certs/ca-certificates.crt"), Path("/etc/pki/tls/certs/ca-bundle.crt"))


class Engine(StrEnum):
    """Flavour of the worker image. `AUTO`: `mounted` on a cluster that we made, else `cpu`."""

    AUTO = "auto"
    CUDA = "cuda"
    CPU = "cpu"
    MOUNTED = "mounted"


class ImageSettings(BaseSettings):
    """Environment variables `SUNFLEET_*`; the name of a variable is the field's name in capitals.

    `base_image`: base of every image. Empty: one made here from Debian packages with buildah, or for a mounted engine;
    else the Dockerfiles' default.
    `debian_mirror`: where that base comes from; empty is Debian's own.
    `worker_engine`: what the worker image contains.
    """

    model_config = SettingsConfigDict(env_prefix="SUNFLEET_", env_ignore_empty=True, frozen=True)

    base_image: str = ""
    debian_mirror: str = ""
    worker_engine: Engine = Engine.AUTO


class HostNetwork(BaseSettings):
    """How this machine reaches package indexes, in the variables of pip and uv, so that builds reach them the same way.

    It goes into builds as mounted secrets: indexes may hold passwords, and an image must not trust our proxy.
    """

    model_config = SettingsConfigDict(frozen=True, populate_by_name=True)

    ssl_cert_file: Path | None = Field(default=None, validation_alias="SSL_CERT_FILE")
    pip_cert: Path | None = Field(default=None, validation_alias="PIP_CERT")
    pip_index_url: str = Field(default="", validation_alias="PIP_INDEX_URL")
    pip_extra_index_url: str = Field(default="", validation_alias="PIP_EXTRA_INDEX_URL")
    pip_trusted_host: str = Field(default="", validation_alias="PIP_TRUSTED_HOST")
    pip_default_timeout: str = Field(default="", validation_alias="PIP_DEFAULT_TIMEOUT")
    uv_default_index: str = Field(default="", validation_alias="UV_DEFAULT_INDEX")
    uv_index: str = Field(default="", validation_alias="UV_INDEX")
    uv_index_url: str = Field(default="", validation_alias="UV_INDEX_URL")
    uv_extra_index_url: str = Field(default="", validation_alias="UV_EXTRA_INDEX_URL")
    uv_insecure_host: str = Field(default="", validation_alias="UV_INSECURE_HOST")
    uv_http_timeout: str = Field(default="", validation_alias="UV_HTTP_TIMEOUT")

    @property
    def ca_bundle(self) -> Path | None:
        """PEM file of the authorities that this machine trusts; None where none is found."""
        candidates = (self.ssl_cert_file, self.pip_cert, *_SYSTEM_BUNDLES)
        return next((path for path in candidates if path is not None and path.is_file()), None)

    @property
    def index_variables(self) -> dict[str, str]:
        """The variables that are set, by name. Where only uv knows an index, pip gets it too: it fetches uv itself."""
        values: dict[str, str] = {
            str(field.validation_alias): getattr(self, name)
            for name, field in type(self).model_fields.items()
            if field.annotation is str and getattr(self, name)
        }
        index = self.uv_default_index or self.uv_index_url
        return {"PIP_INDEX_URL": _without_name(index)} | values if index else values


def _without_name(index: str) -> str:
    """The URL of uv's `URL` or `NAME=URL`."""
    name, _, url = index.partition("=")
    return url if "://" in url and "://" not in name else index
