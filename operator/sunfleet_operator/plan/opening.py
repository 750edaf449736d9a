"""How the plan of an object with pods begins: its spec with its profiles, or why nothing can be done yet. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Generic, TypeVar

from pydantic import ValidationError

from sunfleet_api.base import Resource
from sunfleet_api.conditions import ConditionType
from sunfleet_operator.observed import ObservedDecoder, ObservedModel, ObservedPool
from sunfleet_operator.plan import profiles
from sunfleet_operator.plan.actions import Plan
from sunfleet_operator.plan.common import invalid, unknown, waiting
from sunfleet_operator.plan.conditions import Verdict
from sunfleet_operator.plan.profiles import Effective

O = TypeVar("O", ObservedDecoder, ObservedModel, ObservedPool)  # noqa: E741
R = TypeVar("R", bound=Resource)


@dataclass(frozen=True)
class Opened(Generic[O, R]):
    """``observed`` with the presets of its profiles, ``made``, under its spec; and the same as a model."""

    observed: O
    resource: R
    made: Effective


def opened(
    observed: O, kind: type[R], refs: ConditionType, now: datetime, more: Sequence[Verdict] = ()
) -> Opened[O, R] | Plan:
    """A plan where that is all: children of an earlier object, a profile that is missing, a spec that cannot be read.
    ``refs`` is the condition that speaks of the object's references; ``more`` is said besides."""
    if observed.children.predecessor:
        return waiting(observed.live, now)
    made = profiles.effective(observed.live, observed.key, observed.children, observed.profiles)
    obstacle = made.obstacle(refs)
    if obstacle is not None:
        return unknown(observed.live, obstacle, now, more)
    try:
        resource = kind.parse(made.live)
    except ValidationError as error:
        return invalid(made.live, error, kind, now, more)
    return Opened(replace(observed, live=made.live), resource, made)
