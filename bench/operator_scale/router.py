"""Plays a router: acts on every ``status.traffic`` as soon as a watch tells of it, and says so to the operator."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from http import HTTPStatus

import aiohttp
from aiohttp import web

from operator_scale.api import Api, Document
from operator_scale.fleet import NAMESPACE
from sunfleet_api import names
from sunfleet_api.routes import PATH, Routes
from sunfleet_apitest.identity import SYSTEM
from sunfleet_apitest.paths import collection
from sunfleet_operator.heard import digest_of
from sunfleet_operator.references import model_name
from sunfleet_operator.types import full_name, status_of

_HOST = "127.0.0.1"
_PODS = f"/api/v1/namespaces/{SYSTEM}/pods"
_NAME = "router"
_ACCOUNT_SECONDS = 60


class _Book:
    """What it has taken over."""

    def __init__(self, api: Api) -> None:
        self._api = api
        self._tasks, self._decoders = dict[str, str](), set[str]()

    async def models(self) -> None:
        """Until cancelled."""
        async for live in _follow(self._api, "SunModel"):
            self._tasks[model_name(live)] = digest_of(status_of(live).get("traffic") or ())

    async def decoders(self) -> None:
        async for live in _follow(self._api, "SharedDecoder"):
            self._decoders.add(full_name(live))

    async def told(self, _: web.Request) -> web.Response:
        said = Routes(tasks=self._tasks, decoders=frozenset(self._decoders))
        return web.Response(text=said.model_dump_json(), content_type="application/json")


async def _follow(api: Api, kind: str) -> AsyncIterator[Document]:
    """As soon as the kind is served: its CRD was made a moment ago, and its storage may still begin."""
    while True:
        try:
            async for live in api.watch(collection(kind, NAMESPACE)):
                yield live
        except aiohttp.ClientResponseError:
            await asyncio.sleep(0.2)


@asynccontextmanager
async def router(api: Api) -> AsyncIterator[None]:
    """It runs during the block, with a pod that says where; the pod is Ready where `node` runs."""
    book, app = _Book(api), web.Application()
    app.router.add_get(PATH, book.told)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    await web.TCPSite(runner, _HOST, 0).start()
    watching = [asyncio.create_task(each) for each in (book.models(), book.decoders())]
    try:
        await _register(api, runner.addresses[0][1])
        yield
    finally:
        for task in watching:
            task.cancel()
        await asyncio.gather(*watching, return_exceptions=True)
        await runner.cleanup()


async def _create(api: Api, pod: Document) -> None:
    """As soon as the namespace has its service account, which every pod needs."""
    async with asyncio.timeout(_ACCOUNT_SECONDS):
        while True:
            try:
                await api.create(_PODS, pod)
            except aiohttp.ClientResponseError as refused:
                if refused.status != HTTPStatus.FORBIDDEN:
                    raise
                await asyncio.sleep(0.2)
            else:
                return


async def _register(api: Api, port: int) -> None:
    labels = {names.LABEL_COMPONENT: "router", names.LABEL_PART_OF: "sunfleet"}
    container = {"name": "router", "image": "router", "ports": [{"name": "admin", "containerPort": port}]}
    spec = {"containers": [container], "automountServiceAccountToken": False}
    await _create(api, {"metadata": {"name": _NAME, "labels": labels}, "spec": spec})
    await api.merge(f"{_PODS}/{_NAME}/status", {"status": {"podIP": _HOST, "podIPs": [{"ip": _HOST}]}})
