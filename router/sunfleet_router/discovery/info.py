"""Asks every engine pod once who it is: ``GET /sunfleet/info``; a pod that does not answer is asked again until it
does.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable

from pydantic import ValidationError

from sunfleet_api.digests import KVFingerprint
from sunfleet_api.wire import EngineInfo
from sunfleet_router.engines.upstream import Upstream
from sunfleet_router.fleet.snapshot import Endpoint
from sunfleet_router.transport.connection import UpstreamError

logger = logging.getLogger(__name__)

PATH = "/sunfleet/info"
_LIMIT = 64 << 10
_TIMEOUT = 5.0  # seconds; a loaded engine answers late
_SLOWEST = 15.0  # seconds between tries


class InfoBook:
    """What pods said, by uid. ``on_learn`` is called after each pod's first try, and when it answers later.

    ``interval``: seconds before the second try.
    """

    def __init__(self, upstream: Upstream, on_learn: Callable[[], None], *, interval: float) -> None:
        self._upstream = upstream
        self._on_learn = on_learn
        self._interval = interval
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._never_asked: set[str] = set()
        self.known: dict[str, EngineInfo] = {}

    def follow(self, endpoints: Iterable[Endpoint]) -> None:
        """Exactly these pods are there now: ask the new ones, forget the others."""
        present = {endpoint.uid: endpoint for endpoint in endpoints}
        for uid in [uid for uid in self._tasks if uid not in present]:
            self._tasks.pop(uid).cancel()
        self.known = {uid: info for uid, info in self.known.items() if uid in present}
        self._never_asked &= present.keys()
        for uid, endpoint in present.items():
            if uid not in self._tasks and uid not in self.known:
                self._never_asked.add(uid)
                self._tasks[uid] = asyncio.get_running_loop().create_task(self._ask(endpoint))

    @property
    def everyone_was_asked(self) -> bool:
        """Whether each pod that is followed has answered or failed to at least once."""
        return not self._never_asked

    async def close(self) -> None:
        tasks = list(self._tasks.values())
        self._tasks.clear()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _ask(self, endpoint: Endpoint) -> None:
        pause = self._interval
        while True:
            info = await self._try(endpoint)
            if info is not None:
                self.known[endpoint.uid] = info
                self._tasks.pop(endpoint.uid, None)
            if info is not None or endpoint.uid in self._never_asked:
                self._never_asked.discard(endpoint.uid)
                self._on_learn()
            if info is not None:
                return
            await asyncio.sleep(pause)
            pause = min(pause * 1.5, _SLOWEST)

    async def _try(self, endpoint: Endpoint) -> EngineInfo | None:
        try:
            async with asyncio.timeout(_TIMEOUT):
                reply = await self._upstream.fetch(endpoint, PATH, {}, None, limit=_LIMIT, resend=True)
            if reply.status != 200:
                logger.info("pod %s: %s answered %d", endpoint.name, PATH, reply.status)
                return None
            info = EngineInfo.model_validate_json(reply.body)
        except (UpstreamError, TimeoutError, ValidationError) as error:
            logger.info("pod %s: no facts yet: %s", endpoint.name, error)
            return None
        if wrong := _contradiction(endpoint, info):
            logger.warning("pod %s gets no requests: %s", endpoint.name, wrong)
            return None
        return info


def _contradiction(endpoint: Endpoint, info: EngineInfo) -> str:
    """What a pod says of itself that its labels deny; empty when they agree."""
    if info.role != endpoint.role:
        return f"it says it is a {info.role} pod but is labelled {endpoint.role}"
    labelled = KVFingerprint(digest=info.kv_fingerprint).label
    if info.kv_fingerprint and endpoint.fingerprint not in ("", info.kv_fingerprint, labelled):
        return f"it makes KV of fingerprint {labelled} but is labelled {endpoint.fingerprint}"
    return ""
