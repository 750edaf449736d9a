"""The current snapshot: discovery replaces it, everyone else reads it, and those who wait for room are told of a
change.
"""

from __future__ import annotations

from collections.abc import Callable

from sunfleet_router.fleet.snapshot import Snapshot


class Fleet:
    """``synced`` is False until discovery has seen everything once; until then nobody knows what is unknown."""

    def __init__(self) -> None:
        self.snapshot = Snapshot()
        self.synced = False
        self._listeners: list[Callable[[Snapshot], None]] = []

    def on_change(self, listener: Callable[[Snapshot], None]) -> None:
        self._listeners.append(listener)

    def replace(self, snapshot: Snapshot) -> None:
        self.snapshot = snapshot
        self.synced = True
        for listener in self._listeners:
            listener(snapshot)
