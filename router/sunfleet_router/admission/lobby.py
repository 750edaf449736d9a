"""Where requests wait for a task that has no ready prefill pod: asleep at zero replicas, or between two pods.

They count as waiting from the start, so the autoscaler sees them and brings a pod up. How long they stay is the task's
own ``hold``; without one they hear at once that nothing serves the model.
"""

from __future__ import annotations

import asyncio

from sunfleet_router.admission.claim import Claim
from sunfleet_router.admission.waiting import Waiting
from sunfleet_router.errors import NoPrefillEndpointError, PhaseTimeoutError, UnknownModelError
from sunfleet_router.fleet.current import Fleet
from sunfleet_router.fleet.snapshot import Route, Snapshot
from sunfleet_router.policies import route as policy


class Lobby:
    """One per process."""

    def __init__(self, fleet: Fleet, waiting: Waiting) -> None:
        self._fleet = fleet
        self._waiting = waiting
        self._changes: set[asyncio.Future[None]] = set()
        fleet.on_change(self._fleet_changed)

    async def route(self, claim: Claim) -> Route:
        """Where the request goes, once a prefill pod is ready there.

        Raises :class:`NoPrefillEndpointError` when none is and the task's ``hold`` has passed, what
        :meth:`Waiting.one` raises, and :class:`UnknownModelError` when the task has gone meanwhile.
        """
        name, request_id = claim.task.name, claim.facts.request_id
        route = self.ready(name, request_id)
        if route is not None:
            return route
        hold = claim.task.limits.hold
        if not hold:
            raise NoPrefillEndpointError("This model is known, but no prefill pod is ready for it; try again later.")
        until = asyncio.get_running_loop().time() + hold
        with self._waiting.one(claim):
            try:
                async with asyncio.timeout_at(min(until, claim.deadline)):
                    return await self._wait(claim)
            except TimeoutError:
                if claim.deadline <= until:
                    raise PhaseTimeoutError("request", claim.task.limits.timeouts.request) from None
                message = f"No prefill pod became ready for this model within {hold:g} s; try again later."
                raise NoPrefillEndpointError(message) from None

    async def _wait(self, claim: Claim) -> Route:
        while True:
            change = asyncio.get_running_loop().create_future()
            self._changes.add(change)
            try:
                await change
            finally:
                self._changes.discard(change)
            route = self.ready(claim.task.name, claim.facts.request_id)
            if route is not None:
                return route

    def ready(self, name: str, request_id: str) -> Route | None:
        """Where a request of a task goes at once, if it can; :class:`UnknownModelError` when the task has gone."""
        task = self._fleet.snapshot.tasks.get(name)
        if task is None:
            raise UnknownModelError(name)
        route = policy.choose(task.routes, request_id)
        return route if route is not None and route.prefill else None

    def _fleet_changed(self, _: Snapshot) -> None:
        for change in self._changes:
            if not change.done():
                change.set_result(None)
