"""The admin port of a PrefillPool's pod: the operator says which adapters it wants, and hears how far the pod is.

A port of its own, so that a network policy can keep it for the operator: whoever reaches it decides what this pod
answers with.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from aiohttp import web
from pydantic import ValidationError

from sunfleet_api.pooling import PATH, Held, Wanted
from sunfleet_worker.adapters.keeper import Keeper

_MAX_BODY = 4 << 20  # bytes; a thousand adapters are 300 KB


def application(keeper: Keeper) -> web.Application:
    """``PUT`` and ``GET`` of :data:`~sunfleet_api.pooling.PATH`."""

    async def put(request: web.Request) -> web.Response:
        try:
            wanted = Wanted.model_validate_json(await request.read())
        except ValidationError as error:
            return web.json_response({"error": str(error)}, status=400)
        keeper.want(wanted)
        return _told(keeper.held())

    async def get(_: web.Request) -> web.Response:
        return _told(keeper.held())

    app = web.Application(client_max_size=_MAX_BODY)
    app.add_routes([web.put(PATH, put), web.get(PATH, get)])
    return app


def _told(held: Held) -> web.Response:
    return web.Response(text=held.model_dump_json(), content_type="application/json")


@asynccontextmanager
async def serving(keeper: Keeper, port: int) -> AsyncIterator[None]:
    """Listen for as long as the context is open."""
    runner = web.AppRunner(application(keeper), handle_signals=False, access_log=None)
    await runner.setup()
    try:
        await web.TCPSite(runner, "0.0.0.0", port).start()  # noqa: S104 - as the engine's own port
        yield
    finally:
        await runner.cleanup()
