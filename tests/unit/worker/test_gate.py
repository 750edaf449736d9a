"""Routes, drain and the count of requests in flight."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from sunfleet_worker.drain import drain
from sunfleet_worker.frontend.gate import ALLOWED, GENERATING, OPEN, Gate, Message, Receive, Scope, Send, Traffic
from sunfleet_worker.frontend.standing import SELF_CHECK, Standing


class Inner:
    """The application behind the gate; holds every request until ``go``."""

    def __init__(self) -> None:
        self.paths: list[str] = []
        self.go = asyncio.Event()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self.paths.append(scope["path"])
        await self.go.wait()
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"{}"})


def proven() -> Standing:
    standing = Standing()
    standing.reason = ""
    return standing


async def call(gate: Gate, method: str, path: str, **scope: Any) -> tuple[int, dict[str, Any]]:
    sent: list[Message] = []

    async def receive() -> Message:
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(message: Message) -> None:
        sent.append(message)

    await gate({"type": "http", "method": method, "path": path, **scope}, receive, send)
    return sent[0]["status"], json.loads(sent[1]["body"])


async def never() -> None:
    pytest.fail("nothing to abort")


@pytest.fixture
def inner() -> Inner:
    return Inner()


@pytest.fixture
def traffic() -> Traffic:
    return Traffic()


@pytest.fixture
def gate(inner: Inner, traffic: Traffic) -> Gate:
    return Gate(inner, traffic=traffic, standing=proven())


@pytest.mark.parametrize(("method", "path"), sorted(ALLOWED))
async def test_listed_routes_pass(gate: Gate, inner: Inner, method: str, path: str) -> None:
    inner.go.set()
    assert (await call(gate, method, path))[0] == 200


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("POST", "/collective_rpc"),
        ("POST", "/v1/load_lora_adapter"),
        ("POST", "/v1/responses"),
        ("POST", "/v1/chat/completions/"),
        ("POST", "/v1/chat/completions/batch"),
        ("GET", "/v1/completions"),
        ("DELETE", "/v1/models"),
        ("POST", "/health"),
    ],
)
async def test_everything_else_is_not_served(gate: Gate, inner: Inner, method: str, path: str) -> None:
    status, body = await call(gate, method, path)
    assert (status, body["error"]["code"]) == (404, "route_not_served")
    assert inner.paths == []


@pytest.mark.parametrize(("method", "path"), sorted(ALLOWED))
async def test_with_a_key_only_probes_and_metrics_are_open(
    inner: Inner, traffic: Traffic, method: str, path: str
) -> None:
    gate = Gate(inner, traffic=traffic, standing=proven(), key="fleet-secret")
    inner.go.set()
    for shown in ((), [(b"authorization", b"Bearer other")], [(b"authorization", b"fleet-secret")]):
        status, body = await call(gate, method, path, headers=shown)
        assert (status == 200) == ((method, path) in OPEN)
        assert status == 200 or body["error"]["code"] == "invalid_api_key"
    assert (await call(gate, method, path, headers=[(b"authorization", b"bearer fleet-secret")]))[0] == 200


async def test_a_pod_shows_itself_no_key(inner: Inner, traffic: Traffic) -> None:
    gate = Gate(inner, traffic=traffic, standing=proven(), key="fleet-secret")
    inner.go.set()
    assert (await call(gate, "POST", "/v1/completions", **{SELF_CHECK: True}))[0] == 200


async def test_a_draining_pod_refuses_new_work_and_still_answers_probes(
    gate: Gate, inner: Inner, traffic: Traffic
) -> None:
    traffic.draining = True
    inner.go.set()
    for method, path in GENERATING:
        status, body = await call(gate, method, path)
        assert (status, body["error"]["code"]) == (503, "sun_draining")
    assert (await call(gate, "GET", "/health"))[0] == 200


async def test_before_its_self_check_has_passed_a_pod_generates_for_nobody_but_itself(
    inner: Inner, traffic: Traffic
) -> None:
    standing = Standing()
    gate = Gate(inner, traffic=traffic, standing=standing)
    inner.go.set()
    for method, path in GENERATING:
        status, body = await call(gate, method, path)
        assert (status, body["error"]["code"]) == (503, "sun_not_ready")
        assert (await call(gate, method, path, **{SELF_CHECK: True}))[0] == 200
    assert (await call(gate, "GET", "/health"))[0] == 200
    standing.reason = ""
    assert (await call(gate, "POST", "/v1/completions"))[0] == 200


async def test_a_drain_waits_for_running_requests_then_for_kv(gate: Gate, inner: Inner, traffic: Traffic) -> None:
    kv = [0.5]
    running = asyncio.create_task(call(gate, "POST", "/v1/completions"))
    await asyncio.sleep(0)
    assert traffic.in_flight == 1
    draining = asyncio.create_task(drain(traffic, lambda: kv[0], never, 30))
    await asyncio.sleep(0.01)
    assert not draining.done()
    inner.go.set()
    assert (await running)[0] == 200
    await asyncio.sleep(0.01)
    assert not draining.done(), "a decoder has not read everything yet"
    kv[0] = 0.0
    await asyncio.wait_for(draining, 5)


async def test_when_its_time_is_over_a_drain_aborts_what_runs(gate: Gate, inner: Inner, traffic: Traffic) -> None:
    async def abort() -> None:
        inner.go.set()

    running = asyncio.create_task(call(gate, "POST", "/v1/completions"))
    await asyncio.sleep(0)
    await asyncio.wait_for(drain(traffic, lambda: 0.0, abort, 0.05), 5)
    assert traffic.in_flight == 0, "the client has been told"
    await running


async def test_a_request_that_fails_is_not_in_flight_any_more(traffic: Traffic) -> None:
    async def broken(scope: Scope, receive: Receive, send: Send) -> None:
        raise RuntimeError("broken")

    with pytest.raises(RuntimeError):
        await call(Gate(broken, traffic=traffic, standing=proven()), "POST", "/v1/completions")
    assert traffic.in_flight == 0
    await asyncio.wait_for(traffic.idle(), 1)
