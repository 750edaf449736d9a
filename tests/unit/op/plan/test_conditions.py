"""Conditions: memory, roll-up, events."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from sunfleet_api.conditions import MAX_MESSAGE, MODEL_ROLL_UP, ConditionType, Reason
from sunfleet_operator.plan import conditions
from sunfleet_operator.plan.conditions import Verdict

NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
GOOD = (
    Verdict(ConditionType.ACCEPTED, "True", Reason.ACCEPTED),
    Verdict(ConditionType.RESOLVED_REFS, "True", Reason.RESOLVED),
    Verdict(ConditionType.WEIGHTS_READY, "True", Reason.RESOLVED),
)


def _live(verdict: Verdict, at: str = "2026-01-01T00:00:00Z") -> dict[str, Any]:
    return {"type": str(verdict.type), "status": verdict.status, "reason": verdict.reason, "lastTransitionTime": at}


def _merge(*verdicts: Verdict, live: tuple[dict[str, Any], ...] = (), generation: int = 7) -> list[dict[str, Any]]:
    return conditions.merge(verdicts, live, generation=generation, now=NOW)


def test_a_new_condition_gets_the_time_of_now() -> None:
    assert _merge(GOOD[0])[0]["lastTransitionTime"] == "2026-01-02T03:04:05Z"


def test_an_unchanged_status_keeps_its_time_although_reason_and_message_change() -> None:
    changed = Verdict(ConditionType.ACCEPTED, "True", "Other", "other words")
    merged = _merge(changed, live=(_live(GOOD[0]),))[0]
    assert merged["lastTransitionTime"] == "2026-01-01T00:00:00Z"
    assert (merged["reason"], merged["observedGeneration"]) == ("Other", 7)


def test_a_changed_status_gets_a_new_time() -> None:
    merged = _merge(Verdict(ConditionType.ACCEPTED, "False", "Other"), live=(_live(GOOD[0]),))
    assert merged[0]["lastTransitionTime"] == "2026-01-02T03:04:05Z"


def test_a_condition_without_a_verdict_vanishes() -> None:
    assert [c["type"] for c in _merge(GOOD[0], live=(_live(GOOD[1]),))] == ["Accepted"]


def test_ready_stands_first() -> None:
    ready = Verdict(ConditionType.READY, "True", Reason.READY)
    assert _merge(*GOOD, ready)[0]["type"] == "Ready"


def test_long_messages_are_cut_and_marked() -> None:
    message = _merge(Verdict(ConditionType.ACCEPTED, "True", "A", "x" * 5000))[0]["message"]
    assert len(message) == MAX_MESSAGE
    assert message.endswith("...")


ROLL_UPS: dict[str, tuple[tuple[Verdict, ...], bool, tuple[str, str]]] = {
    "all well": (GOOD, False, ("True", "Ready")),
    "all well at zero": (GOOD, True, ("True", "ScaledToZero")),
    "the first failure in the roll-up's order gives the reason": (
        (Verdict(ConditionType.WEIGHTS_READY, "False", "ResolveFailed"),
         Verdict(ConditionType.ACCEPTED, "False", "ModelNameConflict")),
        False, ("False", "ModelNameConflict"),
    ),
    "unknown is not ready": (
        (Verdict(ConditionType.KV_COMPATIBLE, "Unknown", "Pending"),), False, ("False", "Pending"),
    ),
    "a roll-out under way is not ready": (
        (*GOOD, Verdict(ConditionType.PROGRESSING, "True", Reason.ROLLING_OUT)), False, ("False", "RollingOut"),
    ),
    "a finished one is": (
        (*GOOD, Verdict(ConditionType.PROGRESSING, "False", Reason.ROLLOUT_COMPLETE)), False, ("True", "Ready"),
    ),
    "a roll-out that got stuck is not": (
        (*GOOD, Verdict(ConditionType.PROGRESSING, "False", Reason.PROGRESS_DEADLINE_EXCEEDED)), False,
        ("False", "ProgressDeadlineExceeded"),
    ),
    "conditions outside the roll-up do not count": (
        (*GOOD, Verdict(ConditionType.FIELDS_IGNORED, "True", "WithoutEffect")), False, ("True", "Ready"),
    ),
}  # fmt: skip


@pytest.mark.parametrize(("verdicts", "zero", "expected"), ROLL_UPS.values(), ids=ROLL_UPS)
def test_roll_up(verdicts: tuple[Verdict, ...], zero: bool, expected: tuple[str, str]) -> None:
    ready = conditions.ready(verdicts, MODEL_ROLL_UP, zero=zero)
    assert (ready.status, ready.reason) == expected


def test_an_event_tells_a_transition_once() -> None:
    failed = Verdict(ConditionType.WEIGHTS_READY, "False", Reason.RESOLVE_FAILED, "404")
    assert [(e.kind, e.reason, e.message) for e in conditions.events([failed], [])] == [
        ("Warning", "ResolveFailed", "404")
    ]
    assert conditions.events([failed], [_live(failed)]) == ()


def test_waiting_is_no_warning() -> None:
    waiting = Verdict(ConditionType.WEIGHTS_READY, "False", Reason.RESOLVING, "Job runs")
    assert conditions.events([waiting], []) == ()


def test_becoming_ready_is_told() -> None:
    ready = Verdict(ConditionType.READY, "True", Reason.READY)
    assert [event.kind for event in conditions.events([ready], [])] == ["Normal"]
