"""The admin port of a PrefillPool's pod: the operator says which adapters it wants, and hears how far the pod is."""

from __future__ import annotations

from pydantic import ValidationError
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from sunfleet_api.pooling import Wanted
from sunfleet_fakes.engine.pool import Adapters
from sunfleet_fakes.engine.state import Engine


class Admin:
    """Handlers; on any other port, and in a pod of no pool, there is no such path."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    async def get(self, request: Request) -> Response:
        """How far the pod is."""
        adapters = self._adapters(request)
        return _told(adapters) if adapters is not None else _NOWHERE

    async def put(self, request: Request) -> Response:
        """What it shall hold."""
        adapters = self._adapters(request)
        if adapters is None:
            return _NOWHERE
        try:
            adapters.want(Wanted.model_validate_json(await request.body()))
        except ValidationError as error:
            return JSONResponse({"error": str(error)}, 400)
        return _told(adapters)

    def _adapters(self, request: Request) -> Adapters | None:
        return self._engine.adapters if request.scope["server"][1] == self._engine.admin_port else None


def _told(adapters: Adapters) -> Response:
    return JSONResponse(adapters.held().model_dump())


_NOWHERE = JSONResponse({"error": "adapters are told to the admin port of a pool's pod"}, 404)
