"""What everything cost that happened between two moments: CPU time by program, and the API server's requests of all
clients, by verb and resource."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from operator_scale.world import World
from processes import cpu_seconds

_METRIC = "apiserver_request_duration_seconds"
_LINE = re.compile(rf"^{_METRIC}_(sum|count)\{{(.*)\}} (\S+)$", re.MULTILINE)
_LABEL = re.compile(r'(\w+)="([^"]*)"')
Amounts = dict[str, float]
_LASTING = frozenset({"WATCH", "CONNECT"})


@dataclass(frozen=True)
class Spent:
    """``cpu``: seconds by program. ``requests`` and ``seconds``: by "VERB resource"; seconds are the API server's own
    clock, so they also grow while a request waits for a core."""

    cpu: Amounts = field(default_factory=dict)
    requests: Amounts = field(default_factory=dict)
    seconds: Amounts = field(default_factory=dict)

    def since(self, before: Spent) -> Spent:
        return Spent(
            _less(self.cpu, before.cpu), _less(self.requests, before.requests), _less(self.seconds, before.seconds)
        )


async def spent(here: World) -> Spent:
    """Until now."""
    found = Spent({name: cpu_seconds(pid) for name, pid in {**here.plane.pids, "operator": here.pid}.items()})
    for kind, what, value in _read(await here.api.text("/metrics")):
        counted = found.seconds if kind == "sum" else found.requests
        counted[what] = counted.get(what, 0.0) + value
    return found


def _read(text: str) -> Iterator[tuple[str, str, float]]:
    """Which of the two, "VERB resource", and the value, of every series but those of watches. Pure."""
    for kind, labels, value in _LINE.findall(text):
        given = dict(_LABEL.findall(labels))
        if given["verb"] not in _LASTING:
            resource = "/".join(part for part in (given["resource"], given["subresource"]) if part)
            yield kind, f"{given['verb']} {resource}", float(value)


def _less(after: Amounts, before: Amounts) -> Amounts:
    """The largest first; what did not change is left out."""
    found = {name: value - before.get(name, 0.0) for name, value in after.items()}
    return {name: found[name] for name in sorted(found, key=lambda name: -found[name]) if found[name] > 0}
