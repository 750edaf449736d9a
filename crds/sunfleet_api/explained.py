"""What is wrong with something that a person wrote, in sentences: field, fault, and how to mend it. Pure.

pydantic's own text names Python classes and a web page, and a field of several types once for each of them.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from typing import Any, Final

from pydantic import BaseModel, ValidationError

_LONGEST: Final = 60  # characters of a value that is shown
_MOST_NAMES: Final = 24
# How pydantic's sentences begin: "Input should be ...", "String should have ...", "Value error, ...".
_FORMAL: Final = re.compile(r"^(?:(?:Value error|Assertion failed), |(?:\w+ )?\w+ should )")
# What is wrong with these is no value, or their text shows it.
_SAY_ENOUGH: Final = frozenset({"value_error", "assertion_error", "json_invalid", "too_long", "too_short"})


def explained(error: ValidationError, document: object, model: type[BaseModel]) -> str:
    """A line for each field of ``document`` that is wrong, in its order; ``model`` is what it should have been."""
    found: dict[str, list[str]] = {}
    for fault in error.errors():
        path = _written(fault["loc"], document, added=fault["type"] == "missing")
        found.setdefault(place(path) or "the whole", []).append(said(fault, path[:-1], model))
    return "\n".join(f"{where}: {' or '.join(dict.fromkeys(faults))}" for where, faults in found.items())


def place(path: Sequence[int | str]) -> str:
    """``a.b[0].c``; empty for the whole."""
    return "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in path).removeprefix(".")


def said(fault: Any, parents: Sequence[int | str], model: type[BaseModel], *, variable: bool = False) -> str:
    """One of :meth:`pydantic.ValidationError.errors`, in a person's words. ``parents`` lead to the fields of ``model``
    among which the wrong one stands. Of a ``variable`` of the environment the value is not shown."""
    kind, shown = fault["type"], "" if variable else f", not {_shown(fault['input'])}"
    if kind == "missing":
        return "is not set: set it" if variable else "is missing: add it"
    if kind == "extra_forbidden":
        return f"is no field here: {_mend(str(fault['loc'][-1]), _names(model, parents))}"
    if kind in {"model_type", "model_attributes_type", "dict_type"}:
        return f"must be a mapping of fields, `name: value`{shown}"
    message = _FORMAL.sub(lambda found: "must " if found[0].endswith("should ") else "", str(fault["msg"]))
    return message if kind in _SAY_ENOUGH else f"{message}{shown}"


def _written(loc: Sequence[int | str], document: object, *, added: bool) -> list[int | str]:
    """The path as it is written in ``document``: pydantic also names the types that it tried. ``added``: the last part
    is not there yet."""
    path: list[int | str] = []
    here = document
    for part in loc:
        below = here if isinstance(here, Mapping) else dict(enumerate(here)) if isinstance(here, list | tuple) else {}
        if part in below or (added and part == loc[-1]):
            path.append(part)
            here = below.get(part)
    return path


def _mend(name: str, known: Sequence[str]) -> str:
    close = get_close_matches(name, known, n=1)
    if close:
        return f"did you mean {close[0]}?"
    return f"remove it; there are {', '.join(known)}" if 0 < len(known) <= _MOST_NAMES else "remove it"


def _names(model: type[BaseModel], parents: Sequence[int | str]) -> list[str]:
    """The fields that may stand below ``parents``."""
    schema = model.model_json_schema(by_alias=True)
    node: Mapping[str, Any] = schema
    for part in parents:
        node = _resolved(node, schema)
        node = node.get("items", {}) if isinstance(part, int) else node.get("properties", {}).get(part, {})
    return sorted(_resolved(node, schema).get("properties", ()))


def _resolved(node: Mapping[str, Any], schema: Mapping[str, Any]) -> Mapping[str, Any]:
    """What a reference, or the first choice of an optional field, leads to."""
    while "$ref" in node or "anyOf" in node:
        node = schema["$defs"][node["$ref"].rpartition("/")[2]] if "$ref" in node else node["anyOf"][0]
    return node


def _shown(value: object) -> str:
    if value is None:
        return "nothing"
    text = repr(value)
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}..."
