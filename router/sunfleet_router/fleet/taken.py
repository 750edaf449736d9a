"""Which routes this router acts on, told in the operator's words. Pure."""

from __future__ import annotations

from collections.abc import Iterable

from sunfleet_api.routes import Routes, Taken, digest
from sunfleet_api.wire import ENGINE_MODEL
from sunfleet_router.fleet.snapshot import Route, Snapshot


def routes_of(snapshot: Snapshot, namespaces: Iterable[str]) -> Routes:
    """``namespaces``: those that are watched; none: all."""
    return Routes(
        namespaces=tuple(namespaces),
        tasks={name: digest(map(_taken, task.routes)) for name, task in snapshot.tasks.items()},
        decoders=frozenset(snapshot.pools),
    )


def _taken(route: Route) -> Taken:
    adapter = "" if route.module == ENGINE_MODEL else route.module
    return Taken(route.revision, route.weight, route.decoder, route.salt, adapter)
