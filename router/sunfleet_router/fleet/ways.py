"""What every request of one route asks of the snapshot, looked up once for each snapshot. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from sunfleet_router.fleet.snapshot import Endpoint, Route, Snapshot


@dataclass(frozen=True, slots=True)
class Way:
    """The pods for a route's requests. ``fingerprints``: of KV that its prefill pods make; ``sizes``: of a block and of
    the longest request, of each kind of decode pod that has told them.
    """

    prefill: tuple[Endpoint, ...]
    fingerprints: frozenset[str]
    sizes: frozenset[tuple[int, int]]

    def room(self, tokens: int) -> int:
        """KV tokens that a request of so many may take on a decode pod, as :meth:`Endpoint.room`: at the most."""
        most = 0
        for block, longest in self.sizes:
            held = tokens if tokens < longest else longest  # noqa: FURB136 calls, in every request
            room = -(-held // block) * block
            most = room if room > most else most  # noqa: FURB136
        return most if self.sizes else tokens


class Ways:
    """Those of the snapshot that was asked about last."""

    def __init__(self) -> None:
        self._snapshot = Snapshot()
        self._known: dict[tuple[str, str, str, str], Way] = {}

    def of(self, snapshot: Snapshot, task: str, route: Route) -> Way:
        """The way of a request that was given this route, which may have been another one when it came: its pods are
        those of now, and none if the task has the revision no more.
        """
        if snapshot is not self._snapshot:
            self._snapshot, self._known = snapshot, {}
        name = task, route.revision, route.salt, route.decoder
        way = self._known.get(name)
        if way is None:
            way = self._known[name] = _way(snapshot, task, route)
        return way


def _way(snapshot: Snapshot, task: str, route: Route) -> Way:
    known = snapshot.tasks.get(task)
    same = [one for one in (known.routes if known else ()) if (one.revision, one.salt) == (route.revision, route.salt)]
    prefill = same[0].prefill if same else ()
    told = [pod.info for pod in snapshot.pool(route.decoder) if pod.info]
    return Way(
        prefill,
        frozenset(pod.fingerprint for pod in prefill),
        frozenset((info.block_size, info.max_model_len) for info in told),
    )
