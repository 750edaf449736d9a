"""Tables of accepted and rejected manifests: YAML in, one value per attempt out."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

Document = dict[str, Any]


@dataclass(frozen=True)
class Table:
    """One kind's file: the object that every attempt starts from, and the attempts."""

    base: Document
    attempts: tuple[Attempt, ...]


@dataclass(frozen=True)
class Attempt:
    """A patch that must be accepted (``rejected_at`` is empty) or rejected at that field, saying ``says``.

    ``start`` is the patch that makes the stored object of an update out of the base; ``None`` for a creation.
    """

    sentence: str
    patch: Document
    start: Document | None
    rejected_at: str
    says: str

    def __str__(self) -> str:
        return f"{self.sentence} - {'rejected' if self.rejected_at else 'accepted'}"


def load(path: Path) -> Table:
    """Read a table."""
    content = yaml.safe_load(path.read_text())
    return Table(content["base"], tuple(_attempts(content)))


def _attempts(content: Mapping[str, Any]) -> Iterator[Attempt]:
    for section in ("create", "update"):
        for sentence, case in content[section].items():
            start = case.get("from", {}) if section == "update" else None
            for patch in case["accepted"]:
                yield Attempt(sentence, patch, start, "", "")
            for patch in case["rejected"]:
                yield Attempt(sentence, patch, start, case["field"], case.get("says", ""))


def merged(document: Any, patch: Any) -> Any:
    """JSON merge patch (RFC 7386): objects are merged, ``None`` removes, anything else replaces."""
    if not isinstance(patch, Mapping):
        return patch
    result = dict(document) if isinstance(document, Mapping) else {}
    for name, value in patch.items():
        if value is None:
            result.pop(name, None)
        else:
            result[name] = merged(result.get(name), value)
    return result
