"""Asks routers which routes they act on, while there is something that they may not have taken over yet.

A router is Ready only once it has read everything, and what it has read it keeps: so after a look at all of them
nothing is asked until a status publishes something else, but who is there, and whom a new router serves. Only the
leading process asks.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Protocol

import aiohttp
from pydantic import ValidationError

from sunfleet_api.conditions import ConditionType
from sunfleet_api.routes import PATH, Routes
from sunfleet_operator.cluster import ClusterError
from sunfleet_operator.heard import Answer, Heard, Lookup, said_of, wanted_of
from sunfleet_operator.observe import Reader
from sunfleet_operator.presence import Attended, Presence, State
from sunfleet_operator.types import DECODER, MODEL, Json, Key, is_terminating, name_of, ready_since, spec_of, status_of

logger = logging.getLogger(__name__)

# Seconds between two looks: while something waits, from the first to the longest; at rest.
_FIRST: Final = 0.3
_LONGEST: Final = 5.0
_REST: Final = 15.0
# Routers that have a working watch need a fraction of a second.
_LATE: Final = 10.0
_ANSWER_SECONDS: Final = 3.0


class Ports(Protocol):
    """The admin ports of router pods."""

    async def ask(self, pods: Sequence[Json]) -> Mapping[str, Answer]: ...
    async def close(self) -> None: ...


@dataclass
class _Pending:
    """An object whose published state some router did not have when it was last asked.

    ``since`` some router has not had what was wanted, be it this or what was wanted before it; ``late``: by name, who
    has not for too long, and whether it is because it does not answer.
    """

    live: Json
    wanted: str
    since: float
    late: tuple[tuple[str, bool], ...] = ()


@dataclass
class Routers:
    """What routers said last, and who waits for them. ``changed`` queues an object, ``everyone`` are all of them."""

    reader: Reader
    lookup: Lookup | None  # without it nobody is asked, and nothing is said
    ports: Ports
    changed: Callable[[Key], None]
    everyone: Callable[[], Iterable[Key]]
    clock: Callable[[], float] = time.monotonic
    _time: Attended = field(init=False)
    _there: Presence = field(init=False)
    _told: Mapping[str, State] = field(default_factory=dict)  # by namespace, what its objects were queued for
    _problem: str = ""
    _pending: dict[Key, _Pending] = field(default_factory=dict)
    _wake: asyncio.Event = field(default_factory=asyncio.Event)

    def __post_init__(self) -> None:
        self._time = Attended(self.clock)
        self._there = Presence(self._time.now)

    def heard(self, key: Key, live: Json) -> Heard | None:
        """For a reconcile: what routers say of an object. ``None`` where they are not asked, or cannot say it."""
        state = self._there.of(key.namespace)
        if self.lookup is None or state == "unjudged":
            return None
        waiting = self._pending.get(key)
        return Heard(
            self._said(key, live),
            asked=state != "away",
            problem=self._problem,
            elsewhere=self._there.elsewhere(key.namespace),
            late=waiting is not None and bool(waiting.late),
        )

    def published(self, key: Key, live: Json | None) -> None:
        """An object as its status is now: routers are asked until they have it. None: it is gone."""
        if self.lookup is None or key.kind not in {MODEL, DECODER}:
            return
        wanted = "" if live is None else wanted_of(key, live)
        if live is None or not wanted or _taken(self._said(key, live), wanted):
            self._pending.pop(key, None)
            return
        waiting = self._pending.setdefault(key, _Pending(live, "", self._time.now()))
        if waiting.wanted != wanted:
            self._wake.set()
        waiting.live, waiting.wanted = live, wanted

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
            self._time.looked(works=False)
            return
        self._time.looked(works=True)
        self._problem = f"{len(found)} pods in namespace {self.lookup.namespace} have the routers' labels"
        answers = await self._ask([pod for pod in found if ready_since(pod) is not None and not is_terminating(pod)])
        self._there.looked(answers, set(map(name_of, found)))
        self._settle()
        self._tell()

    async def _ask(self, ready: Sequence[Json]) -> Mapping[str, Answer]:
        """Nobody, at rest, but a new one: which namespaces it serves."""
        known, names = self._there.answers, list(map(name_of, ready))
        if ready and (self._pending or not known.keys() >= set(names)):
            return await self.ports.ask(ready)
        return {name: known[name] for name in names}

    def _settle(self) -> None:
        for key, waiting in list(self._pending.items()):
            said, late = self._said(key, waiting.live), waiting.late
            if not said:  # nobody to wait for; whoever comes has as long as anybody
                waiting.since, late = self._time.now(), ()
            elif _taken(said, waiting.wanted):
                del self._pending[key]
                if not _told_synced(waiting.live):
                    self.changed(key)
                continue
            elif self._time.now() - waiting.since > _LATE:
                late = tuple(sorted((name, one is None) for name, one in said.items() if one != waiting.wanted))
            if late != waiting.late:
                waiting.late = late
                self.changed(key)

    def _tell(self) -> None:
        """Queue the objects of each namespace of which something else is true now, and not only for a moment."""
        keys, before = list(self.everyone()), self._told
        found = {namespace: self._there.of(namespace) for namespace in {key.namespace for key in keys}}
        self._told = {
            namespace: before.get(namespace, "served") if state == "away" else state
            for namespace, state in found.items()
        }
        for key in keys:
            if self._told[key.namespace] != before.get(key.namespace, "served"):
                self.changed(key)

    def _said(self, key: Key, live: Json) -> Mapping[str, str | None]:
        """Of routers that serve its namespace."""
        serving = self._there.serving(key.namespace)
        return {name: None if answer is None else said_of(key, live, answer) for name, answer in serving}


def _taken(said: Mapping[str, str | None], wanted: str) -> bool:
    return bool(said) and all(one == wanted for one in said.values())


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
