"""Strategic merge of a pod template overlay (``spec.template``) over the template that the operator builds. Pure.

The rules are those of ``kubectl patch --type=strategic`` for the fields of a pod template: maps merge, lists with a
merge key merge by it, every other list is replaced, ``null`` removes a field, and ``$patch: delete`` / ``$patch:
replace`` do what they do there.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from typing import Any, Final

# Lists of objects by the field that identifies an element.
_MERGE_KEYS: Final[Mapping[str, str]] = {
    "containers": "name",
    "initContainers": "name",
    "ephemeralContainers": "name",
    "env": "name",
    "volumes": "name",
    "imagePullSecrets": "name",
    "volumeMounts": "mountPath",
    "volumeDevices": "devicePath",
    "ports": "containerPort",
    "hostAliases": "ip",
    "resourceClaims": "name",
    "topologySpreadConstraints": "topologyKey",
}
# Elements of these are unions (a volume has one source, a variable one value): the overlay's element replaces ours.
_UNIONS: Final = frozenset({"env", "volumes"})
_DIRECTIVE: Final = "$patch"


def merge(base: Mapping[str, Any], overlay: Mapping[str, Any]) -> dict[str, Any]:
    """``base`` with ``overlay`` on top; neither is changed."""
    if overlay.get(_DIRECTIVE) == "replace":
        return {key: copy.deepcopy(value) for key, value in overlay.items() if key != _DIRECTIVE}
    result = {key: copy.deepcopy(value) for key, value in base.items()}
    for key, value in overlay.items():
        if key == _DIRECTIVE:
            continue
        if value is None or (isinstance(value, Mapping) and value.get(_DIRECTIVE) == "delete"):
            result.pop(key, None)
        else:
            result[key] = _merge_value(key, result.get(key), value)
    return result


def _merge_value(key: str, base: Any, overlay: Any) -> Any:
    if isinstance(overlay, Mapping):
        return merge(base if isinstance(base, Mapping) else {}, overlay)
    merge_key = _MERGE_KEYS.get(key)
    if isinstance(overlay, list) and merge_key and all(isinstance(item, Mapping) for item in overlay):
        return _merge_list(key, merge_key, base if isinstance(base, list) else [], overlay)
    return copy.deepcopy(overlay)


def _merge_list(
    field: str, merge_key: str, base: Sequence[Mapping[str, Any]], overlay: Sequence[Mapping[str, Any]]
) -> list[dict[str, Any]]:
    """Elements keep the base's order; new ones follow in the overlay's."""
    if any(item == {_DIRECTIVE: "replace"} for item in overlay):
        return [dict(copy.deepcopy(item)) for item in overlay if _DIRECTIVE not in item]
    result = {item.get(merge_key): dict(copy.deepcopy(item)) for item in base}
    for item in overlay:
        identity = item.get(merge_key)
        if item.get(_DIRECTIVE) == "delete":
            result.pop(identity, None)
        elif field in _UNIONS:
            result[identity] = dict(copy.deepcopy(item))
        else:
            result[identity] = merge(result.get(identity, {}), item)
    return list(result.values())
