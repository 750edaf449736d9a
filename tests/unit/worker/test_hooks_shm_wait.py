"""Readers of the engine's queues sleep, and are woken."""

from __future__ import annotations

import threading
import time
from typing import Any

import pytest
from vllm.distributed.device_communicators import shm_broadcast

from sunfleet_worker.hooks.shm_wait import longest_sleep, shorten_spinning


@pytest.fixture(autouse=True)
def stock(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every test begins with the engine's own class and leaves it."""
    monkeypatch.setattr(shm_broadcast, "SpinCondition", shm_broadcast.SpinCondition)


def connected() -> tuple[Any, Any]:
    """Writer and reader of a queue, of which one message was read."""
    queue = shm_broadcast.MessageQueue(1, 1)
    reader = shm_broadcast.MessageQueue.create_from_handle(queue.export_handle(), 0)
    ready = threading.Thread(target=queue.wait_until_ready)
    ready.start()
    reader.wait_until_ready()
    ready.join()
    queue.enqueue("first")
    assert reader.dequeue(timeout=5) == "first"
    return queue, reader


def cpu_seconds_of_waiting(seconds: float) -> float:
    """CPU time that a reader takes which has just read and then waits so long for the next message."""
    queue, reader = connected()
    sender = threading.Timer(seconds, queue.enqueue, ("second",))
    sender.start()
    began = time.thread_time()
    assert reader.dequeue(timeout=10) == "second"
    return time.thread_time() - began


def test_a_reader_that_waits_takes_no_cpu() -> None:
    shorten_spinning()
    shorten_spinning()
    assert cpu_seconds_of_waiting(0.5) < 0.1


def test_the_engines_own_reader_does_not_sleep(monkeypatch: pytest.MonkeyPatch) -> None:
    """If it no longer spins, the hook can go."""
    queue, reader = connected()
    monkeypatch.setattr(reader._spin_condition, "poller", None)
    threading.Timer(0.2, queue.enqueue, ("second",)).start()
    assert reader.dequeue(timeout=10) == "second"


def read_though_the_call_was_lost(timeout: float) -> str:
    queue, reader = connected()
    queue._spin_condition.notify = lambda: None
    threading.Timer(0.1, queue.enqueue, ("second",)).start()
    return str(reader.dequeue(timeout=timeout))


def test_a_reader_whose_call_was_lost_looks_again_by_itself() -> None:
    """Under load many are; the engine's own reader would sleep for five seconds."""
    shorten_spinning()
    assert read_though_the_call_was_lost(timeout=2.0) == "second"


def test_a_reader_looks_again_often_at_first_and_then_seldom() -> None:
    assert [longest_sleep(waited) for waited in (0.0, 0.004, 0.04, 0.2, 10.0)] == [1, 1, 10, 50, 100]
