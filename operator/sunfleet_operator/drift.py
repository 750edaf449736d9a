"""Does a live object already hold everything a manifest says? Pure; a manifest that holds is not sent again.

Only fields that the manifest names are compared, so that defaults of the API server and fields of others do not
count. Quantities are compared by value, because the API server rewrites them ("1000m" becomes "1").
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from decimal import Decimal, InvalidOperation
from typing import Any, Final

from sunfleet_operator.types import Json

_SUFFIXES: Final = {
    "n": Decimal(10) ** -9,
    "u": Decimal(10) ** -6,
    "m": Decimal(10) ** -3,
    "k": Decimal(10) ** 3,
    "M": Decimal(10) ** 6,
    "G": Decimal(10) ** 9,
    "T": Decimal(10) ** 12,
    "P": Decimal(10) ** 15,
    "E": Decimal(10) ** 18,
    "Ki": Decimal(2) ** 10,
    "Mi": Decimal(2) ** 20,
    "Gi": Decimal(2) ** 30,
    "Ti": Decimal(2) ** 40,
    "Pi": Decimal(2) ** 50,
    "Ei": Decimal(2) ** 60,
}
_QUANTITY_PARENTS: Final = frozenset({"requests", "limits"})


def holds(manifest: Any, live: Any, *, quantities: bool = False) -> bool:
    """True when ``live`` has every value of ``manifest``: maps may have more, lists must be as long."""
    if isinstance(manifest, Mapping):
        return isinstance(live, Mapping) and all(
            _same_field(key, value, live, quantities=quantities) for key, value in manifest.items()
        )
    if isinstance(manifest, Sequence) and not isinstance(manifest, str):
        return (
            isinstance(live, Sequence)
            and not isinstance(live, str)
            and len(live) == len(manifest)
            and all(holds(ours, theirs) for ours, theirs in zip(manifest, live, strict=True))
        )
    return bool(manifest == live) or (quantities and _same_quantity(manifest, live))


def _same_field(key: str, value: Any, live: Json, *, quantities: bool) -> bool:
    found = live.get(key)
    if found is None and value in ({}, [], "", None):
        return True  # the API server drops empty values of optional fields
    return holds(value, found, quantities=quantities or key in _QUANTITY_PARENTS or key == "sizeLimit")


def _same_quantity(left: Any, right: Any) -> bool:
    a, b = parse_quantity(left), parse_quantity(right)
    return a is not None and a == b


def parse_quantity(value: Any) -> Decimal | None:
    """The number that a Kubernetes quantity stands for, ``None`` when it is none."""
    text = str(value)
    for length in (2, 1):
        factor = _SUFFIXES.get(text[-length:]) if len(text) > length else None
        if factor is not None:
            text, scale = text[:-length], factor
            break
    else:
        scale = Decimal(1)
    try:
        return Decimal(text) * scale
    except InvalidOperation:
        return None


def owns(live: Json, manager: str, *path: str) -> bool:
    """True when ``manager`` owns the field at ``path`` by server-side apply (``metadata.managedFields``)."""
    for entry in live["metadata"].get("managedFields") or ():
        if entry.get("manager") != manager or entry.get("operation") != "Apply" or entry.get("subresource"):
            continue
        node: Any = entry.get("fieldsV1") or {}
        for part in path:
            node = node.get(f"f:{part}")
            if node is None:
                break
        else:
            return True
    return False
