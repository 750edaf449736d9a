"""Readers of the engine's queues sleep, and are woken."""

from __future__ import annotations

import threading
import time

import pytest
from vllm.distributed.device_communicators import shm_broadcast

from sunfleet_worker.hooks.shm_wait import shorten_spinning


@pytest.fixture(autouse=True)
def stock(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every test begins with the engine's own class and leaves it."""
    monkeypatch.setattr(shm_broadcast, "SpinCondition", shm_broadcast.SpinCondition)


def cpu_seconds_of_waiting(seconds: float) -> float:
    """CPU time that a reader takes which has just read and then waits so long for the next message."""
    queue = shm_broadcast.MessageQueue(1, 1)
    reader = shm_broadcast.MessageQueue.create_from_handle(queue.export_handle(), 0)
    ready = threading.Thread(target=queue.wait_until_ready)
    ready.start()
    reader.wait_until_ready()
    ready.join()
    queue.enqueue("first")
    assert reader.dequeue(timeout=5) == "first"
    sender = threading.Timer(seconds, queue.enqueue, ("second",))
    sender.start()
    began = time.thread_time()
    assert reader.dequeue(timeout=10) == "second"
    return time.thread_time() - began


def test_a_reader_that_waits_takes_no_cpu() -> None:
    shorten_spinning()
    shorten_spinning()
    assert cpu_seconds_of_waiting(0.5) < 0.1


def test_the_engines_own_reader_spins() -> None:
    """If it no longer does, the hook can go."""
    assert cpu_seconds_of_waiting(0.5) > 0.1
