"""Makes the engine hold the adapters that the operator wants, one step at a time. No engine and no network here."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Protocol

from sunfleet_api.pooling import Held, HeldAdapter, State, Wanted, WantedAdapter
from sunfleet_worker.adapters.depot import Depot
from sunfleet_worker.adapters.shelf import Shelf

logger = logging.getLogger(f"vllm.{__name__}")  # the engine configures the loggers below this name

_POLL_SECONDS: Final = 0.5  # while something is on its way, or in use that shall go
_RETRY_SECONDS: Final = 30.0  # before the engine is asked again to load what it refused
ADAPTER_FAILED: Final = "AdapterFailed"


class Engine(Protocol):
    """Loading and dropping; :class:`LoadError` says why an adapter cannot be loaded."""

    async def load(self, name: str, path: Path) -> None: ...
    async def drop(self, name: str) -> None: ...


class LoadError(Exception):
    """The engine cannot load an adapter; its words."""


@dataclass
class _Entry:
    wanted: WantedAdapter
    state: State = "Waiting"
    reason: str = ""
    message: str = ""
    again: float = 0.0  # when a refused one is tried again

    def say(self, state: State, reason: str = "", message: str = "") -> None:
        self.state, self.reason, self.message = state, reason, message


class Keeper:
    """One per pod. ``want`` may be called at any time; ``run`` does the work."""

    def __init__(
        self, engine: Engine, depot: Depot, shelf: Shelf, *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._engine, self._depot, self._shelf, self._clock = engine, depot, shelf, clock
        self._entries: dict[str, _Entry] = {}  # by name
        self._leaving: dict[str, WantedAdapter] = {}
        self._news = asyncio.Event()

    def want(self, wanted: Wanted) -> None:
        """From now on exactly these. What is not among them takes no further request at once."""
        given = {adapter.name: adapter for adapter in wanted.adapters}
        for name, entry in list(self._entries.items()):
            if name not in given or given[name].digest != entry.wanted.digest:
                del self._entries[name]
                self._shelf.take(name)
                self._leaving.setdefault(name, entry.wanted)  # while one leaves, its successor was not begun
        for name, adapter in given.items():
            self._entries.setdefault(name, _Entry(adapter))
        self._news.set()

    def held(self) -> Held:
        """How far it is with each."""
        return Held(
            adapters=tuple(
                HeldAdapter(
                    name=name, digest=entry.wanted.digest, state=entry.state, reason=entry.reason, message=entry.message
                )
                for name, entry in sorted(self._entries.items())
            )
        )

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            self._news.clear()
            await self.step()
            busy = self._leaving or any(entry.state != "Loaded" for entry in self._entries.values())
            try:
                async with asyncio.timeout(_POLL_SECONDS if busy else None):
                    await self._news.wait()
            except TimeoutError:
                continue

    async def step(self) -> None:
        """Drop what nobody uses any more, load what is there, ask for what is not."""
        for name in [name for name in self._leaving if not self._shelf.in_use(name)]:
            await self._drop(name)
        for name, entry in list(self._entries.items()):
            if entry.state != "Loaded" and name not in self._leaving and self._clock() >= entry.again:
                await self._tried(name, entry)

    async def _drop(self, name: str) -> None:
        gone = self._leaving[name]
        try:
            await self._engine.drop(name)
        except Exception:  # whatever the engine raises: the others are not held up, and it is tried again
            logger.exception("Adapter %s cannot be dropped yet.", name)
            return
        del self._leaving[name]
        kept: Sequence[WantedAdapter] = [entry.wanted for entry in self._entries.values()]
        if all(other.digest != gone.digest for other in (*kept, *self._leaving.values())):
            self._depot.release(gone.digest)
        logger.info("Adapter %s is no longer held.", name)

    async def _tried(self, name: str, entry: _Entry) -> None:
        try:
            await self._bring(name, entry)
        except LoadError as error:
            logger.warning("Adapter %s cannot be loaded: %s", name, error)
            self._put_off(entry, str(error))
        except Exception as error:  # of the engine or the disk: it is told, and the other adapters go on
            logger.exception("Adapter %s cannot be loaded.", name)
            self._put_off(entry, f"{type(error).__name__}: {error}")

    def _put_off(self, entry: _Entry, why: str) -> None:
        entry.say("Failed", ADAPTER_FAILED, why)
        entry.again = self._clock() + _RETRY_SECONDS

    async def _bring(self, name: str, entry: _Entry) -> None:
        wanted = entry.wanted
        path = Path(wanted.path) if wanted.path else self._depot.find(wanted.digest)
        if path is None:
            self._depot.ask(wanted)
            failure = self._depot.failure(wanted.digest)
            if failure is None:
                entry.say("Downloading")
            else:
                entry.say("Failed", failure.reason, failure.message)
            return
        await self._engine.load(name, path)
        if self._entries.get(name) is not entry:  # it was taken back meanwhile
            self._leaving.setdefault(name, wanted)
            return
        entry.say("Loaded")
        self._shelf.put(name)
        logger.info("Adapter %s is loaded.", name)
