"""A crowd of slow streams that is under way while something happens, and clients that go on asking meanwhile."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

from support.load import Asked, steady
from support.streams import Reply, ask, completion

_BEGIN_SECONDS = 120.0
_SHORT = 6  # tokens of a question that is asked meanwhile
_TIMEOUT = 240.0


@dataclass(frozen=True)
class Crowd:
    """``streams`` long answers at once, over ``models`` in turn; ``clients`` ask short questions all the time."""

    url: str
    models: Sequence[str]
    streams: int
    tokens: int  # of a long answer
    clients: int = 4

    def under_way(self, act: Callable[[], Any]) -> tuple[list[Reply], list[Asked]]:
        """``act`` once every long answer has begun; all of them, and the short ones that were given until then."""
        begun = threading.Semaphore(0)

        def heard(count: int) -> None:
            if count == 2:
                begun.release()

        with ThreadPoolExecutor(self.streams) as threads:
            replies: list[Future[Reply]] = [
                threads.submit(ask, self.url, self.question(number), timeout=_TIMEOUT, on_event=heard)
                for number in range(self.streams)
            ]
            for _ in replies:
                assert begun.acquire(timeout=_BEGIN_SECONDS), "not every stream began"
            with steady(self.url, self.models[0], clients=self.clients, max_tokens=_SHORT) as load:
                act()
                ended = [reply.result() for reply in replies]
        return ended, load.asked

    def model(self, number: int) -> str:
        """Whom the stream of this number asks."""
        return self.models[number % len(self.models)]

    @staticmethod
    def prompt(number: int) -> str:
        return f"stream {number} goes on for long"

    def question(self, number: int) -> dict[str, Any]:
        return completion(self.model(number), self.prompt(number), stream=True, max_tokens=self.tokens)

    def faults(
        self, replies: Sequence[Reply], asked: Sequence[Asked], expected: Callable[[str, str, int], str]
    ) -> list[str]:
        """Every answer that is not whole and right, in a line. ``expected``: text of a model, a prompt and a limit."""
        given = [(self.model(number), self.prompt(number), self.tokens, reply) for number, reply in enumerate(replies)]
        given += [(one.task, one.prompt, _SHORT, one.reply) for one in asked]
        return [
            f"{model}, {prompt!r}: {reply.status} {reply.error or reply.broken or reply.text[-80:]}"
            for model, prompt, limit, reply in given
            if not reply.done or reply.text != expected(model, prompt, limit)
        ]
