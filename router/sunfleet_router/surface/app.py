"""The HTTP surface: a FastAPI application whose generating routes are raw ASGI, so that tokens meet no framework.

Only what is listed here exists. Nothing is ever forwarded by path, so an engine's own endpoints cannot be reached.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import orjson
from fastapi import FastAPI, Request, Response
from starlette.exceptions import HTTPException
from starlette.routing import Route

from sunfleet_router.dialects.messages import Messages, refused
from sunfleet_router.dialects.responses import Responses
from sunfleet_router.dialects.translating import MESSAGES
from sunfleet_router.errors import InternalError, MethodNotAllowedError, NotFoundError, RouterError
from sunfleet_router.fleet.current import Fleet
from sunfleet_router.fleet.snapshot import Task
from sunfleet_router.serving.fanout import Fanout
from sunfleet_router.surface import openapi
from sunfleet_router.surface.asides import Asides, CountTokens, Tokenizer
from sunfleet_router.surface.door import Door, Serving
from sunfleet_router.surface.generation import Generation, Translated
from sunfleet_router.surface.guard import key_of


def doors(serving: Serving, fanout: Fanout, asides: Asides) -> dict[str, Door]:
    """What is served by asking engines, by path."""
    return {
        "/v1/chat/completions": Generation("chat", serving, fanout),
        "/v1/completions": Generation("completion", serving, fanout),
        "/v1/responses": Translated(Responses(), serving, fanout),
        MESSAGES: Translated(Messages(), serving, fanout),
        f"{MESSAGES}/count_tokens": CountTokens(serving, asides),
        "/tokenize": Tokenizer("/tokenize", serving, asides),
        "/detokenize": Tokenizer("/detokenize", serving, asides),
    }


def make_app(fleet: Fleet, serving: Serving, doors: Mapping[str, Door]) -> FastAPI:
    """The application of the main port."""
    flow, desk, described = serving.flow, serving.desk, orjson.dumps(openapi.document())
    app = FastAPI(title="Sunfleet router", docs_url=None, redoc_url=None, openapi_url=None, redirect_slashes=False)
    for path, door in doors.items():
        app.router.routes.append(Route(path, door, methods=["POST"]))

    @app.get("/livez")
    async def livez() -> Response:
        return Response("ok\n", media_type="text/plain")

    @app.get("/readyz")
    async def readyz() -> Response:
        reason = "draining" if desk.draining else "" if fleet.synced else "the fleet is not known yet"
        return Response((reason or "ok") + "\n", 503 if reason else 200, media_type="text/plain")

    @app.get("/openapi.json")
    async def document() -> Response:
        return Response(described, media_type="application/json")

    @app.get("/v1/models")
    async def models(request: Request) -> dict[str, Any]:
        key, tasks = key_of(request.scope), fleet.snapshot.tasks
        if not fleet.synced:
            flow.task("", key)  # raises: nobody can know yet
        return {"object": "list", "data": [_model(tasks[name]) for name in sorted(tasks) if key.allows(name)]}

    @app.get("/v1/models/{model:path}")
    async def model(model: str, request: Request) -> dict[str, Any]:
        return _model(flow.task(model, key_of(request.scope)))

    app.add_exception_handler(HTTPException, _on_http_error)
    app.add_exception_handler(RouterError, _on_router_error)
    app.add_exception_handler(Exception, _on_bug)
    return app


def _model(task: Task) -> dict[str, Any]:
    described: dict[str, Any] = {"id": task.name, "object": "model", "created": task.created, "owned_by": "sunfleet"}
    lengths = [pod.max_model_len for route in task.routes for pod in route.prefill if pod.max_model_len]
    if lengths:
        described["max_model_len"] = min(lengths)
    return described


def _answer(request: Request, error: RouterError) -> Response:
    anthropic = request.url.path.startswith(MESSAGES)
    body = orjson.dumps(refused(error.status, error.to_object()["error"])) if anthropic else error.to_json()
    return Response(body, error.status, error.headers(), media_type="application/json")


async def _on_http_error(request: Request, error: Exception) -> Response:
    if isinstance(error, HTTPException) and error.status_code == MethodNotAllowedError.status:
        answer = _answer(request, MethodNotAllowedError(f"{request.method} is not allowed for this path."))
        answer.headers.update(error.headers or {})  # Allow
        return answer
    return _answer(request, NotFoundError("There is no such path here.", code="path_not_found"))


async def _on_router_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, RouterError)  # noqa: S101 registered for this class
    return _answer(request, error)


async def _on_bug(request: Request, _: Exception) -> Response:
    return _answer(request, InternalError())
