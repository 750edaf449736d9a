"""Settings of the cluster verbs: the only place that reads the environment."""

from enum import StrEnum
from ipaddress import IPv4Network
from pathlib import Path
from typing import Self

from pydantic import Field, field_validator, model_validator
from pydantic_settings import BaseSettings, SettingsConfigDict


class Flavour(StrEnum):
    """What a cluster runs on. `AUTO`: kind where a Docker engine answers, else embedded."""

    AUTO = "auto"
    EMBEDDED = "embedded"
    KIND = "kind"


class ClusterSettings(BaseSettings):
    """Environment variables `SUNFLEET_*`; the name of a variable is the field's name in capitals.

    `state`: folder of everything that is built or downloaded.
    `cluster`: which flavour `up` makes.
    `use_kubeconfig`: use the cluster that `KUBECONFIG` names instead of one of ours. It is never started, stopped or
    given images.
    `subnet`: IPv4 range of the embedded cluster, at least a /18, which must not overlap a route of this machine.
    `gpus`: pretend `nvidia.com/gpu` devices on the node; by default enough for the demo beside a suite that scales.
    """

    # An empty variable is as good as none: an empty folder name would be the current folder.
    model_config = SettingsConfigDict(env_prefix="SUNFLEET_", env_ignore_empty=True, frozen=True)

    state: Path = Path("~/.local/state/sunfleet")
    cluster: Flavour = Flavour.AUTO
    use_kubeconfig: bool = False
    kubeconfig: Path | None = Field(default=None, validation_alias="KUBECONFIG")
    # Kept clear of what Docker (172.17/16 and up), podman (10.88/16), kind, k3s (10.42, 10.43) and kubeadm
    # (10.96/12) take by default.
    subnet: IPv4Network = IPv4Network("10.203.0.0/16")
    gpus: int = Field(default=16, ge=0, le=64)

    @field_validator("state")
    @classmethod
    def _absolute(cls, value: Path) -> Path:
        return value.expanduser().resolve()

    @field_validator("subnet")
    @classmethod
    def _roomy(cls, value: IPv4Network) -> IPv4Network:
        if value.prefixlen > 18:
            raise ValueError(f"{value} is too small: pods and Services need a /18 or larger, for example 10.203.0.0/16")
        return value

    @model_validator(mode="after")
    def _kubeconfig_given(self) -> Self:
        if self.use_kubeconfig and self.kubeconfig is None:
            raise ValueError("SUNFLEET_USE_KUBECONFIG=1 needs KUBECONFIG to name the cluster's file")
        return self
