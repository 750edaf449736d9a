"""How a checkpoint gets to its pods: proxy, trust, cache and the other settings of resolver and download."""

from __future__ import annotations

import re
from typing import Annotated, ClassVar, Final

from pydantic import Field

from sunfleet_api.base import ApiModel
from sunfleet_api.markers import Cel, list_map
from sunfleet_api.refs import NameRef, ObjectName

_UNITS: Final = {
    "": 1, "k": 10**3, "M": 10**6, "G": 10**9, "T": 10**12, "P": 10**15,
    "Ki": 2**10, "Mi": 2**20, "Gi": 2**30, "Ti": 2**40, "Pi": 2**50,
}  # fmt: skip
_QUANTITY: Final = r"^[1-9][0-9]{0,14}(k|M|G|T|P|Ki|Mi|Gi|Ti|Pi)?$"

Bytes = Annotated[str, Field(max_length=32, pattern=_QUANTITY)]


def bytes_of(quantity: str) -> int:
    """``500Gi`` as a number; :class:`ValueError` when it is no whole quantity of bytes."""
    if not re.fullmatch(_QUANTITY, quantity):
        raise ValueError(f"{quantity!r} is no size: write a whole number with a unit, such as 500Gi")
    digits = quantity.rstrip("".join(set("".join(_UNITS))))
    return int(digits) * _UNITS[quantity[len(digits) :]]


class Variable(ApiModel):
    name: str = Field(min_length=1, max_length=128, pattern="^[A-Za-z_][A-Za-z0-9_]*$")
    """Name of the variable."""
    value: str = Field(default="", max_length=4096)
    """Its value."""


class Proxy(ApiModel):
    """For HTTP and HTTPS. One with a password belongs into the Secret, as HTTPS_PROXY."""

    url: str = Field(max_length=1024, pattern="^(http|https|socks5h?)://[^@ ]+$")
    """Where the proxy listens."""
    no_proxy: str = Field(default="", max_length=4096)
    """Hosts, domains and networks that are reached without it, comma-separated."""


class CaBundle(ApiModel):
    """Certificates that are trusted besides the usual ones."""

    config_map_ref: NameRef
    """ConfigMap in the same namespace."""
    key: str = Field(default="ca.crt", min_length=1, max_length=253, pattern="^[-._A-Za-z0-9]+$")
    """Its key, whose value holds PEM certificates."""


class Cache(ApiModel):
    """A folder that pods share, so that each digest is downloaded once per volume: per node where it is node-local."""

    claim_name: ObjectName
    """PersistentVolumeClaim in the same namespace that all these pods may mount and write."""
    size_limit: Bytes
    """Beyond it, checkpoints that no pod uses go, the one that was used longest ago first."""


class Download(ApiModel):
    """How resolver and download work. Of a task's pod it is the task's own that counts, also for the base model."""

    RULES: ClassVar = (
        Cel(
            "!(has(self.imageVolume) && self.imageVolume && has(self.cache))",
            "an image volume is the node's own cache: leave cache out",
            ".cache",
        ),
    )

    image: str | None = Field(default=None, min_length=1, max_length=512)
    """Image that resolves and downloads. Default: the operator's SUNFLEET_OPERATOR_WEIGHTS_IMAGE."""
    parallel: int = Field(default=4, ge=1, le=64)
    """Files at a time."""
    proxy: Proxy | None = None
    ca_bundle: CaBundle | None = None
    cache: Cache | None = None
    image_volume: bool = False
    """Mount oci:// as an image volume: the cluster needs Kubernetes 1.35, or before it the feature gate ImageVolume."""
    env: Annotated[tuple[Variable, ...], Field(max_length=32), list_map("name")] = ()
    """More variables for the clients, such as AWS_REGION or HF_XET_HIGH_PERFORMANCE."""
