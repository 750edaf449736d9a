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

# An int, or a string such as "25%".
INT_OR_STRING: Final = Instead({"x-kubernetes-int-or-string": True})
