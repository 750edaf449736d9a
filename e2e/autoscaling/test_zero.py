"""A task that nobody asks has no pods; the next request is held and answered."""

from __future__ import annotations

import time
from collections.abc import Callable

from sunfleet_api.names import ROLE_DECODE, ROLE_PREFILL
from support import fakes, scaled
from support.podlog import Moment, PodLog
from support.scaled import RARE, ScaledFleet
from support.streams import ask, completion

ZERO_SECONDS = 60 + scaled.IDLE_SECONDS
PROMPT = "is anybody there"


def none(moment: Moment) -> bool:
    return not moment.of(ROLE_PREFILL, RARE)


def test_an_idle_task_goes_to_zero_is_ready_and_the_pool_stays_warm(fleet: ScaledFleet, pods: PodLog) -> None:
    pods.wait("the idle task has no pods", none, ZERO_SECONDS)
    told = fleet.wait_for("says that it is at zero", "sunmodel", RARE, lambda _: fleet.count("sunmodel", RARE) == 0)
    ready = fakes.condition(told, "Ready")
    assert (ready["status"], ready["reason"]) == ("True", "ScaledToZero")
    assert pods.now.ready(ROLE_DECODE)


def test_a_request_at_zero_is_held_and_answered_and_the_task_goes_back_to_zero(
    fleet: ScaledFleet, pods: PodLog, router_url: str, record: Callable[[str, float], None]
) -> None:
    pods.wait("the idle task has no pods", none, ZERO_SECONDS)
    started, first = time.monotonic(), []
    body = completion(fleet.model(RARE), PROMPT, stream=True, **scaled.REQUEST)
    reply = ask(router_url, body, on_event=lambda _: first.append(time.monotonic() - started))
    assert reply.done, reply.error or reply.broken
    assert reply.text == fleet.expected(RARE, PROMPT)
    record("seconds until the first token after zero", first[0])
    pods.wait("the idle task has no pods again", none, ZERO_SECONDS)
    record("seconds until the task was at zero again", time.monotonic() - started)
    assert max(moment.gpus for moment in pods.since(0)) <= scaled.BUDGET
