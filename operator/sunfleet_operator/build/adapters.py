"""How adapters come into a PrefillPool's pods while these run: a folder, the sidecar that fills it, and mounted claims.

Pure. Which adapters those are is no part of the pod: it changes without a restart.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from sunfleet_api import names
from sunfleet_api.weights import parse_uri
from sunfleet_operator.build.security import CONTAINER_SECURITY
from sunfleet_operator.build.volumes import GivenVolumes
from sunfleet_operator.build.weights import Fetcher, Placement, Weights, claim_volume, container, support_volumes
from sunfleet_operator.types import Manifest

VOLUME: Final = "pool-adapters"
SUPPLIER: Final = "supply-adapters"
# Adapters are of any scheme, so credentials come in every form: as variables, and as files for registries.
_ANY: Final = "oci://any/adapter"


@dataclass(frozen=True)
class Supply:
    """The Secret for downloads, and the claims that hold the adapters of ``pvc://`` URIs."""

    secret: str = ""
    claims: tuple[str, ...] = ()


def supplied(supply: Supply, fetcher: Fetcher) -> list[Placement]:
    """Parts of the pod."""
    everything = Weights(uri=_ANY, path=names.ADAPTERS_PATH, volume=VOLUME, secret=supply.secret)
    mount: Manifest = {"name": VOLUME, "mountPath": names.ADAPTERS_PATH}
    volumes = ({"name": VOLUME, "emptyDir": {}}, *support_volumes(everything, fetcher))
    return [
        Placement(volumes, mount, (_supplier(everything, fetcher, mount),)),
        *(_claim(index, claim) for index, claim in enumerate(sorted(supply.claims))),
    ]


def _supplier(everything: Weights, fetcher: Fetcher, mount: Manifest) -> Manifest:
    made = container(SUPPLIER, fetcher, [], everything, [mount])
    del made["args"]
    return made | {
        "command": ["python", "-m", "sunfleet_weights.supply", names.ADAPTERS_PATH],
        "restartPolicy": "Always",  # a sidecar: it starts before the engine and ends after it
        "securityContext": CONTAINER_SECURITY,
    }


def _claim(index: int, claim: str) -> Placement:
    name = f"adapters-{index}"
    return Placement((claim_volume(name, claim),), {"name": name, "mountPath": claim_path(claim), "readOnly": True})


def claim_path(claim: str) -> str:
    return f"{names.CLAIMS_PATH}/{claim}"


def mounted_at(uri: str, claims: tuple[str, ...], given: GivenVolumes) -> str | None:
    """Where a pod of the pool finds an adapter: a path, empty for one that it downloads; ``None`` when it cannot."""
    parsed = parse_uri(uri)
    if parsed.scheme == "pvc":
        inside = f"/{parsed.path}" if parsed.path else ""
        return f"{claim_path(parsed.location)}{inside}" if parsed.location in claims else None
    if parsed.scheme == "file":
        return parsed.location if given.find(parsed.location) is not None else None
    return ""
