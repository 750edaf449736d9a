"""From pydantic's JSON schema to the structural OpenAPI v3 schema that a CustomResourceDefinition takes.

Structural means: every node has one type, no ``$ref``, no ``anyOf`` with null, no keywords that the API server does not
know. Pydantic defaults become server-side defaults only where the model says so, and are told in the description
everywhere else.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from pydantic import BaseModel

from sunfleet_api.base import Resource
from sunfleet_api.markers import SERVER_DEFAULT, VALIDATIONS

Schema = dict[str, Any]
_REF: Final = "#/$defs/"
_LONGEST_NAME: Final = 253  # Kubernetes' own limit; bounds the cost of rules on it
# Keywords in the order in which they read best; anything else is a mistake in a model and is refused.
_ORDER: Final = (
    "description",
    "type",
    "format",
    "enum",
    "default",
    "minimum",
    "maximum",
    "multipleOf",
    "minLength",
    "maxLength",
    "pattern",
    "minItems",
    "maxItems",
    "maxProperties",
    "x-kubernetes-int-or-string",
    "x-kubernetes-preserve-unknown-fields",
    "x-kubernetes-list-type",
    "x-kubernetes-list-map-keys",
    "x-kubernetes-map-type",
    "required",
    "properties",
    "additionalProperties",
    "items",
    VALIDATIONS,
)


def structural(model: type[BaseModel]) -> Schema:
    """The structural schema of one model, references inlined; :class:`ValueError` for what cannot be expressed."""
    raw = model.model_json_schema(by_alias=True)
    definitions = raw.pop("$defs", {})
    return _node(raw, definitions, model.__name__)


def resource_schema(model: type[Resource]) -> Schema:
    """The schema of a whole object: of ``metadata``, the API server's own affair, only what CEL rules point at."""
    schema = structural(model)
    schema["properties"] |= {
        "apiVersion": {"type": "string"},
        "kind": {"type": "string"},
        "metadata": {"type": "object", "properties": {"name": {"type": "string", "maxLength": _LONGEST_NAME}}},
    }
    return schema


def _node(raw: Mapping[str, Any], definitions: Mapping[str, Any], where: str) -> Schema:
    schema = _resolved(raw, definitions)
    schema.pop("title", None)
    if schema.pop(SERVER_DEFAULT, False):
        schema.setdefault("default", {})
    elif (default := schema.pop("default", None)) not in (None, "", [], {}):
        _tell_default(schema, default)
    if "const" in schema:
        schema["enum"] = [schema.pop("const")]
    if properties := schema.get("properties"):
        schema["properties"] = {
            name: _node(child, definitions, f"{where}.{name}") for name, child in properties.items()
        }
    for key in ("items", "additionalProperties"):
        if isinstance(schema.get(key), Mapping):
            schema[key] = _node(schema[key], definitions, f"{where}.{key}")
    return _ordered(schema, where)


def _resolved(raw: Mapping[str, Any], definitions: Mapping[str, Any]) -> Schema:
    """References and ``X | None`` followed; what stands beside them adds to the target, rules, or replaces it."""
    schema = dict(raw)
    if "anyOf" in schema:
        choices = [choice for choice in schema["anyOf"] if choice.get("type") != "null"]
        if len(choices) == 1:
            del schema["anyOf"]
            schema = _merged(_resolved(choices[0], definitions), schema)
    if "$ref" in schema:
        target = definitions[schema.pop("$ref").removeprefix(_REF)]
        schema = _merged(_resolved(target, definitions), schema)
    return schema


def _merged(inner: Schema, outer: Schema) -> Schema:
    merged = inner | outer
    if rules := [*inner.get(VALIDATIONS, ()), *outer.get(VALIDATIONS, ())]:
        merged[VALIDATIONS] = rules
    return merged


def _tell_default(schema: Schema, default: Any) -> None:
    text = schema.get("description", "")
    shown = str(default).lower() if isinstance(default, bool) else default
    if default is not False and "Default:" not in text:
        schema["description"] = f"{text} Default: {shown}.".lstrip()


def _ordered(schema: Schema, where: str) -> Schema:
    if unknown := schema.keys() - set(_ORDER):
        raise ValueError(f"{where}: a structural schema cannot hold {', '.join(sorted(unknown))}")
    if "type" not in schema and not schema.get("x-kubernetes-int-or-string"):
        raise ValueError(f"{where}: a structural schema needs one type")
    return {key: schema[key] for key in _ORDER if key in schema}
