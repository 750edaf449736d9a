"""The objects of the bench and how long they take: five decoders, and SunModels spread over them."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from operator_scale.api import Api, Document
from sunfleet_apitest.paths import collection
from sunfleet_optest.objects import decoder, model

NAMESPACE = "scale"
DECODERS = 5
_CREATES_AT_ONCE = 32
_DEPLOYMENTS = f"/apis/apps/v1/namespaces/{NAMESPACE}/deployments"


def decoders() -> list[Document]:
    return [decoder(f"base-{number}", NAMESPACE) for number in range(DECODERS)]


def models(first: int, last: int) -> list[Document]:
    """SunModels ``first`` up to ``last``, that one left out."""
    return [
        model(
            f"task-{number:03}", NAMESPACE, uri=f"pvc://models/adapters/task-{number:03}",
            decoderRef={"name": f"base-{number % DECODERS}"},
        )
        for number in range(first, last)
    ]  # fmt: skip


async def create(api: Api, documents: list[Document]) -> None:
    """All of them, many at a time."""
    slots = asyncio.Semaphore(_CREATES_AT_ONCE)

    async def one(document: Document) -> None:
        async with slots:
            await api.create(collection(document["kind"], NAMESPACE), document)

    await asyncio.gather(*map(one, documents))


async def all_ready(api: Api, count: int, told: Callable[[int], None]) -> float:
    """Wait until ``count`` SunModels are Ready for their present spec; returns the monotonic time of the last one."""
    ready = set[str]()
    async for live in api.watch(collection("SunModel", NAMESPACE)):
        name = live["metadata"]["name"]
        before = len(ready)
        ready.add(name) if is_ready(live) else ready.discard(name)
        if len(ready) != before:
            told(len(ready))
        if len(ready) >= count:
            break
    return time.monotonic()


def is_ready(live: Document) -> bool:
    """Ready, and about the present spec. Pure."""
    status = live.get("status") or {}
    conditions = {each["type"]: each["status"] for each in status.get("conditions") or ()}
    return status.get("observedGeneration") == live["metadata"]["generation"] and conditions.get("Ready") == "True"


class Replicas:
    """Replicas that each SunModel's Deployment asks for, as they change."""

    def __init__(self) -> None:
        self._wanted = dict[str, int]()
        self._changed = asyncio.Condition()

    async def follow(self, api: Api) -> None:
        """Until it is cancelled."""
        async for live in api.watch(_DEPLOYMENTS):
            owner = live["metadata"]["ownerReferences"][0]["name"]
            async with self._changed:
                self._wanted[owner] = live["spec"]["replicas"]
                self._changed.notify_all()

    async def until(self, owner: str, replicas: int) -> None:
        async with self._changed:
            await self._changed.wait_for(lambda: self._wanted.get(owner) == replicas)


@asynccontextmanager
async def following(api: Api) -> AsyncIterator[Replicas]:
    """A :class:`Replicas` that is fed during the block."""
    replicas = Replicas()
    feeding = asyncio.create_task(replicas.follow(api))
    try:
        yield replicas
    finally:
        feeding.cancel()
        await asyncio.gather(feeding, return_exceptions=True)


async def patch_latencies(api: Api, count: int, samples: int) -> list[float]:
    """Seconds from a patch of one SunModel's replicas to the change of its Deployment, one after the other, sorted."""
    taken = list[float]()
    async with following(api) as replicas:
        for number in range(samples):
            name = f"task-{number * count // samples:03}"
            await replicas.until(name, 1)
            started = time.monotonic()
            await api.merge(f"{collection('SunModel', NAMESPACE)}/{name}", {"spec": {"replicas": 2}})
            await replicas.until(name, 2)
            taken.append(time.monotonic() - started)
            await api.merge(f"{collection('SunModel', NAMESPACE)}/{name}", {"spec": {"replicas": 1}})
    return sorted(taken)
