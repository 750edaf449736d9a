"""Create, change, delete, again and again: the operator forgets what is gone.

``PYTHONPATH=bench:crds:operator:e2e/cluster:tests/support python -m operator_scale.soak [--minutes 10]``

Each round has objects of names that never were before. Memory and the number of Python objects may not be more after
the last round than after the second, but for a small tolerance; a leak of one dictionary an object is many times that.
"""

from __future__ import annotations

import argparse
import asyncio
import re
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from rich.console import Console
from rich.table import Table

from operator_scale.api import Api, Document
from operator_scale.counted import METRIC
from operator_scale.fleet import NAMESPACE, create, is_ready
from operator_scale.world import World, world
from processes import rss_megabytes
from sunfleet_apitest.paths import collection
from sunfleet_optest.objects import decoder, model

MODELS = 50
_LEAST_ROUNDS = 4
_STEP_SECONDS = 300
_RESYNC_SECONDS = 20.0  # so that its lists come and go as well
_SETTINGS = {"RECALL_SECONDS": "5"}  # what is remembered has gone by the end of a round
_REST_SECONDS = 12.0
# Growth from the second round to the last that is no leak: the allocator's arenas, caches that fill once.
RSS_MEGABYTES = 8.0
OBJECTS = 6 * MODELS
_SAMPLE = re.compile(rf'^{METRIC}\{{type="(.*)"\}} (\S+)$', re.MULTILINE)


@dataclass(frozen=True)
class Sample:
    """After one round, when everything is gone again."""

    rss: float  # MB
    objects: Counter[str] = field(default_factory=Counter)  # by type


def verdict(samples: Sequence[Sample]) -> list[str]:
    """What grew from the second round to the last; empty when nothing did. Pure."""
    if len(samples) < _LEAST_ROUNDS:
        return [f"only {len(samples)} rounds fit into the time, and {_LEAST_ROUNDS} are needed to tell: more minutes"]
    second, last = samples[1], samples[-1]
    faults = []
    if last.rss - second.rss > RSS_MEGABYTES:
        faults.append(f"RSS grew from {second.rss:.1f} to {last.rss:.1f} MB")
    grown = last.objects.total() - second.objects.total()
    if grown > OBJECTS:
        most = ", ".join(f"{name} +{more}" for name, more in (last.objects - second.objects).most_common(8))
        faults.append(f"{grown} more Python objects: {most}")
    return faults


async def soak(folder: Path, minutes: float, console: Console) -> list[Sample]:
    """Rounds for so long, each whole."""
    samples: list[Sample] = []
    deadline = time.monotonic() + 60 * minutes
    async with world(folder, _RESYNC_SECONDS, module="operator_scale.counted", more=_SETTINGS) as here:
        while len(samples) < _LEAST_ROUNDS or time.monotonic() < deadline:
            await _round(here.api, len(samples))
            await asyncio.sleep(_REST_SECONDS)
            samples.append(await asyncio.to_thread(_sample, here))
            console.print(f"round {len(samples)}: {samples[-1].rss:.1f} MB, {samples[-1].objects.total()} objects")
    return samples


async def _round(api: Api, number: int) -> None:
    """A fleet comes up, all of its tasks get other weights and another count, and it goes again."""
    base, names = f"base-{number}", [f"task-{number}-{each}" for each in range(MODELS)]
    await create(api, [decoder(base, NAMESPACE)])
    await create(api, [_task(name, base) for name in names])
    await _until(api, "SunModel", lambda found: len(found) == MODELS and all(map(is_ready, found)))
    for name in names:
        spec = {"replicas": 2, "prefill": {"adapter": {"uri": f"pvc://models/adapters/{name}-new"}}}
        await api.merge(f"{collection('SunModel', NAMESPACE)}/{name}", {"spec": spec})
    await _until(api, "SunModel", lambda found: all(map(is_ready, found)) and all(map(_moved, found)))
    for kind in ("SunModel", "SharedDecoder"):
        await api.clear(collection(kind, NAMESPACE))
        await _until(api, kind, lambda found: not found)


def _task(name: str, base: str) -> Document:
    return model(name, NAMESPACE, uri=f"pvc://models/adapters/{name}", decoderRef={"name": base})


def _moved(live: Document) -> bool:
    """Its second revision alone serves."""
    uri = str(live["status"].get("model", {}).get("resolvedUri", ""))
    return uri.endswith("-new") and len(live["status"].get("traffic") or ()) == 1


async def _until(api: Api, kind: str, holds: Callable[[list[Document]], bool]) -> None:
    async with asyncio.timeout(_STEP_SECONDS):
        while not holds(await api.list(collection(kind, NAMESPACE))):  # noqa: ASYNC110 - of another process
            await asyncio.sleep(1)


def _sample(here: World) -> Sample:
    found = Counter({name: int(float(count)) for name, count in _SAMPLE.findall(here.operator.metrics())})
    return Sample(rss_megabytes(here.pid), found)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m operator_scale.soak", description=__doc__)
    parser.add_argument("--minutes", type=float, default=10, help="at least so long (default: %(default)s)")
    options, console = parser.parse_args(), Console()
    with tempfile.TemporaryDirectory(prefix="operator-soak-") as root:
        samples = asyncio.run(soak(Path(root) / "soak", options.minutes, console))
    console.print(_table(samples))
    faults = verdict(samples)
    for fault in faults:
        console.print(f"not flat: {fault}")
    return 1 if faults else 0


def _table(samples: Sequence[Sample]) -> Table:
    shown = Table("round", "RSS, MB", "Python objects")
    for number, sample in enumerate(samples, 1):
        shown.add_row(str(number), f"{sample.rss:.1f}", str(sample.objects.total()))
    return shown


if __name__ == "__main__":
    sys.exit(main())
