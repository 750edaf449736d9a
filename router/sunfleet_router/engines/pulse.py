"""The clocks of a decode leg that is not streamed: nothing comes of it before its end, so its pod is asked.

Only legs that take longer than a phase may are asked about. A pod that says nothing within that phase's time again is
taken to have made no progress.
"""

from __future__ import annotations

import asyncio
import logging
from types import TracebackType
from typing import Final

from pydantic import ValidationError

from sunfleet_api import wire
from sunfleet_router.engines.upstream import Upstream
from sunfleet_router.errors import PhaseTimeoutError
from sunfleet_router.fleet.snapshot import Endpoint, Timeouts
from sunfleet_router.transport.connection import UpstreamError

logger = logging.getLogger(__name__)

_LIMIT: Final = 4096  # bytes of an answer


class Pulse:
    """A context in which a leg's answer is waited for; raises :class:`PhaseTimeoutError` when its pod is stuck.

    ``request_id``: as the leg has told it to the pod. ``seeds``: how many tokens the pod was handed.
    """

    def __init__(self, upstream: Upstream, pod: Endpoint, request_id: str, timeouts: Timeouts, seeds: int) -> None:
        self._upstream = upstream
        self._pod = pod
        self._request_id = request_id
        self._timeouts = timeouts
        self._seeds = seeds
        self._stuck: PhaseTimeoutError | None = None
        self._watch: asyncio.Task[None] | None = None
        self._first_look: asyncio.TimerHandle | None = None

    def __enter__(self) -> None:
        task = asyncio.current_task()
        assert task is not None  # noqa: S101 a leg is waited for in a coroutine
        self._leg, self._cancelling = task, task.cancelling()
        self._first_look = asyncio.get_running_loop().call_later(self._timeouts.kv_load, self._begin)

    def __exit__(
        self, kind: type[BaseException] | None, failure: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._first_look is not None:
            self._first_look.cancel()
        if self._watch is not None:
            self._watch.cancel()
        # Only our own cancellation becomes the error, somebody else's stays what it is.
        if self._stuck is not None and self._leg.uncancel() <= self._cancelling and kind is asyncio.CancelledError:
            raise self._stuck from None

    def _begin(self) -> None:
        self._watch = asyncio.get_running_loop().create_task(self._look_on())

    async def _look_on(self) -> None:
        timeouts = self._timeouts
        if not await self._more_than(0, "kv_load", timeouts.kv_load):
            return
        await asyncio.sleep(timeouts.first_token)
        tokens = await self._more_than(self._seeds, "first_token", timeouts.first_token)
        while tokens:
            await asyncio.sleep(timeouts.inter_token)
            tokens = await self._more_than(tokens, "inter_token", timeouts.inter_token)

    async def _more_than(self, before: int, phase: str, seconds: float) -> int:
        """How many tokens there are now, if more; 0 where the pod is stuck, or where this cannot be known."""
        tokens = await self._ask(seconds)
        if tokens is None or tokens > before:
            return tokens or 0
        self._stuck = PhaseTimeoutError(phase, seconds)
        self._leg.cancel()
        return 0

    async def _ask(self, seconds: float) -> int | None:
        """Output tokens so far; ``None`` when the pod does not know the request (any more)."""
        path = f"{wire.PROGRESS_PATH}?request={self._request_id}"
        try:
            async with asyncio.timeout(seconds):
                reply = await self._upstream.fetch(self._pod, path, {}, None, limit=_LIMIT, resend=True)
            return wire.LegProgress.model_validate_json(reply.body).tokens if reply.status == 200 else None
        except (UpstreamError, TimeoutError) as error:
            logger.info("pod %s does not say how far request %s is: %s", self._pod.name, self._request_id, error)
            return 0
        except ValidationError:
            return None
