"""How many may wait, and where: the bounds of a task and of the router, and the lobby of tasks without prefill pods."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import replace
from typing import Any

import pytest

from sunfleet_router.admission.claim import Claim
from sunfleet_router.admission.lobby import Lobby
from sunfleet_router.admission.waiting import Bounds, Waiting
from sunfleet_router.errors import NoPrefillEndpointError, PhaseTimeoutError, RouterError, UnknownModelError
from sunfleet_router.fleet.current import Fleet
from sunfleet_router.fleet.replicas import Replicas
from sunfleet_router.fleet.snapshot import Endpoint, Limits, Route, Snapshot, Task
from sunfleet_router.policies.decode import DecodeFacts

POD = Endpoint("p", "p", "127.0.0.1", 8000, "prefill", "f")


def claim(limits: Limits | None = None, *, name: str = "t", tokens: int = 100, size: int = 1000) -> Claim:
    return Claim(Task(name, limits=limits or Limits()), "n/d", DecodeFacts("r", tokens, ()), tokens // 2, size)


@pytest.mark.parametrize(
    ("limits", "bounds", "status", "code"),
    [
        (Limits(queue_requests=2), Bounds(9, 9000, 90_000), 429, "queue_full"),
        (Limits(queue_tokens=299), Bounds(9, 9000, 90_000), 429, "queue_full"),
        (Limits(queue_bytes=2999), Bounds(9, 9000, 90_000), 429, "queue_full"),
        (Limits(), Bounds(2, 9000, 90_000), 503, "overloaded"),
        (Limits(), Bounds(9, 299, 90_000), 503, "overloaded"),
        (Limits(), Bounds(9, 9000, 2999), 503, "overloaded"),
    ],
)
def test_a_third_request_meets_the_bound_of_its_task_or_of_the_router(
    limits: Limits, bounds: Bounds, status: int, code: str
) -> None:
    waiting = Waiting(bounds, Replicas())
    with ExitStack() as stack:
        for _ in range(2):
            stack.enter_context(waiting.one(claim(limits)))
        assert (waiting.requests["t"], waiting.tokens["t"], waiting.prompt_tokens["t"]) == (2, 200, 100)
        with pytest.raises(RouterError) as refused:
            stack.enter_context(waiting.one(claim(limits)))
        assert (refused.value.status, refused.value.code, refused.value.dropped) == (status, code, code)
        stack.enter_context(waiting.one(replace(claim(limits), resumed=True)))
    assert not any((waiting.requests, waiting.tokens, waiting.prompt_tokens, waiting.size))


def test_a_full_line_of_one_task_is_not_anothers() -> None:
    waiting, limits = Waiting(Bounds(9, 9000, 90_000), Replicas()), Limits(queue_requests=1)
    with waiting.one(claim(limits)), waiting.one(claim(limits, name="other")):
        assert waiting.requests == {"t": 1, "other": 1}


@pytest.mark.parametrize("limits", [Limits(queue_requests=4), Limits(queue_tokens=400), Limits(queue_bytes=4000)])
def test_two_routers_share_the_bounds_of_a_task_and_each_has_those_of_its_process(limits: Limits) -> None:
    waiting = Waiting(Bounds(2, 9000, 90_000), Replicas(2))
    with waiting.one(claim(limits)), waiting.one(claim(limits)):
        with pytest.raises(RouterError) as refused, waiting.one(claim(limits)):
            pass
        assert refused.value.code == "queue_full"
        with pytest.raises(RouterError) as full, waiting.one(claim(name="other")):
            pass
        assert full.value.code == "overloaded"


# The lobby


def fleet_of(*pods: Endpoint, limits: Limits) -> Snapshot:
    routes = (Route("r1", 100, "n/d", "salt", pods),)
    return Snapshot({"t": Task("t", routes=routes, limits=limits)}, {})


@pytest.fixture
def fleet() -> Fleet:
    return Fleet()


@pytest.fixture
def waiting() -> Waiting:
    return Waiting(Bounds(9, 9000, 90_000), Replicas())


@pytest.fixture
def lobby(fleet: Fleet, waiting: Waiting) -> Lobby:
    return Lobby(fleet, waiting)


async def test_a_request_for_a_task_at_zero_is_held_and_counted_until_a_pod_is_ready(
    lobby: Lobby, fleet: Fleet, waiting: Waiting
) -> None:
    limits = Limits(hold=30)
    fleet.replace(Snapshot({"t": Task("t", limits=limits)}, {}))  # asleep: no traffic at all
    held = asyncio.ensure_future(lobby.route(claim(limits)))
    await asyncio.sleep(0)
    assert waiting.requests["t"] == 1
    fleet.replace(fleet_of(limits=limits))  # its revision is there, without a pod
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert not held.done()
    fleet.replace(fleet_of(POD, limits=limits))
    assert (await held).prefill == (POD,)
    assert not waiting.requests


def _vanish(fleet: Fleet) -> None:
    fleet.replace(Snapshot())


def _nothing(_: Fleet) -> None:
    pass


@pytest.mark.parametrize(
    ("hold", "deadline", "meanwhile", "error"),
    [
        (0, 60, _nothing, NoPrefillEndpointError),
        (0.02, 60, _nothing, NoPrefillEndpointError),
        (60, 0.02, _nothing, PhaseTimeoutError),
        (60, 60, _vanish, UnknownModelError),
    ],
)
async def test_one_that_is_held_in_vain_hears_why(
    lobby: Lobby, fleet: Fleet, waiting: Waiting, hold: float, deadline: float, meanwhile: Callable[[Fleet], None],
    error: type[Any],
) -> None:  # fmt: skip
    limits = Limits(hold=hold)
    fleet.replace(fleet_of(limits=limits))
    until = asyncio.get_running_loop().time() + deadline
    held = asyncio.ensure_future(lobby.route(replace(claim(limits), deadline=until)))
    await asyncio.sleep(0)
    meanwhile(fleet)
    with pytest.raises(error):
        await held
    assert not waiting.requests
    assert not lobby._changes


async def test_the_lobby_has_the_bounds_of_the_line(lobby: Lobby, fleet: Fleet) -> None:
    limits = Limits(hold=30, queue_requests=1)
    fleet.replace(fleet_of(limits=limits))
    held = asyncio.ensure_future(lobby.route(claim(limits)))
    await asyncio.sleep(0)
    with pytest.raises(RouterError, match="Too many"):
        await lobby.route(claim(limits))
    held.cancel()
    await asyncio.gather(held, return_exceptions=True)
