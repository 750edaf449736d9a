"""Probes made from a structural schema: for every limit, a value just inside and a value just outside of it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from sunfleet_api.markers import VALIDATIONS
from sunfleet_apitest.cases import Document

Step = str | int
_MISSING: Any = object()


@dataclass(frozen=True)
class Probe:
    """``value`` at ``path``; ``fits`` says whether the limit ``keyword`` allows it."""

    path: tuple[Step, ...]
    keyword: str
    value: Any
    fits: bool

    @property
    def field(self) -> str:
        """The path as the API server writes it, for example ``spec.canary.steps[0].weight``."""
        text = ""
        for step in self.path:
            text += f"[{step}]" if isinstance(step, int) else f".{step}"
        return text.lstrip(".")

    def __str__(self) -> str:
        return f"{self.field} {self.keyword} {'inside' if self.fits else 'outside'}"


def probes(schema: Document, path: tuple[Step, ...]) -> Iterator[Probe]:
    """Probes for ``schema``, which stands at ``path``, and for everything below it."""
    yield from _of_scalar(schema, path)
    yield from _of_collection(schema, path)
    required = schema.get("required", ())
    for name, child in schema.get("properties", {}).items():
        if name in required:
            yield Probe((*path, name), "required", _MISSING, fits=False)
        yield from probes(child, (*path, name))
    if isinstance(schema.get("items"), dict):
        yield from probes(schema["items"], (*path, 0))
    if isinstance(schema.get("additionalProperties"), dict):
        yield from probes(schema["additionalProperties"], (*path, "key"))


def document(base: Document, schema: Document, probe: Probe) -> Document:
    """``base`` with the probe's value put in; what must stand around it is filled with the least that is valid."""
    return dict(_put(base, schema, probe, probe.path))


def rules(schema: Document, path: str = "") -> Iterator[tuple[str, Document]]:
    """Every CEL rule of a schema with the path (``.spec.model``) at which it stands; ``[]`` for list entries."""
    yield from ((path, rule) for rule in schema.get(VALIDATIONS, ()))
    for name, child in schema.get("properties", {}).items():
        yield from rules(child, f"{path}.{name}")
    if isinstance(schema.get("items"), dict):
        yield from rules(schema["items"], f"{path}[]")


def _of_scalar(schema: Document, path: tuple[Step, ...]) -> Iterator[Probe]:
    wrong_type = {"object": "text", "array": "text", "string": 1, "integer": "text", "boolean": "text"}
    outside = Probe(path, "", None, fits=False)
    if kind := schema.get("type"):
        yield replace(outside, keyword="type", value=wrong_type[kind])
    if "enum" in schema:
        yield replace(outside, keyword="enum", value="nonesuch")
        yield from (Probe(path, "enum", choice, fits=True) for choice in schema["enum"])
    for keyword, beyond in (("minimum", -1), ("maximum", 1)):
        if keyword in schema:
            yield replace(outside, keyword=keyword, value=schema[keyword] + beyond)
            yield Probe(path, keyword, schema[keyword], fits=True)
    if "multipleOf" in schema:
        yield replace(outside, keyword="multipleOf", value=schema["minimum"] + 1)
    if "pattern" in schema:
        yield replace(outside, keyword="pattern", value=" ")
    if "maxLength" in schema and schema.get("type") == "string":
        yield replace(outside, keyword="maxLength", value="a" * (schema["maxLength"] + 1))
    if "minLength" in schema:
        yield replace(outside, keyword="minLength", value="a" * (schema["minLength"] - 1))


def _of_collection(schema: Document, path: tuple[Step, ...]) -> Iterator[Probe]:
    if (most := schema.get("maxItems")) is not None:
        yield Probe(path, "maxItems", [least(schema["items"])] * (most + 1), fits=False)
    if (most := schema.get("maxProperties")) is not None:
        yield Probe(path, "maxProperties", {f"key-{number}": "a" for number in range(most + 1)}, fits=False)


def least(schema: Document) -> Any:
    """The smallest value that the schema itself (not its CEL rules) allows."""
    if "enum" in schema:
        return schema["enum"][0]
    match schema.get("type"):
        case "object":
            return {name: least(schema["properties"][name]) for name in schema.get("required", ())}
        case "array":
            return []
        case "integer":
            return schema.get("minimum", 0)
        case "boolean":
            return False
        case _:
            return "a" * max(1, schema.get("minLength", 1))


def _put(current: Any, schema: Document, probe: Probe, path: tuple[Step, ...]) -> Any:
    if not path:
        return probe.value
    step, rest = path[0], path[1:]
    if isinstance(step, int):
        return [_put(least(schema["items"]), schema["items"], probe, rest)]
    filled = dict(current if isinstance(current, Mapping) else least(schema))
    if not rest and probe.value is _MISSING:
        filled.pop(step, None)
        return filled
    child = schema.get("properties", {}).get(step) or schema.get("additionalProperties", {})
    filled[step] = _put(filled.get(step), child, probe, rest)
    return filled
