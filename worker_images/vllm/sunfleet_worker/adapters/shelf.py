"""Which adapters requests may name now, and which are in use. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

from sunfleet_api import wire
from sunfleet_worker.errors import ADAPTER_NOT_LOADED, ended_by_engine
from sunfleet_worker.frontend.standing import Standing


class Shelf:
    """An adapter is dropped only when no request uses it: the engine would look for its files once more."""

    def __init__(self, standing: Standing) -> None:
        self._standing = standing
        self._served: set[str] = set()
        self._users: Counter[str] = Counter()

    def put(self, name: str) -> None:
        """Requests may name it from now on."""
        self._served.add(name)

    def take(self, name: str) -> None:
        """No further request may name it."""
        self._served.discard(name)

    def in_use(self, name: str) -> bool:
        return self._users[name] > 0

    @contextmanager
    def using(self, name: str) -> Iterator[None]:
        """For as long as a request with this adapter runs.

        Raises:
            UnavailableError: it is not loaded here; another pod may have it. The base beneath the adapters is no task,
                so it answers nobody but the self-check.
        """
        proving = name == wire.ENGINE_BASE_MODEL and not self._standing.proven
        if name not in self._served and not proving:
            raise ended_by_engine(ADAPTER_NOT_LOADED)
        self._users[name] += 1
        try:
            yield
        finally:
            self._users[name] -= 1
            if not self._users[name]:
                del self._users[name]
