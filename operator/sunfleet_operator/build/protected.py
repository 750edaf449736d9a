"""What of an engine's pod no overlay may change: it decides which KV the pod makes and reads. Pure.

Prefill and decode pods are a pair because one SharedDecoder describes the engines of both. An overlay
(``spec.template``) that gives one side another image, other weights or other worker settings would make a pair that
nothing has compared, so it is refused; the same wish has a field under ``spec.engine`` of the SharedDecoder.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from sunfleet_api import names
from sunfleet_api.worker import ENV_PREFIX, WorkerSettings
from sunfleet_operator.build.adapters import SUPPLIER, VOLUME
from sunfleet_operator.build.merge import merge
from sunfleet_operator.types import Json, Manifest

_OURS: Final = "the operator's"  # stands for any value of ours
# Decides nothing about KV, and has to be switched off where it does not fit the network.
_FREE_VARIABLES: Final = frozenset({f"{ENV_PREFIX}SELF_CHECK"})
_VARIABLES: Final = tuple(
    sorted({ENV_PREFIX + field.upper() for field in WorkerSettings.model_fields} - _FREE_VARIABLES)
)
_VOLUMES: Final = {"weights": names.WEIGHTS_PATH, "adapter": names.ADAPTER_PATH, VOLUME: names.ADAPTERS_PATH}
_PROCESS: Final = ("image", "command", "args")


def protected_changes(overlay: Json) -> tuple[str, ...]:
    """What ``overlay`` would change of the KV contract, as paths in the template; empty when nothing."""
    merged = merge(_SKELETON, overlay)
    return tuple(dict.fromkeys(_changes(merged.get("spec") or {})))


def _skeleton() -> Manifest:
    """The protected parts of every engine pod, in the form in which the operator builds them."""
    engine = {
        "name": names.ENGINE_CONTAINER,
        "image": _OURS,
        "env": [{"name": name, "value": _OURS} for name in _VARIABLES],
        "volumeMounts": [{"name": name, "mountPath": path} for name, path in _VOLUMES.items()],
    }
    fetchers: list[Manifest] = [{"name": f"fetch-{name}", "args": _OURS} for name in _VOLUMES]
    fetchers.append({"name": SUPPLIER, "command": _OURS})
    volumes = [{"name": name, _OURS: {}} for name in _VOLUMES]
    return {"spec": {"initContainers": fetchers, "containers": [engine], "volumes": volumes}}


_SKELETON: Final = _skeleton()


def _changes(spec: Mapping[str, Any]) -> Iterator[str]:
    before = _SKELETON["spec"]
    engine, ours = _named(spec, "containers", names.ENGINE_CONTAINER), before["containers"][0]
    if engine is None:
        yield "containers[engine]"
        return
    yield from (f"containers[engine].{field}" for field in _PROCESS if engine.get(field) != ours.get(field))
    given = {str(one.get("name")): one for one in engine.get("env") or ()}
    wanted = {one["name"]: one for one in ours["env"]}
    contract = sorted(name for name in given.keys() | wanted.keys() if name.startswith(ENV_PREFIX))
    for name in contract:
        if name not in _FREE_VARIABLES and given.get(name) != wanted.get(name):
            yield f"containers[engine].env[{name}]"
    yield from _mounts(engine, ours)
    for index, name in enumerate(_VOLUMES):
        if _named(spec, "volumes", name) != before["volumes"][index]:
            yield f"volumes[{name}]"
        fetch = _named(spec, "initContainers", f"fetch-{name}") or {}
        if fetch.get("args") != _OURS or fetch.get("command"):
            yield f"initContainers[fetch-{name}]"
    supplier = _named(spec, "initContainers", SUPPLIER) or {}
    if supplier.get("command") != _OURS or supplier.get("args"):
        yield f"initContainers[{SUPPLIER}]"


def _mounts(engine: Mapping[str, Any], ours: Mapping[str, Any]) -> Iterator[str]:
    """Mounts at, above and below the weights."""
    found = [one for one in engine.get("volumeMounts") or () if _touches(str(one.get("mountPath") or ""))]
    for one in ours["volumeMounts"]:
        if one not in found:
            yield f"containers[engine].volumeMounts[{one['mountPath']}]"
    for one in found:
        if one not in ours["volumeMounts"]:
            yield f"containers[engine].volumeMounts[{one['mountPath']}]"


def _touches(path: str) -> bool:
    where = path.rstrip("/") + "/"
    return any(where.startswith(f"{weights}/") or f"{weights}/".startswith(where) for weights in _VOLUMES.values())


def _named(spec: Mapping[str, Any], field: str, name: str) -> Mapping[str, Any] | None:
    return next((one for one in spec.get(field) or () if one.get("name") == name), None)
