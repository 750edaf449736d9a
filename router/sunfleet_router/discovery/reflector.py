"""Keeps a copy of one kind of objects: list, watch, and list again when the watch cannot go on.

A watch may end in many ways, and only two of them matter: the version to go on from is too old (410: list again), or
anything else (go on from the last version). A watch that says nothing, not even a bookmark, for too long is taken for
dead, and so is one that never begins to answer: load balancers drop connections without a word.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager, AsyncExitStack, aclosing
from typing import Any, Final, Generic, Protocol, TypeVar

import orjson

logger = logging.getLogger(__name__)

T = TypeVar("T")

_PAGE: Final = 500  # objects per list request
_FIRST_PAUSE: Final = 0.5  # seconds; doubles up to the longest
_LONGEST_PAUSE: Final = 15.0
_SHORTEST_WATCH: Final = 1.0  # seconds: one that ends sooner and said nothing has failed


class GoneError(Exception):
    """The API server no longer knows the version we stand at (410)."""


class ApiFailureError(Exception):
    """The API server refused, or its answer makes no sense; the text says why."""


class Source(Protocol):
    """The API of one kind: two requests. Both raise :class:`GoneError` on a 410, :class:`ApiFailureError` on other
    refusals.
    """

    name: str

    async def page(self, limit: int, token: str | None) -> Mapping[str, Any]:
        """One page of a list, decoded."""

    def watch(self, version: str) -> AbstractAsyncContextManager[AsyncIterator[bytes]]:
        """A watch with bookmarks from ``version`` on; yields bytes as they come and ends when the server ends it."""


class Reflector(Generic[T]):
    """``objects`` holds what ``keep`` makes of every object, by uid; ``keep`` returns ``None`` for ones to leave out.

    ``silence``: seconds without a byte, or without an answer at all, after which a request is given up.
    """

    def __init__(
        self,
        source: Source,
        keep: Callable[[Mapping[str, Any]], T | None],
        changed: Callable[[], None],
        *,
        silence: float,
    ) -> None:
        self._source = source
        self._keep = keep
        self._changed = changed
        self._silence = silence
        self.objects: dict[str, T] = {}
        self.synced = False

    async def run(self) -> None:
        """Until cancelled. Only what was applied ends a series of failures: their pauses grow."""
        pause = _FIRST_PAUSE
        version: str | None = None
        loop = asyncio.get_running_loop()
        while True:
            began, applied = loop.time(), False
            try:
                if version is None:
                    version = await self._list()
                async for reached in self._follow(version):
                    version, pause, applied = reached, _FIRST_PAUSE, True
                if applied or loop.time() - began >= _SHORTEST_WATCH:
                    continue  # the server's time limit
                problem = "the watch ended as soon as it began"
            except GoneError:
                version, problem = None, "the watch is too old, listing"
            except TimeoutError:
                # An idle cluster may send nothing at all; at once again, since events of a pause would come late.
                logger.info("%s: silent for %g s, watching anew", self._source.name, self._silence)
                continue
            except (ApiFailureError, OSError) as error:
                problem = str(error)
            logger.warning("%s: %s; again in about %.1f s", self._source.name, problem, pause)
            await asyncio.sleep(pause * random.uniform(0.5, 1.5))  # noqa: S311 jitter
            pause = min(pause * 2, _LONGEST_PAUSE)

    async def _list(self) -> str:
        objects: dict[str, T] = {}
        token: str | None = None
        while True:
            async with asyncio.timeout(self._silence):
                page = await self._source.page(_PAGE, token)
            for document in page.get("items") or ():
                self._put(objects, document)
            metadata = page.get("metadata") or {}
            token = metadata.get("continue")
            if not token:
                break
        self.objects, self.synced = objects, True
        self._changed()
        return str(metadata.get("resourceVersion", ""))

    async def _follow(self, version: str) -> AsyncIterator[str]:
        """Apply events; yields the version reached after each. Ends when the server ends the watch."""
        async with AsyncExitStack() as stack:
            async with asyncio.timeout(self._silence):
                chunks = await stack.enter_async_context(self._source.watch(version))
            lines = await stack.enter_async_context(aclosing(_lines(chunks, self._silence)))
            async for line in lines:
                version = self._apply(line) or version
                yield version

    def _apply(self, line: bytes) -> str | None:
        try:
            event = orjson.loads(line)
            kind, document = event["type"], event["object"]
        except (orjson.JSONDecodeError, KeyError, TypeError) as error:
            raise ApiFailureError(f"a watch event cannot be read: {error}") from error
        if kind == "ERROR":
            if document.get("code") == 410:
                raise GoneError
            raise ApiFailureError(f"watch error: {document.get('message')}")
        if kind == "DELETED":
            self.objects.pop(document["metadata"]["uid"], None)
            self._changed()
        elif kind in ("ADDED", "MODIFIED"):
            self._put(self.objects, document)
            self._changed()
        version = document["metadata"].get("resourceVersion")
        return str(version) if version else None

    def _put(self, objects: dict[str, T], document: Mapping[str, Any]) -> None:
        uid = document["metadata"]["uid"]
        kept = self._keep(document)
        if kept is None:
            objects.pop(uid, None)
        else:
            objects[uid] = kept


async def _lines(chunks: AsyncIterator[bytes], silence: float) -> AsyncGenerator[bytes, None]:
    """Whole lines; raises :class:`TimeoutError` after ``silence`` seconds without a byte."""
    begun = b""
    ahead: Callable[[], Awaitable[bytes]] = aiter(chunks).__anext__
    while True:
        try:
            async with asyncio.timeout(silence):
                chunk = await ahead()
        except StopAsyncIteration:
            return
        *lines, begun = (begun + chunk).split(b"\n")
        for line in lines:
            if line:
                yield line
