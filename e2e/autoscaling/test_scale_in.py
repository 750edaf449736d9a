"""Fewer pods while streams run: the pod with the least work goes, and none of its streams breaks."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from sunfleet_api.names import ROLE_DECODE
from support import scaled
from support.kubectl import wait_until
from support.load import steady
from support.podlog import PodLog
from support.scaled import BUSY, POOL, ScaledFleet
from support.streams import Reply, ask, completion

pytestmark = pytest.mark.long
UP_SECONDS = 90
DOWN_SECONDS = 60
STREAMS = 5  # room for them needs two pods; spread over three, one of these has only one
SLOW = 4.0  # tokens a second: a stream takes half a minute


def running(fleet: ScaledFleet) -> Counter[str]:
    """Requests on each decode pod."""
    pods = fleet.pods(ROLE_DECODE)
    return Counter(
        {pod["metadata"]["name"]: int(fleet.proxy.engine(pod).metric("vllm:num_requests_running")) for pod in pods}
    )


@pytest.fixture(autouse=True)
def _as_before(fleet: ScaledFleet) -> Iterator[None]:
    """Pods that stay are for other tests too."""
    yield
    for engine in fleet.proxy.engines(fleet.pods(ROLE_DECODE)):
        engine.reset()


def test_the_least_loaded_pod_goes_and_its_streams_end_whole(fleet: ScaledFleet, pods: PodLog, router_url: str) -> None:
    with steady(router_url, fleet.model(BUSY), clients=scaled.CLIENTS, **scaled.REQUEST):
        pods.wait("the pool has grown", lambda now: len(now.ready(ROLE_DECODE)) == POOL, UP_SECONDS)
    started = time.monotonic()
    for engine in fleet.proxy.engines(fleet.pods(ROLE_DECODE)):
        engine.configure(tokens_per_second=SLOW, answer_tokens=scaled.MAX_TOKENS)
    with ThreadPoolExecutor(STREAMS) as threads:
        replies = [threads.submit(stream, router_url, fleet, number) for number in range(STREAMS)]
        work = wait_until("all streams run", lambda: spread(fleet), 20, 0.3)
        shrunk = pods.wait("a pod goes", lambda now: len(now.wanted(ROLE_DECODE)) == POOL - 1, DOWN_SECONDS)
        (victim,) = work.keys() - set(shrunk.wanted(ROLE_DECODE))
        assert work[victim] == min(work.values()), work
        assert not any(reply.done() for reply in replies)
        ended = [reply.result() for reply in replies]
    assert [reply.error or reply.broken for reply in ended if not reply.done] == []
    assert victim in {reply.decode_pod for reply in ended}  # it still had a stream to end
    for number, reply in enumerate(ended):
        assert reply.text == fleet.expected(BUSY, prompt(number), answer_tokens=scaled.MAX_TOKENS)
    pods.wait("it has ended", lambda now: victim not in now.pods, DOWN_SECONDS)
    assert max(moment.gpus for moment in pods.since(started)) <= scaled.BUDGET


def prompt(number: int) -> str:
    return f"stream {number} goes on for long"


def stream(url: str, fleet: ScaledFleet, number: int) -> Reply:
    body = completion(fleet.model(BUSY), prompt(number), stream=True, **scaled.REQUEST)
    return ask(url, body, timeout=120)


def spread(fleet: ScaledFleet) -> Counter[str] | None:
    """Work by pod, once every stream is with one."""
    found = running(fleet)
    return found if found.total() == STREAMS else None
