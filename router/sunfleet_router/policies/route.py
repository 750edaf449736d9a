"""Which revision of a task: by the weights of ``status.traffic``, the same for every attempt of one request."""

from __future__ import annotations

from collections.abc import Sequence
from zlib import crc32

from sunfleet_router.fleet.snapshot import Route


def choose(routes: Sequence[Route], request_id: str) -> Route | None:
    """``None`` when no route has weight. Sticky per request id: a retry does not change the revision.

    A revision without a ready pod (a canary's only one has just died) leaves its requests to those that have some,
    until the operator has moved its weight; but never to one with less weight, which is yet to be trusted.
    """
    if len(routes) == 1 and routes[0].weight > 0:  # as mostly
        return routes[0]
    chosen = _by_weight(routes, request_id)
    if chosen is None or chosen.prefill:
        return chosen
    trusted = [route for route in routes if route.prefill and route.weight >= chosen.weight]
    return _by_weight(trusted, request_id) or chosen


def _by_weight(routes: Sequence[Route], request_id: str) -> Route | None:
    total = sum(route.weight for route in routes)
    if total <= 0:
        return None
    point = crc32(request_id.encode()) % total
    for route in routes:
        if point < route.weight:
            return route
        point -= route.weight
    raise AssertionError("the weights add up to more than their sum")  # pragma: no cover
