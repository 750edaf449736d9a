"""Pods that die and a router that restarts: an answer is whole and right, or it says that it is not."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor

import pytest

from sunfleet_api import wire
from support.fakes import is_ready, patch, uids
from support.fleet import ROUTER_NAMESPACE
from support.kubectl import Kubectl, wait_until
from support.served import ServedFleet
from support.streams import Reply, ask, completion

pytestmark = pytest.mark.timeout(150)
STREAMS = 20
TOKENS = 60
ROUTER = ("--namespace", ROUTER_NAMESPACE, "--selector", "app.kubernetes.io/name=sunfleet-router")


def under_streams(fleet: ServedFleet, act: Callable[[], None], *, tokens_per_second: float = 12) -> list[Reply]:
    """Open many paced streams of both tasks, ``act`` once every one has begun, and read all to the end."""
    for role in ("prefill", "decode"):
        fleet.configure(role, answer_tokens=TOKENS)
    fleet.configure("decode", tokens_per_second=tokens_per_second)
    begun = threading.Semaphore(0)
    bodies = [
        completion(fleet.model(("maths", "code")[n % 2]), f"question {n}", stream=True, max_tokens=TOKENS)
        for n in range(STREAMS)
    ]
    with ThreadPoolExecutor(STREAMS) as threads:
        streams: list[Future[Reply]] = [
            threads.submit(ask, fleet.url, body, on_event=lambda count: begun.release() if count == 2 else None)
            for body in bodies
        ]
        for _ in range(STREAMS):
            assert begun.acquire(timeout=30), "not every stream began"
        act()
        return [stream.result() for stream in streams]


def check(fleet: ServedFleet, replies: list[Reply]) -> int:
    """Every answer that calls itself whole is right, every other one says so; how many were whole."""
    for n, reply in enumerate(replies):
        expected = fleet.expected(
            ("maths", "code")[n % 2], f"question {n}", max_tokens=TOKENS, answer_tokens=TOKENS
        )  # fmt: skip
        assert reply.says_how_it_ended, reply
        assert reply.text == expected if reply.done else expected.startswith(reply.text), reply
    return sum(reply.done for reply in replies)


def test_a_decode_pod_that_dies_before_the_first_byte_is_replaced_by_another(fleet: ServedFleet) -> None:
    fleet.engines("decode")[0].configure(die_after_tokens=0, die="exit")
    for n in range(4):
        reply = ask(fleet.url, completion(fleet.model("maths"), f"question {n}"))
        assert (reply.status, reply.text) == (200, fleet.expected("maths", f"question {n}"))


def test_when_every_decode_pod_fails_the_client_gets_an_error_and_no_text(fleet: ServedFleet) -> None:
    fleet.configure("decode", die_after_tokens=0, die="reset")
    for stream in (False, True):
        reply = ask(fleet.url, completion(fleet.model("maths"), "hello", stream=stream))
        assert reply.status in {502, 503}
        assert reply.error
        assert reply.text == ""


def test_a_decode_pod_killed_under_streams_is_seen_by_no_client(fleet: ServedFleet, kubectl: Kubectl) -> None:
    victim = fleet.pods("decode")[0]["metadata"]["name"]

    def kill() -> None:
        where = ("--namespace", fleet.namespace)
        kubectl.run("delete", f"pod/{victim}", *where, "--grace-period=0", "--force", "--wait=false")

    assert check(fleet, under_streams(fleet, kill)) == STREAMS
    assert resumed_legs(fleet), "no stream met the kill"
    no_kv_is_held(fleet)


def test_an_engine_that_crashes_under_streams_is_seen_by_no_client(fleet: ServedFleet) -> None:
    def crash() -> None:
        with contextlib.suppress(OSError):  # the answer dies with the engine
            fleet.engines("decode")[0].request("POST", "/fake/exit")

    assert check(fleet, under_streams(fleet, crash)) == STREAMS
    assert resumed_legs(fleet), "no stream met the crash"
    no_kv_is_held(fleet)


def resumed_legs(fleet: ServedFleet) -> int:
    """Decode legs that went on with a stream that had begun elsewhere, on the pods that can be asked."""
    count = 0
    for engine in fleet.engines("decode"):
        with contextlib.suppress(OSError):  # the victim's successor is on its way
            legs = [request["body"]["kv_transfer_params"] for request in engine.requests()]
            count += sum(wire.KEY_TOLD_TOKENS in leg for leg in legs)
    return count


def no_kv_is_held(fleet: ServedFleet) -> None:
    """Neither for readers that will not come nor for streams that have ended."""

    def free() -> bool:
        try:
            engines = [*fleet.engines("decode"), *fleet.engines("prefill")]
            return not any(one.metric("fake:kv_blocks_used") for one in engines)
        except OSError:  # a pod is on its way back
            return False

    wait_until("all KV is free", free, 30, 0.5)


def test_a_decode_pod_that_is_told_to_go_finishes_its_streams(fleet: ServedFleet, kubectl: Kubectl) -> None:
    victim = fleet.pods("decode")[0]

    def delete() -> None:
        kubectl.run("delete", f"pod/{victim['metadata']['name']}", "--namespace", fleet.namespace, "--wait=false")

    assert check(fleet, under_streams(fleet, delete)) == STREAMS


def test_a_pod_that_is_going_gets_no_new_request(fleet: ServedFleet, kubectl: Kubectl) -> None:
    victim = fleet.pods("decode")[0]
    engine = fleet.proxy.engine(victim)
    kubectl.run("delete", f"pod/{victim['metadata']['name']}", "--namespace", fleet.namespace, "--wait=false")
    time.sleep(1)  # what the router may take to hear of it; the pod still answers for five
    before = len(engine.requests())
    for n in range(10):
        assert ask(fleet.url, completion(fleet.model("maths"), f"question {n}")).done
    assert len(engine.requests()) == before


def test_a_router_that_is_replaced_finishes_its_streams(fleet: ServedFleet, kubectl: Kubectl) -> None:
    old = uids(kubectl.items("pods", *ROUTER))

    def replace() -> None:
        kubectl.run("delete", "pods", *ROUTER, "--wait=false")

    def replaced() -> bool:
        pods = kubectl.items("pods", *ROUTER)
        return bool(pods) and not old.keys() & uids(pods).keys() and all(map(is_ready, pods))

    assert check(fleet, under_streams(fleet, replace)) == STREAMS
    # Until then the Service leads to the old pod, also when that has just gone.
    wait_until("another router is ready and the old one gone", replaced, 60, 0.5)
    wait_until("it answers", lambda: ask(fleet.url, completion(fleet.model("code"), "hello"), timeout=5).done, 30, 0.5)


def test_a_decoder_that_is_rolled_finishes_its_streams_and_serves_throughout(
    fleet: ServedFleet, kubectl: Kubectl
) -> None:
    old = uids(fleet.pods("decode"))

    def roll() -> None:
        template = {"metadata": {"annotations": {"example.com/rolled": str(time.time())}}}
        patch(kubectl, fleet.namespace, "shareddecoder/base", {"template": template})

    assert check(fleet, under_streams(fleet, roll, tokens_per_second=4)) == STREAMS
    deadline = time.monotonic() + 90
    while old.keys() & uids(fleet.pods("decode")).keys():
        assert time.monotonic() < deadline, "the old decode pods stay"
        reply = ask(fleet.url, completion(fleet.model("code"), "hello"))
        assert reply.done, reply
        time.sleep(0.3)


def test_a_pod_that_is_not_ready_gets_no_request(fleet: ServedFleet) -> None:
    ill, well = fleet.engines("decode")
    ill.configure(ready=False)
    wait_until("one decode pod is ready", lambda: fleet.ready("decode") == 1, 30, 0.5)
    time.sleep(1)  # what the router may take to hear of it
    before = len(ill.requests())
    for n in range(10):
        assert ask(fleet.url, completion(fleet.model("maths"), f"question {n}")).done
    assert len(ill.requests()) == before
    assert len(well.requests()) >= 10
