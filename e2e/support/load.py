"""A steady load: so many clients, each of whom asks again as soon as it was answered. What they got is kept."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from support.streams import Reply, ask, completion

_END_SECONDS = 60.0
_PAUSE_SECONDS = 0.5  # of a client that was refused, so that it does not ask a thousand times


@dataclass(frozen=True)
class Asked:
    """One question and its answer. ``started``: monotonic clock."""

    task: str
    prompt: str
    started: float
    reply: Reply


@dataclass
class Load:
    """``task`` is the model's name. It may be changed at any time: each client takes the new one with its next
    question, so that the number of requests under way stays the same."""

    url: str
    task: str
    options: dict[str, Any]
    asked: list[Asked] = field(default_factory=list)
    ended: threading.Event = field(default_factory=threading.Event)
    threads: list[threading.Thread] = field(default_factory=list)

    def start(self, clients: int) -> None:
        for number in range(clients):
            thread = threading.Thread(target=self.client, args=(number,), name=f"client {number}", daemon=True)
            self.threads.append(thread)
            thread.start()

    def stop(self) -> None:
        """Ask no more, and wait for the answers."""
        self.ended.set()
        for thread in self.threads:
            thread.join(_END_SECONDS)

    def client(self, number: int) -> None:
        """Ask until the load ends."""
        count = 0
        while not self.ended.is_set():
            task, prompt = self.task, f"client {number} asks for the {count} time something short"
            started = time.monotonic()
            reply = ask(self.url, completion(task, prompt, stream=True, **self.options))
            self.asked.append(Asked(task, prompt, started, reply))
            count += 1
            if not reply.done:
                self.ended.wait(_PAUSE_SECONDS)

    def failures(self, expected: Callable[[str, str], str]) -> list[str]:
        """What is wrong with the answers: one line each. ``expected``: the right text of a task's prompt."""
        wrong = [one for one in self.asked if not one.reply.done or one.reply.text != expected(one.task, one.prompt)]
        return [
            f"{one.task}: {one.reply.status} {one.reply.error or one.reply.broken or one.reply.text}" for one in wrong
        ]


@contextmanager
def steady(url: str, task: str, *, clients: int, **options: Any) -> Iterator[Load]:
    """The load for the time of the block; afterwards every question has its answer. ``options``: of the requests."""
    load = Load(url, task, options)
    load.start(clients)
    try:
        yield load
    finally:
        load.stop()
