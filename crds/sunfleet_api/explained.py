"""What is wrong with something that a person wrote, in sentences: field, fault, and how to mend it. Pure.

pydantic's own text names Python classes and a web page, and a field of several types once for each of them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from typing import Any, Final

from pydantic import BaseModel, ValidationError

_LONGEST: Final = 60  # characters of a value that is shown
_MOST_NAMES: Final = 24


def explained(error: ValidationError, document: object, model: type[BaseModel]) -> str:
    """A line for each field of ``document`` that is wrong, in its order; ``model`` is what it should have been."""
    found: dict[str, list[str]] = {}
    for fault in error.errors():
        where, parents = _where(fault["loc"], document, added=fault["type"] == "missing")
        found.setdefault(where, []).append(_said(fault, parents, model))
    return "\n".join(f"{where}: {' or '.join(dict.fromkeys(said))}" for where, said in found.items())


def variables(error: ValidationError, prefix: str) -> str:
    """A line for each environment variable that is wrong: ``prefix``, the setting's name, two underscores in groups; of
    a list that is given as JSON also the place in it. Never its value, which may be a secret."""
    return "\n".join(f"{_variable(fault['loc'], prefix)}: {_told(fault)}" for fault in error.errors())


def _variable(loc: Sequence[int | str], prefix: str) -> str:
    first = next((number for number, part in enumerate(loc) if isinstance(part, int)), len(loc))
    name = f"{prefix}{'__'.join(map(str, loc[:first]))}".upper()
    inside = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in loc[first:])
    return f"{name}{inside}"


def _told(fault: Any) -> str:
    if fault["type"] == "missing":
        return "is not set"
    if fault["type"] == "extra_forbidden":
        return "is no field here: correct its name or remove it"
    return str(fault["msg"]).removeprefix("Value error, ").replace("Input should", "must")


def _where(loc: Sequence[int | str], document: object, *, added: bool) -> tuple[str, list[int | str]]:
    """The path as it is written in ``document``: pydantic also names the types that it tried. ``added``: the last part
    is not there yet."""
    path: list[int | str] = []
    here = document
    for part in loc:
        below = here if isinstance(here, Mapping) else dict(enumerate(here)) if isinstance(here, list | tuple) else {}
        if part in below or (added and part == loc[-1]):
            path.append(part)
            here = below.get(part)
    text = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in path)
    return text.removeprefix(".") or "the whole", path[:-1]


def _said(fault: Any, parents: Sequence[int | str], model: type[BaseModel]) -> str:
    if fault["type"] == "missing":
        return "is missing: add it"
    if fault["type"] == "extra_forbidden":
        return f"is no field here: {_mend(str(fault['loc'][-1]), _names(model, parents))}"
    if fault["type"] in {"model_type", "model_attributes_type", "dict_type"}:
        return f"must be a mapping of fields, `name: value`, not {_shown(fault['input'])}"
    message = str(fault["msg"]).removeprefix("Value error, ").replace("Input should be", "must be")
    return message if fault["type"] == "value_error" else f"{message}, not {_shown(fault['input'])}"


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
