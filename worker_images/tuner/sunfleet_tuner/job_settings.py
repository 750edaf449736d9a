"""What a pod's environment says: the job, its index among the pods, and the credentials of two places."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

from pydantic import Field
from pydantic_settings import BaseSettings, SettingsConfigDict

from sunfleet_api.tuning import DATA_PREFIX, OUTPUT_PREFIX, AnyJob

TERMINATION_LOG: Final = Path("/dev/termination-log")


class JobSettings(BaseSettings):
    """Read once. The job stands in ``sunfleet_api.tuning.JOB_VARIABLE``."""

    model_config = SettingsConfigDict(frozen=True, populate_by_name=True)

    job: AnyJob = Field(validation_alias="SUNFLEET_TUNER_JOB")
    index: int = Field(default=0, validation_alias="JOB_COMPLETION_INDEX")  # set by Kubernetes in Indexed Jobs
    scratch: Path = Field(default=Path("/tmp/sunfleet"), validation_alias="SUNFLEET_TUNER_SCRATCH")  # noqa: S108
    termination_log: Path = Field(default=TERMINATION_LOG, validation_alias="SUNFLEET_TUNER_REPORT")

    @property
    def data(self) -> dict[str, str]:
        """Variables of the Secret that opens the data."""
        return _below(DATA_PREFIX)

    @property
    def output(self) -> dict[str, str]:
        """Variables of the Secret that opens the output."""
        return _below(OUTPUT_PREFIX)

    def environment(self) -> dict[str, str]:
        """For the work: without the secrets of stores, with the hub's token where there is one."""
        kept = {k: v for k, v in os.environ.items() if not k.startswith((DATA_PREFIX, OUTPUT_PREFIX))}
        token = {"HF_TOKEN": self.data["HF_TOKEN"]} if "HF_TOKEN" in self.data else {}
        return kept | {"PYTHONUNBUFFERED": "1"} | token


def _below(prefix: str) -> dict[str, str]:
    return {name.removeprefix(prefix): value for name, value in os.environ.items() if name.startswith(prefix)}
