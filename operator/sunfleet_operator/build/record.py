"""ControllerRevisions: what was resolved and what a revision's pods are, kept where a lost status or an upgrade
cannot change it."""

from __future__ import annotations

from typing import Any

from sunfleet_operator.build import labels
from sunfleet_operator.types import Json, Key, Manifest

COMPONENT = "record"


def record(owner: Json, key: Key, name: str, data: dict[str, Any], *, number: int) -> Manifest:
    """``data`` is immutable once written; ``number`` orders the records of one owner, newest last."""
    return labels.child(
        "apps/v1",
        "ControllerRevision",
        name=name,
        owner=owner,
        labels=labels.child_labels(key, COMPONENT),
        data=data,
        revision=number,
    )
