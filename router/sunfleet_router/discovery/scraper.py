"""Looks at every decode pod's metrics now and then, for what other routers have placed there."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from typing import Final

from sunfleet_router.admission.decode_room import Admission
from sunfleet_router.admission.load import Load
from sunfleet_router.engines.upstream import Upstream
from sunfleet_router.fleet.current import Fleet
from sunfleet_router.fleet.snapshot import Endpoint
from sunfleet_router.policies import occupancy
from sunfleet_router.transport.connection import UpstreamError

logger = logging.getLogger(__name__)

_PATH: Final = "/metrics"
_LIMIT: Final = 8 << 20  # bytes


class Scraper:
    """One per process; ``interval`` in seconds, 0: never, as for a router that is alone."""

    def __init__(self, fleet: Fleet, load: Load, admission: Admission, upstream: Upstream, *, interval: float) -> None:
        self._fleet = fleet
        self._load = load
        self._admission = admission
        self._upstream = upstream
        self._interval = interval

    async def run(self) -> None:
        """Until cancelled."""
        if not self._interval:
            await asyncio.Event().wait()
        while True:
            await asyncio.sleep(self._interval)
            await self.look()

    async def look(self) -> None:
        """Once. A pod that does not answer is taken to hold nothing of others: its own refusals protect it."""
        pods = {pod.uid: pod for pool in self._fleet.snapshot.pools.values() for pod in pool}
        taken = await asyncio.gather(*(self._taken(pod) for pod in pods.values()))
        found: Mapping[str, int] = {uid: tokens for uid, tokens in zip(pods, taken, strict=True) if tokens}
        self._admission.others_have(found)

    async def _taken(self, pod: Endpoint) -> int:
        try:
            async with asyncio.timeout(max(1.0, self._interval)):
                reply = await self._upstream.fetch(pod, _PATH, {}, None, limit=_LIMIT, resend=True)
        except (UpstreamError, TimeoutError) as error:
            logger.debug("pod %s: no metrics: %s", pod.name, error)
            return 0
        seen = occupancy.read(reply.body) if reply.status == 200 else None
        return occupancy.of_others(seen, pod.capacity, self._load.decodes[pod.uid]) if seen else 0
