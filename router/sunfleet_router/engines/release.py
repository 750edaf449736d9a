"""Tells prefill pods that nobody will read the KV they hold for a request, in the background and without promise.

A decoder that reads KV frees it, and a lease ends what is left; this only makes the wait in between short. So nothing
here may hold up a client or fail a request, and both the number of calls and their time are bounded.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Mapping
from types import TracebackType
from typing import Any, Final, Self

import orjson
from prometheus_client import Counter

from sunfleet_api import wire
from sunfleet_router.engines.upstream import Upstream
from sunfleet_router.fleet.snapshot import Endpoint
from sunfleet_router.transport.connection import UpstreamError

logger = logging.getLogger(__name__)

_MOST: Final = 256  # calls at once
_LONGEST: Final = 4096  # that wait for their turn; what comes above waits for its lease
_SECONDS: Final = 5.0
_ANSWER_LIMIT: Final = 64 << 10


class Hold:
    """A context in which a prefill pod holds KV of one request. ``taken``: a decoder has it; nothing is left to do."""

    __slots__ = ("_headers", "_releaser", "_transfer", "pod", "taken")

    def __init__(
        self, releaser: Releaser, pod: Endpoint, transfer: Mapping[str, Any], headers: Mapping[str, str]
    ) -> None:
        self._releaser = releaser
        self.pod = pod
        self._transfer = transfer
        self._headers = headers
        self.taken = False

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, failure: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._transfer and not self.taken:
            self._releaser.start(self.pod, self._transfer, self._headers)


class Releaser:
    """One per process. ``outcomes`` counts by ``released``, ``failed``, ``dropped``."""

    def __init__(self, upstream: Upstream, outcomes: Counter) -> None:
        self._upstream = upstream
        self._outcomes = outcomes
        self._calls: set[asyncio.Task[None]] = set()
        self._next: deque[tuple[Endpoint, Mapping[str, Any], Mapping[str, str]]] = deque()

    @property
    def pending(self) -> int:
        """Calls under way, or to come."""
        return len(self._calls) + len(self._next)

    async def close(self) -> None:
        """Wait for the calls under way; each ends by itself within seconds. Those to come are left to the lease."""
        self._next.clear()
        await asyncio.gather(*self._calls)

    def start(self, pod: Endpoint, transfer: Mapping[str, Any], headers: Mapping[str, str]) -> None:
        """Release it in the background."""
        if len(self._calls) < _MOST:
            call = asyncio.get_running_loop().create_task(self._release(pod, transfer, headers))
            self._calls.add(call)
            call.add_done_callback(self._done)
        elif len(self._next) < _LONGEST:
            self._next.append((pod, transfer, headers))
        else:
            self._outcomes.labels("dropped").inc()

    def _done(self, call: asyncio.Task[None]) -> None:
        self._calls.discard(call)
        if self._next:
            self.start(*self._next.popleft())

    async def _release(self, pod: Endpoint, transfer: Mapping[str, Any], headers: Mapping[str, str]) -> None:
        body = orjson.dumps({"kv_transfer_params": transfer})
        try:
            async with asyncio.timeout(_SECONDS):
                reply = await self._upstream.fetch(
                    pod, wire.RELEASE_PATH, headers, body, limit=_ANSWER_LIMIT, resend=True
                )
            problem = "" if reply.status < 300 else f"it answered {reply.status}"
        except (UpstreamError, TimeoutError) as error:
            problem = str(error) or f"no answer within {_SECONDS:g} s"
        self._outcomes.labels("failed" if problem else "released").inc()
        if problem:
            logger.info("pod %s keeps the KV of a request until its lease ends: %s", pod.name, problem)
