"""Kubernetes label selectors as text, in equality and set form, matched against pods in memory. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

_KEY: Final = r"[A-Za-z0-9./_-]+"
_REQUIREMENT: Final = re.compile(
    rf"\s*(?:(?P<key>{_KEY})\s*(?:(?P<op>==|=|!=)\s*(?P<value>[A-Za-z0-9._-]*)"
    rf"|\s(?P<set>in|notin)\s*\((?P<values>[^)]*)\))?|!\s*(?P<absent>{_KEY}))\s*(?:,|$)"
)


class SelectorError(ValueError):
    """The text is no label selector."""


@dataclass(frozen=True, slots=True)
class Requirement:
    """``positive``: the label must be there with one of ``values`` (any, if ``None``); else it must not be so."""

    key: str
    positive: bool
    values: frozenset[str] | None

    def matches(self, labels: Mapping[str, str]) -> bool:
        value = labels.get(self.key)
        if self.values is None:
            return (value is not None) == self.positive
        return (value in self.values) == self.positive


@dataclass(frozen=True, slots=True)
class Selector:
    """All requirements hold. One without requirements matches nothing: an empty status must not select every pod."""

    requirements: tuple[Requirement, ...]

    def matches(self, labels: Mapping[str, str]) -> bool:
        return bool(self.requirements) and all(one.matches(labels) for one in self.requirements)

    def pin(self) -> tuple[str, str] | None:
        """A (label, value) that every match has, for an index; ``None`` if there is none."""
        for one in self.requirements:
            if one.positive and one.values is not None and len(one.values) == 1:
                return one.key, next(iter(one.values))
        return None


def parse(text: str) -> Selector:
    """``a=b,c!=d,e in (f,g),h,!i``; raises :class:`SelectorError`."""
    requirements: list[Requirement] = []
    position = 0
    while position < len(text):
        found = _REQUIREMENT.match(text, position)
        if found is None:
            raise SelectorError(f"not a label selector: {text!r}")
        requirements.append(_requirement(found))
        position = found.end()
    return Selector(tuple(requirements))


def _requirement(found: re.Match[str]) -> Requirement:
    if found["absent"]:
        return Requirement(found["absent"], positive=False, values=None)
    if found["set"]:
        values = frozenset(value.strip() for value in found["values"].split(","))
        return Requirement(found["key"], positive=found["set"] == "in", values=values)
    if found["op"]:
        return Requirement(found["key"], positive=found["op"] != "!=", values=frozenset({found["value"]}))
    return Requirement(found["key"], positive=True, values=None)
