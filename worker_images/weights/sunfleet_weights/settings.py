"""Settings of one run, under the names that hub clients use everywhere."""

from __future__ import annotations

from pydantic import Field, SecretStr
from pydantic_settings import BaseSettings, SettingsConfigDict


class WeightsSettings(BaseSettings):
    """From the environment: ``HF_ENDPOINT`` and ``HF_TOKEN`` (from the Secret that ``credentialsSecretRef`` names)."""

    model_config = SettingsConfigDict(frozen=True)
    hf_endpoint: str = "https://huggingface.co"
    hf_token: SecretStr = SecretStr("")
    # Parallel hashes and downloads. More helps little: one stream fills a disk, four fill most links.
    sunfleet_weights_workers: int = Field(default=4, ge=1, le=64)
