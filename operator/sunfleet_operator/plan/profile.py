"""What to say about a ServingProfile: nothing is made of it. Pure."""

from __future__ import annotations

from datetime import datetime

from sunfleet_api.conditions import PROFILE_ROLL_UP
from sunfleet_operator.observed import ObservedProfile
from sunfleet_operator.plan import conditions, profiles, status
from sunfleet_operator.plan.actions import Plan


def plan(observed: ObservedProfile, now: datetime) -> Plan:
    """Its status: whether it can be read, and how many objects start from it."""
    verdicts = [profiles.readable(observed.live)]
    verdicts.append(conditions.ready(verdicts, PROFILE_ROLL_UP, zero=False))
    fields = {"attachedObjects": observed.attached}
    return Plan(
        status=status.write(observed.live, fields, verdicts, now), events=status.events(observed.live, verdicts)
    )
