"""The admin port of a PrefillPool's pods, the one thing of engines that the operator talks to, and what it learns.

Nothing here raises for a pod that does not answer: it may be starting, or gone, and is asked again.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Final, Protocol

import aiohttp
from pydantic import ValidationError

from sunfleet_api import names
from sunfleet_api.pooling import PATH, Held, Wanted, engine_start
from sunfleet_operator.observed import Fault
from sunfleet_operator.types import Json, Key, is_terminating, name_of, runs_engine, status_of

logger = logging.getLogger(__name__)
_SECONDS: Final = 3.0


class Engines(Protocol):
    """What a reconcile needs of the pods of pools."""

    async def ask(self, pods: Sequence[Json]) -> Mapping[str, Held | None]: ...
    async def load(self, address: str, wanted: Wanted) -> None: ...


class AdminPorts:
    """:class:`Engines` over HTTP. One session, whose connections are not kept: each pod is asked seldom."""

    def __init__(self, port: int = names.ADMIN_PORT) -> None:
        self._port = port
        self._session: aiohttp.ClientSession | None = None

    async def close(self) -> None:
        if self._session is not None:
            await self._session.close()

    async def ask(self, pods: Sequence[Json]) -> Mapping[str, Held | None]:
        """By pod name, of pods whose engine runs; ``None`` of one that does not answer."""
        running = [pod for pod in pods if _runs(pod)]
        answers = await asyncio.gather(*(self._call("GET", str(status_of(pod)["podIP"])) for pod in running))
        return {name_of(pod): answer for pod, answer in zip(running, answers, strict=True)}

    async def load(self, address: str, wanted: Wanted) -> None:
        """Tell a pod what it shall hold."""
        await self._call("PUT", address, wanted.model_dump_json())

    async def _call(self, method: str, address: str, body: str | None = None) -> Held | None:
        host = f"[{address}]" if ":" in address else address
        url = f"http://{host}:{self._port}{PATH}"
        try:
            async with self._sessions().request(method, url, data=body) as answer:
                if answer.status != 200:
                    logger.warning("%s %s: %d %s", method, url, answer.status, (await answer.text())[:200])
                    return None
                return Held.model_validate_json(await answer.read())
        except (aiohttp.ClientError, TimeoutError, OSError, ValidationError) as error:
            logger.debug("%s %s: %s", method, url, error)
            return None

    def _sessions(self) -> aiohttp.ClientSession:
        """Made within the loop that uses it."""
        if self._session is None:
            connector = aiohttp.TCPConnector(force_close=True, limit=64)
            timeout = aiohttp.ClientTimeout(total=_SECONDS)
            self._session = aiohttp.ClientSession(connector=connector, timeout=timeout)
        return self._session


class NoEngines:
    """:class:`Engines` where there are none."""

    async def ask(self, pods: Sequence[Json]) -> Mapping[str, Held | None]:
        return dict.fromkeys((name_of(pod) for pod in pods if _runs(pod)), None)

    async def load(self, address: str, wanted: Wanted) -> None:
        """Nobody hears it."""


def _runs(pod: Json) -> bool:
    status = status_of(pod)
    return runs_engine(pod) and not is_terminating(pod) and bool(status.get("podIP") and engine_start(status))


class Faults:
    """Why adapters are loaded nowhere, by SunModel and name: the pool's reconcile learns it, the task's tells it.

    In memory only: after a restart the pool's first reconcile finds it out again. ``changed`` queues a task.
    """

    def __init__(self, changed: Callable[[Key], None] = lambda _: None) -> None:
        self._changed = changed
        self._of_pool: dict[Key, Mapping[Key, Mapping[str, Fault]]] = {}

    def note(self, pool: Key, faults: Mapping[Key, Mapping[str, Fault]]) -> None:
        """What holds of a pool's tasks now."""
        before = self._of_pool.pop(pool, {})
        if faults:
            self._of_pool[pool] = faults
        for task in before.keys() | faults.keys():
            if before.get(task) != faults.get(task):
                self._changed(task)

    def find(self, pool: Key | None, task: Key) -> Mapping[str, Fault]:
        """By adapter."""
        return self._of_pool.get(pool, {}).get(task, {}) if pool else {}
