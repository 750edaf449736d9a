"""Routers as the operator sees them: pods with an admin port, which have taken over what a test says."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal

from sunfleet_api.routes import Routes
from sunfleet_operator.heard import Answer, Lookup, digest_of
from sunfleet_operator.references import model_name
from sunfleet_operator.routers import Routers
from sunfleet_operator.types import DECODER, MODEL, Json, Key, full_name, key_of, name_of, status_of
from sunfleet_optest.store import Document
from sunfleet_optest.world import World

SYSTEM = "sunfleet-system"
LABELS = {"app.kubernetes.io/component": "router"}
LATE = 11  # seconds: longer than routers ever need
AWAY = 31  # seconds: longer than one router takes to be replaced
MATHS = Key(MODEL, "team", "maths")


def condition(world: World, type_: str = "RouterSynced", kind: str = MODEL, name: str = "maths") -> tuple[str, str]:
    """Its status and reason; ("", "") when it is not there."""
    found: dict[str, str] = next((c for c in world.status(kind, name)["conditions"] if c["type"] == type_), {})
    return found.get("status", ""), found.get("reason", "")


def message(world: World, kind: str = MODEL, name: str = "maths") -> str:
    return str(next(c["message"] for c in world.status(kind, name)["conditions"] if c["type"] == "RouterSynced"))


class StandIns:
    """Ready router pods in a :class:`World`, and what the operator hears of them.

    A router that is ``prompt`` has taken over everything by the time it is asked; another what it had before.
    """

    def __init__(self, world: World) -> None:
        self.world = world
        self.now = 0.0
        self.asked = 0
        self.queued: list[Key] = []
        self.prompt: set[str] = set()
        self.has: dict[str, Answer] = {}
        self.book = self.restart()

    def restart(self) -> Routers:
        """The operator's memory of routers is that of a new process."""
        place = Lookup(SYSTEM, LABELS)
        self.book = Routers(self.world.store, place, self, self.queued.append, self._everyone, lambda: self.now)
        self.world.heard, self.world.published = self.book.heard, self.book.published
        return self.book

    def start(self, name: str, *, ready: bool = True, namespaces: Sequence[str] = ()) -> None:
        pod = {"kind": "Pod", "metadata": {"name": name, "namespace": SYSTEM, "labels": LABELS}, "spec": {}}
        self.world.store.put(pod)
        self._pod(name)["status"] = {"conditions": [{"type": "Ready", "status": "True" if ready else "False"}]}
        self.prompt.add(name)
        self.has[name] = Routes(namespaces=tuple(namespaces))

    def end(self, name: str) -> None:
        self.world.store.remove("Pod", SYSTEM, name)

    def halt(self, name: str, answer: Answer | Literal["as it is"] = "as it is") -> None:
        """From now on it says this; by default that it has what it has now."""
        self.prompt.discard(name)
        self.has[name] = self._takes(name) if answer == "as it is" else answer

    async def look(self, *, seconds: float = 1) -> None:
        """Time passes, the operator asks, and everything is reconciled until it rests."""
        self.now += seconds
        await self.book.look()
        await self.world.settle()

    # What the operator asks ------------------------------------------------------------------------------------------

    async def ask(self, pods: Sequence[Json]) -> Mapping[str, Answer]:
        self.asked += 1
        for name in self.prompt:
            self.has[name] = self._takes(name)
        return {name_of(pod): self.has[name_of(pod)] for pod in pods}

    async def close(self) -> None:
        """Nothing is open."""

    def _takes(self, name: str) -> Answer:
        had, store = self.has[name], self.world.store
        if not isinstance(had, Routes):
            return had
        tasks = {model_name(live): digest_of(status_of(live).get("traffic") or ()) for live in store.all(MODEL)}
        return Routes(
            namespaces=had.namespaces, tasks=tasks, decoders=frozenset(full_name(live) for live in store.all(DECODER))
        )

    def _pod(self, name: str) -> Document:
        return next(live for live in self.world.store.all("Pod") if live["metadata"]["name"] == name)

    def _everyone(self) -> list[Key]:
        return [key_of(kind, live) for kind in (MODEL, DECODER) for live in self.world.store.all(kind)]
