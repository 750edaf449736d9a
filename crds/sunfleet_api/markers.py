"""What a field says about its place in the CRD beyond its Python type: CEL rules, list keys, server-side defaults.

Markers stand in ``Annotated[...]`` or in a model's ``RULES`` and only add keywords to the JSON schema that pydantic
makes; :mod:`sunfleet_api.schema` turns that schema into a structural one. They change nothing at run time.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from pydantic import GetJsonSchemaHandler
from pydantic_core import CoreSchema

VALIDATIONS: Final = "x-kubernetes-validations"
SERVER_DEFAULT: Final = "x-sunfleet-server-default"  # read and removed by sunfleet_api.schema


@dataclass(frozen=True)
class Cel:
    """A CEL rule that the API server checks; ``rule`` speaks of ``self`` (and ``oldSelf`` on updates).

    ``message`` tells a person what to write instead. ``field_path`` (for example ``.rollout.maxSurge``, relative to
    ``self``) is where the API server reports the fault.
    """

    rule: str
    message: str
    field_path: str = ""

    def entry(self) -> dict[str, Any]:
        """The entry of ``x-kubernetes-validations``."""
        where = {"fieldPath": self.field_path} if self.field_path else {}
        return {"rule": self.rule, "message": self.message} | where

    def __get_pydantic_json_schema__(self, core: CoreSchema, handler: GetJsonSchemaHandler) -> dict[str, Any]:
        schema = handler(core)
        return schema | {VALIDATIONS: [*schema.get(VALIDATIONS, ()), self.entry()]}


@dataclass(frozen=True)
class Keywords:
    """Schema keywords that pydantic does not know, taken over as they are."""

    values: Mapping[str, Any]

    def __get_pydantic_json_schema__(self, core: CoreSchema, handler: GetJsonSchemaHandler) -> dict[str, Any]:
        return handler(core) | dict(self.values)


@dataclass(frozen=True)
class Instead:
    """The whole schema of a field whose Python type says less, or more, than a structural schema can."""

    schema: Mapping[str, Any]

    def __get_pydantic_json_schema__(self, core: CoreSchema, handler: GetJsonSchemaHandler) -> dict[str, Any]:
        return dict(self.schema)


def list_map(*keys: str) -> Keywords:
    """A list whose entries are told apart by ``keys`` (in camelCase): server-side apply merges entry by entry."""
    return Keywords({"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": list(keys)})


ATOMIC: Final = Keywords({"x-kubernetes-list-type": "atomic"})
SET: Final = Keywords({"x-kubernetes-list-type": "set"})
ATOMIC_MAP: Final = Keywords({"x-kubernetes-map-type": "atomic"})

# The API server writes the Python default into stored objects. Only for fields that no ServingProfile may set: a
# default that is stored in the object would win over the profile.
SERVER_DEFAULTED: Final = Keywords({SERVER_DEFAULT: True})

# For a field that is always there, or beside a rule that holds on to whether it is (`present_before_and_after`).
IMMUTABLE: Final = Cel("self == oldSelf", "immutable: make another object instead")


def present_before_and_after(path: str) -> Cel:
    """Refuses setting and unsetting ``path`` (dots between names, each of which may be absent) on updates.

    A transition rule on the field itself only sees changes from one value to another. Spelled out with ``has``, since
    the API server takes optional types for arbitrarily costly.
    """
    parents = path.split(".")
    steps = [".".join(("{}", *parents[: end + 1])) for end in range(len(parents))]
    here, there = (" && ".join(f"has({step.format(root)})" for step in steps) for root in ("self", "oldSelf"))
    return Cel(
        f"({here}) == ({there})", f"{path} is immutable: it can be neither set nor unset later", f".{parents[0]}"
    )


def int_or_string(pattern: str, *, maximum: int) -> Instead:
    """An int from 0 to ``maximum``, or a string that matches ``pattern``."""
    return Instead({"x-kubernetes-int-or-string": True, "minimum": 0, "maximum": maximum, "pattern": pattern})
