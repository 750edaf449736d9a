"""Asks routers which routes they act on, while there is something that they may not have taken over yet.

A router is Ready only once it has read everything, and what it has read it keeps: so after a look at all of them
nothing is asked until a status publishes something else, but whether there is any router at all. Only the leading
process asks.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Literal, Protocol

import aiohttp
from pydantic import ValidationError

from sunfleet_api.conditions import ConditionType
from sunfleet_api.routes import PATH, Routes
from sunfleet_operator.cluster import ClusterError
from sunfleet_operator.heard import Heard, Lookup, said_of, wanted_of
from sunfleet_operator.observe import Reader
from sunfleet_operator.types import DECODER, MODEL, Json, Key, is_terminating, name_of, ready_since, spec_of, status_of

logger = logging.getLogger(__name__)

# Seconds between two looks: while something waits, from the first to the longest; at rest.
_FIRST: Final = 0.3
_LONGEST: Final = 5.0
_REST: Final = 15.0
# Routers that have a working watch need a fraction of a second.
_LATE: Final = 10.0
# A single router that is replaced is away for a moment: no reason to tell everybody that there is none.
_AWAY: Final = 30.0
_ANSWER_SECONDS: Final = 3.0

# "old": a router of a version that does not say what it has; what it has is not judged.
Answer = Routes | Literal["old"] | None


class Ports(Protocol):
    """The admin ports of router pods."""

    async def ask(self, pods: Sequence[Json]) -> Mapping[str, Answer]: ...
    async def close(self) -> None: ...


@dataclass
class _Pending:
    """An object whose published state some router did not have when it was last asked."""

    live: Json
    wanted: str
    since: float
    late: bool = False
    behind: tuple[str, ...] = ()


@dataclass
class Routers:
    """What routers said last, and who waits for them. ``changed`` queues an object, ``everyone`` are all of them."""

    reader: Reader
    lookup: Lookup | None  # without it nobody is asked, and nothing is said
    ports: Ports
    changed: Callable[[Key], None]
    everyone: Callable[[], Iterable[Key]]
    clock: Callable[[], float] = time.monotonic
    _answers: dict[str, Answer] = field(default_factory=dict)  # by name, of the Ready routers
    _asked: bool = False
    _problem: str = ""
    _seen: float | None = None  # when there was a Ready router
    _none: bool = False  # everyone was told that there is none
    _pending: dict[Key, _Pending] = field(default_factory=dict)
    _wake: asyncio.Event = field(default_factory=asyncio.Event)

    def heard(self, key: Key, live: Json) -> Heard | None:
        """For a reconcile: what routers say of an object. ``None`` where they are not asked, or cannot say it."""
        if self.lookup is None or (self._answers and all(answer == "old" for answer in self._answers.values())):
            return None
        known = self._asked and (bool(self._answers) or self._nobody())
        waiting = self._pending.get(key)
        return Heard(
            dict(self._said(key, live)) if known else {},
            asked=known,
            problem=self._problem,
            elsewhere=sum(isinstance(a, Routes) and not a.serves(key.namespace) for a in self._answers.values()),
            late=waiting is not None and waiting.late,
        )

    def published(self, key: Key, live: Json | None) -> None:
        """An object as its status is now: routers are asked until they have it. None: it is gone."""
        if self.lookup is None or key.kind not in {MODEL, DECODER}:
            return
        if live is None:
            self._pending.pop(key, None)
            return
        wanted = wanted_of(key, live)
        waiting = self._pending.get(key)
        if not wanted or self._heard_taken(key, live, wanted):
            self._pending.pop(key, None)
        elif waiting is not None and waiting.wanted == wanted:
            waiting.live = live
        else:
            self._pending[key] = _Pending(live, wanted, self.clock())
            self._wake.set()

    async def run(self) -> None:
        """Until cancelled."""
        pause = _FIRST
        while True:
            self._wake.clear()
            try:
                await asyncio.wait_for(self._wake.wait(), pause if self._pending else _REST)
                pause = _FIRST
                await asyncio.sleep(_FIRST)  # whatever is published meanwhile is looked at along with it
            except TimeoutError:
                pause = min(_LONGEST, pause * 1.5)
            try:
                await self.look()
            except Exception:  # a fault in one look must not end all; what is known stays
                logger.exception("routers not asked this time")

    async def look(self) -> None:
        """Once: who is there, and, if anything waits, what they have. A fault leaves what is known as it is."""
        if self.lookup is None:
            return
        try:
            found = await self.reader.list("Pod", self.lookup.namespace, labels=self.lookup.labels)
        except ClusterError as error:
            logger.warning("cannot look for routers: %s", error)
            self._problem = f"the operator cannot look for routers: {error}"
            return
        ready = [pod for pod in found if ready_since(pod) is not None and not is_terminating(pod)]
        self._problem = f"{len(found)} pods in namespace {self.lookup.namespace} have the routers' labels"
        await self._ask(ready)
        self._settle()
        if self._none != self._nobody():
            self._none = not self._none
            for key in self.everyone():
                self.changed(key)

    async def _ask(self, ready: Sequence[Json]) -> None:
        names_ready = {name_of(pod) for pod in ready}
        if ready:
            self._seen = self.clock()
        first = not self._asked or not self._answers
        if ready and (self._pending or first):
            self._answers = dict(await self.ports.ask(ready))
        else:
            self._answers = {name: said for name, said in self._answers.items() if name in names_ready}
        self._asked = True

    def _nobody(self) -> bool:
        """No router, and not only for a moment."""
        return self._asked and not self._answers and (self._seen is None or self.clock() - self._seen > _AWAY)

    def _settle(self) -> None:
        for key, waiting in list(self._pending.items()):
            if self._heard_taken(key, waiting.live, waiting.wanted):
                del self._pending[key]
                if not _told_synced(waiting.live):
                    self.changed(key)
                continue
            behind = tuple(sorted(name for name, said in self._said(key, waiting.live) if said != waiting.wanted))
            late = bool(behind) and self.clock() - waiting.since > _LATE
            if late and (not waiting.late or behind != waiting.behind):
                waiting.late, waiting.behind = True, behind
                self.changed(key)

    def _heard_taken(self, key: Key, live: Json, wanted: str) -> bool:
        said = [said for _, said in self._said(key, live)]
        return bool(said) and all(one == wanted for one in said)

    def _said(self, key: Key, live: Json) -> Iterable[tuple[str, str | None]]:
        """Of routers that serve its namespace."""
        for name, answer in self._answers.items():
            if answer is None:
                yield name, None
            elif answer != "old" and answer.serves(key.namespace):
                yield name, said_of(key, live, answer)


def _told_synced(live: Json) -> bool:
    conditions: Sequence[Json] = status_of(live).get("conditions") or ()
    return any((c.get("type"), c.get("status")) == (str(ConditionType.ROUTER_SYNCED), "True") for c in conditions)


class RouterPorts:
    """:class:`Ports` over HTTP. Nothing raises for a router that does not answer."""

    def __init__(self) -> None:
        self._session: aiohttp.ClientSession | None = None

    async def close(self) -> None:
        if self._session is not None:
            await self._session.close()

    async def ask(self, pods: Sequence[Json]) -> Mapping[str, Answer]:
        """By pod name; ``None`` of one that does not answer."""
        answers = await asyncio.gather(*map(self._get, pods))
        return {name_of(pod): answer for pod, answer in zip(pods, answers, strict=True)}

    async def _get(self, pod: Json) -> Answer:
        address, port = str(status_of(pod).get("podIP") or ""), admin_port(pod)
        if port is None:
            return "old"
        url = f"http://{f'[{address}]' if ':' in address else address}:{port}{PATH}"
        try:
            async with self._sessions().get(url) as answer:
                if answer.status != 200:
                    logger.warning("%s: %d", url, answer.status)
                    return None
                return Routes.model_validate_json(await answer.read())
        except (aiohttp.ClientError, TimeoutError, OSError, ValidationError) as error:
            logger.debug("%s: %s", url, error or type(error).__name__)  # the conditions tell
            return None

    def _sessions(self) -> aiohttp.ClientSession:
        """Made within the loop that uses it."""
        if self._session is None:
            timeout = aiohttp.ClientTimeout(total=_ANSWER_SECONDS)
            self._session = aiohttp.ClientSession(connector=aiohttp.TCPConnector(force_close=True), timeout=timeout)
        return self._session


def admin_port(pod: Json) -> int | None:
    """Of its container port named ``admin``; ``None``: a router of a version that has none."""
    ports = (port for container in spec_of(pod).get("containers") or () for port in container.get("ports") or ())
    return next((int(port["containerPort"]) for port in ports if port.get("name") == "admin"), None)
