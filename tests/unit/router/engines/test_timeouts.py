"""Each phase of a request has its own clock, from the task's spec: an engine that hangs there is found out by name."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import asdict, replace
from typing import Any

import pytest

from sunfleet_api.traffic import Timeouts, Traffic
from sunfleet_api.wire import EngineInfo
from sunfleet_router.engines.pulse import Pulse
from sunfleet_router.engines.upstream import Reply
from sunfleet_router.errors import PhaseTimeoutError
from sunfleet_router.fleet.assemble import limits_of
from sunfleet_router.fleet.snapshot import Endpoint, Snapshot
from sunfleet_router.fleet.snapshot import Timeouts as Clocks
from sunfleet_router.telemetry.metrics import PHASES
from sunfleet_router_harness import HOST, Engines, Router, RouterFactory
from sunfleet_router_streams import aimed_at, error_event, good_events, until

TEXT: dict[str, Any] = {"model": "acme/maths", "prompt": "one two three", "max_tokens": 16}
PATH = "/v1/completions"
TASK = "acme/maths"
LONG = {f"{name}Seconds": 30 for name in ("connect", "prefill", "kvLoad", "firstToken", "interToken", "request")}


def test_the_specs_clocks_are_the_routers() -> None:
    assert limits_of(Traffic()).timeouts == Clocks(), "defaults"
    seconds = dict.fromkeys(Timeouts.model_fields, 7)
    assert limits_of(Traffic(timeouts=Timeouts(**seconds))).timeouts == Clocks(7, 7, 7, 7, 7, 7)


async def start(factory: RouterFactory, clock: str, **settings: Any) -> Router:
    """A router of whose clocks only ``clock`` is short."""
    return await factory(timeouts={**LONG, clock: 1}, settings=settings)


def set_clocks(router: Router, **seconds: float) -> None:
    """Clocks that no spec can have."""
    snapshot = router.parts.fleet.snapshot
    task = snapshot.tasks[TASK]
    clocks = replace(task.limits.timeouts, **seconds)
    task = replace(task, limits=replace(task.limits, timeouts=clocks))
    router.parts.fleet.replace(Snapshot({**snapshot.tasks, TASK: task}, snapshot.pools))


def shorten(router: Router) -> None:
    """Clocks of one second become ones of a tenth."""
    clocks = asdict(router.parts.fleet.snapshot.tasks[TASK].limits.timeouts)
    set_clocks(router, **{name: 0.1 for name, seconds in clocks.items() if seconds == 1})


def counted(router: Router, phase: str) -> float:
    found = router.parts.metrics.registry.get_sample_value(
        "sunfleet_router_phase_timeouts_total", {"task": TASK, "phase": phase}
    )
    assert found is not None, "there from the start"
    return found


def only_counted(router: Router, phase: str) -> None:
    assert {name for name in PHASES if counted(router, name)} == {phase}


BEFORE_THE_FIRST_BYTE = [
    ("prefillSeconds", "prefill", "accept", "prefill"),
    ("prefillSeconds", "prefill", "prefill", "prefill"),
    ("kvLoadSeconds", "decode", "accept", "kv_load"),
    ("kvLoadSeconds", "decode", "kv_load", "kv_load"),
    ("requestSeconds", "prefill", "prefill", "request"),
    ("requestSeconds", "decode", "kv_load", "request"),
]


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(("clock", "role", "hang", "phase"), BEFORE_THE_FIRST_BYTE)
async def test_a_phase_before_the_first_byte_that_takes_too_long_is_504_and_named(
    start_router: RouterFactory, engines: Engines, clock: str, role: str, hang: str, phase: str, stream: bool
) -> None:
    router = await start(start_router, clock)
    shorten(router)
    (engines.configure_prefills if role == "prefill" else engines.configure_decoders)(hang=hang)
    status, answer = await router.post(PATH, {**TEXT, "stream": stream})
    assert (status, answer["error"]["code"]) == (504, f"{phase}_timeout")
    only_counted(router, phase)
    legs = engines.prefill_requests if role == "prefill" else engines.decode_requests
    await until(lambda: all(leg["outcome"] == "disconnected" for leg in legs()))


AFTER_IT = [
    ("firstTokenSeconds", {"hang": "first_token"}, "first_token", 1),
    ("interTokenSeconds", {"hang": "stream", "hang_after_tokens": 3}, "inter_token", 3),
    ("requestSeconds", {"hang": "stream", "hang_after_tokens": 3}, "request", 3),
    ("requestSeconds", {"hang": "first_token"}, "request", 1),
]


@pytest.mark.parametrize(("clock", "fault", "phase", "told"), AFTER_IT)
async def test_a_stream_that_falls_silent_ends_with_an_error_that_names_the_phase(
    start_router: RouterFactory, engines: Engines, clock: str, fault: dict[str, Any], phase: str, told: int
) -> None:
    router = await start(start_router, clock, resume_limit=0)
    if phase != "request":  # which also counts what came before
        shorten(router)
    engines.configure_decoders(**fault)
    stream = await router.stream(PATH, TEXT)
    assert error_event(stream)["code"] == f"{phase}_timeout"
    assert 1 <= len(good_events(stream)) <= told
    only_counted(router, phase)
    await until(lambda: engines.decode_requests()[0]["outcome"] == "disconnected")


@pytest.mark.parametrize(("clock", "fault", "phase", "told"), AFTER_IT)
async def test_an_answer_that_is_not_streamed_has_the_same_clocks(
    start_router: RouterFactory, engines: Engines, clock: str, fault: dict[str, Any], phase: str, told: int
) -> None:
    router = await start(start_router, clock)
    if phase != "request":
        shorten(router)
        set_clocks(router, kv_load=1, first_token=0.1)
    engines.configure_decoders(**fault)
    status, answer = await router.post(PATH, TEXT)
    assert (status, answer["error"]["code"]) == (504, f"{phase}_timeout"), told
    only_counted(router, phase)
    await until(lambda: engines.decode_requests()[0]["outcome"] == "disconnected")


async def test_a_pod_that_says_nothing_of_a_leg_is_taken_to_be_stuck(
    start_router: RouterFactory, engines: Engines
) -> None:
    router = await start(start_router, "kvLoadSeconds")
    shorten(router)
    engines.configure_decoders(hang="progress", tokens_per_second=1)
    status, answer = await router.post(PATH, TEXT)
    assert (status, answer["error"]["code"]) == (504, "kv_load_timeout")


class Pod:
    """Stands for the client of a pod that tells these numbers of tokens, one at each look."""

    def __init__(self, *tokens: int | None) -> None:
        self.tokens = list(tokens)
        self.paths: list[str] = []

    async def fetch(self, _: Endpoint, path: str, *__: Any, **___: Any) -> Reply:
        self.paths.append(path)
        tokens = self.tokens.pop(0)
        return Reply(404, b"{}") if tokens is None else Reply(200, b'{"tokens": %d}' % tokens)


@pytest.mark.parametrize(
    ("tokens", "phase"),
    [
        ((0,), "kv_load"), ((1, 1), "first_token"), ((1, 2, 2), "inter_token"), ((5, 6, 7, 9, 9), "inter_token"),
        ((None,), None), ((1, None), None), ((1, 2, 3, None), None),
    ],
)  # fmt: skip
async def test_slow_but_steady_is_not_stuck(tokens: tuple[int | None, ...], phase: str | None) -> None:
    pod = Pod(*tokens)
    info = EngineInfo(role="decode", kv_capacity_tokens=9, block_size=1, max_model_len=9, tells_progress=True)
    endpoint = Endpoint("u", "n", HOST, 1, "decode", "f", info)
    upstream: Any = pod
    seconds = Clocks(kv_load=0.001, first_token=0.001, inter_token=0.001)
    raised = pytest.raises(PhaseTimeoutError) if phase else nullcontext()
    with raised as late, Pulse(upstream, endpoint, "id-1", seconds, seeds=1):
        await until(lambda: not pod.tokens)
        await asyncio.sleep(0.05)
    if late is not None:
        assert late.value.phase == phase
    assert not pod.tokens
    assert set(pod.paths) == {"/sunfleet/progress?request=id-1"}


async def test_a_pod_that_cannot_say_is_left_to_the_requests_own_clock(
    start_router: RouterFactory, engines: Engines
) -> None:
    router = await start(start_router, "kvLoadSeconds")
    shorten(router)
    snapshot = router.parts.fleet.snapshot
    pools = {
        name: tuple(
            replace(pod, info=pod.info.model_copy(update={"tells_progress": False})) for pod in pool if pod.info
        )
        for name, pool in snapshot.pools.items()
    }
    router.parts.fleet.replace(Snapshot(snapshot.tasks, pools))
    engines.configure_decoders(hang="first_token", requests=1)
    asked = asyncio.ensure_future(router.post(PATH, TEXT))
    await asyncio.sleep(0.3)
    assert not asked.done()
    asked.cancel()


async def test_a_stream_that_goes_on_elsewhere_has_both_clocks_until_its_next_token(
    start_router: RouterFactory, engines: Engines
) -> None:
    router = await start_router(timeouts=LONG, settings={"resume_limit": 1})
    set_clocks(router, inter_token=0.1, kv_load=1, first_token=0.1)
    engines.decode.configure(hang="stream", hang_after_tokens=3)
    engines.decode_too.configure(hang="kv_load")
    headers = {"x-request-id": aimed_at(engines, engines.decode)}
    async with router.http.post(router.url + PATH, json={**TEXT, "stream": True}, headers=headers) as answer:
        stream = await answer.text()
    assert error_event(stream)["code"] == "first_token_timeout"


# Connecting


@contextmanager
def nobody_accepts() -> Iterator[int]:
    """A port at which connections are never taken: its backlog is full."""
    with ExitStack() as stack:
        listener = stack.enter_context(socket.socket())
        listener.bind((HOST, 0))
        listener.listen(0)
        for _ in range(8):
            waiting = stack.enter_context(socket.socket())
            waiting.setblocking(False)
            waiting.connect_ex(listener.getsockname())
        yield listener.getsockname()[1]


def all_at(router: Router, role: str, port: int) -> None:
    """Every pod of a role is at this port from now on."""
    snapshot = router.parts.fleet.snapshot

    def moved(pods: tuple[Endpoint, ...]) -> tuple[Endpoint, ...]:
        return tuple(replace(pod, port=port) if pod.role == role else pod for pod in pods)

    task = snapshot.tasks[TASK]
    task = replace(task, routes=tuple(replace(route, prefill=moved(route.prefill)) for route in task.routes))
    pools = {name: moved(pool) for name, pool in snapshot.pools.items()}
    router.parts.fleet.replace(Snapshot({**snapshot.tasks, TASK: task}, pools))


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("role", ["prefill", "decode"])
async def test_a_pod_that_takes_no_connection_is_given_up_after_the_tasks_own_time(
    start_router: RouterFactory, engines: Engines, role: str, stream: bool
) -> None:
    router = await start(start_router, "connectSeconds")
    shorten(router)
    with nobody_accepts() as port:
        all_at(router, role, port)
        status, answer = await router.post(PATH, {**TEXT, "stream": stream})
    assert (status, answer["error"]["code"]) == (504, "connect_timeout")
    only_counted(router, "connect")
    assert counted(router, "connect") == 2, "the other pod was tried"
    assert not engines.decode_requests()


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("role", ["prefill", "decode"])
async def test_a_client_that_leaves_while_a_pod_takes_no_connection_takes_everything_along(
    start_router: RouterFactory, engines: Engines, role: str, stream: bool
) -> None:
    router = await start_router(timeouts=LONG)
    with nobody_accepts() as port:
        all_at(router, role, port)
        asked = asyncio.ensure_future(router.post(PATH, {**TEXT, "stream": stream}))
        load = router.parts.load
        await until(lambda: bool(load.prefill_tokens if role == "prefill" else load.decodes))
        asked.cancel()
        await router.settled(1.0)


# Waiting for room


async def test_a_place_in_line_that_takes_too_long_counts_as_a_phase(start_router: RouterFactory) -> None:
    router = await start_router(queue={"ttlSeconds": 1})
    snapshot = router.parts.fleet.snapshot
    task = snapshot.tasks[TASK]
    task = replace(task, limits=replace(task.limits, queue_ttl=0.05))
    router.parts.fleet.replace(Snapshot({**snapshot.tasks, TASK: task}, snapshot.pools))
    for pod in snapshot.pool("local/base"):
        router.parts.admission.reserved[pod.uid] += pod.capacity
    status, answer = await router.post(PATH, TEXT)
    assert (status, answer["error"]["code"]) == (429, "queue_timeout")
    only_counted(router, "queue")
    router.parts.admission.reserved.clear()
