"""The HTTP surface: a FastAPI application whose two generating routes are raw ASGI, so that tokens meet no framework.

Only what is listed here exists. Nothing is ever forwarded by path, so an engine's own endpoints cannot be reached.
"""

from __future__ import annotations

import asyncio
import logging
import re
import time
import uuid
from typing import Any

from fastapi import FastAPI, Request, Response
from starlette.exceptions import HTTPException
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from sunfleet_router import clientbody, legs
from sunfleet_router.clientbody import Kind
from sunfleet_router.errors import (
    ClientGoneError,
    InternalError,
    MethodNotAllowedError,
    NotFoundError,
    RouterError,
    ShuttingDownError,
    StreamCutError,
)
from sunfleet_router.fleet import Fleet
from sunfleet_router.flow import Flow
from sunfleet_router.metrics import Metrics
from sunfleet_router.presence import Presence, read_body
from sunfleet_router.reply import ClientReply
from sunfleet_router.snapshot import Task

logger = logging.getLogger(__name__)

# Engines make their own request ids from it, and it ends up in logs: plain and short, or we make another.
_REQUEST_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:-]{0,127}")
# The only headers of a client that reach an engine, besides the request id.
_FORWARDED = ("traceparent", "tracestate")


class Desk:
    """Who is being served, and whether anyone may still come in."""

    def __init__(self) -> None:
        self.draining = False
        self._present: dict[Presence, ClientReply] = {}
        self._empty = asyncio.Event()
        self._empty.set()

    def enter(self, presence: Presence, reply: ClientReply) -> None:
        self._present[presence] = reply
        self._empty.clear()

    def leave(self, presence: Presence) -> None:
        self._present.pop(presence, None)
        if not self._present:
            self._empty.set()

    @property
    def in_flight(self) -> int:
        return len(self._present)

    async def wait_empty(self, timeout: float) -> bool:  # noqa: ASYNC109 the answer is a value here, no error
        """Whether everyone has been served within ``timeout`` seconds."""
        try:
            async with asyncio.timeout(timeout):
                await self._empty.wait()
        except TimeoutError:
            return False
        return True

    def interrupt_all(self) -> None:
        """The time to drain is over: whoever is still here gets an explicit error."""
        for presence, reply in list(self._present.items()):
            text = "The router is shutting down; try again."
            presence.interrupt(StreamCutError(text) if reply.started else ShuttingDownError(text))


class Generation:
    """One generating route as an ASGI application."""

    def __init__(self, kind: Kind, flow: Flow, metrics: Metrics, desk: Desk, max_body: int) -> None:
        self._kind = kind
        self._flow = flow
        self._metrics = metrics
        self._desk = desk
        self._max_body = max_body

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers = _headers(scope)
        request_id = _request_id(headers)
        reply = ClientReply(send, request_id, closing=self._desk.draining)
        task, code, began = "", "ok", time.monotonic()
        try:
            body = await read_body(receive, self._max_body, _announced(headers))
            began = time.monotonic()
            ask = clientbody.parse(self._kind, body)
            known = self._flow.task(ask.model)
            task = known.name
            with Presence(receive) as presence:
                self._desk.enter(presence, reply)
                try:
                    await self._flow.serve(ask, known, reply, request_id, _for_engines(headers, request_id))
                finally:
                    self._desk.leave(presence)
        except ClientGoneError as gone:
            code = gone.code
            reply.abandon()
        except RouterError as error:
            code = error.label
            _log(error, request_id, task)
            await reply.error(error)
        except Exception:  # whatever a bug raises, the client gets an error object and no stack trace
            code = InternalError.code
            logger.exception("request %s failed", request_id)
            await reply.error(InternalError())
        finally:
            self._metrics.requests.labels(task, code).inc()
            if task:
                self._metrics.request_seconds.labels(task).observe(time.monotonic() - began)


def make_app(fleet: Fleet, flow: Flow, metrics: Metrics, desk: Desk, max_body: int) -> FastAPI:
    """The application of the main port."""
    app = FastAPI(title="Sunfleet router", docs_url=None, redoc_url=None, openapi_url=None, redirect_slashes=False)
    for kind, path in legs.PATHS.items():
        endpoint = Generation(kind, flow, metrics, desk, max_body)  # type: ignore[arg-type]
        app.router.routes.append(Route(path, endpoint, methods=["POST"]))

    @app.get("/livez")
    async def livez() -> Response:
        return Response("ok\n", media_type="text/plain")

    @app.get("/readyz")
    async def readyz() -> Response:
        reason = "draining" if desk.draining else "" if fleet.synced else "the fleet is not known yet"
        return Response((reason or "ok") + "\n", 503 if reason else 200, media_type="text/plain")

    @app.get("/v1/models")
    async def models() -> dict[str, Any]:
        if not fleet.synced:
            flow.task("")  # raises: nobody can know yet
        tasks = fleet.snapshot.tasks
        return {"object": "list", "data": [_model(tasks[name]) for name in sorted(tasks)]}

    @app.get("/v1/models/{model:path}")
    async def model(model: str) -> dict[str, Any]:
        return _model(flow.task(model))

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


def _answer(error: RouterError) -> Response:
    headers = {"retry-after": str(error.retry_after)} if error.retry_after is not None else {}
    return Response(error.to_json(), error.status, headers, media_type="application/json")


async def _on_http_error(request: Request, error: Exception) -> Response:
    if isinstance(error, HTTPException) and error.status_code == MethodNotAllowedError.status:
        answer = _answer(MethodNotAllowedError(f"{request.method} is not allowed for this path."))
        answer.headers.update(error.headers or {})  # Allow
        return answer
    return _answer(NotFoundError("There is no such path here.", code="path_not_found"))


async def _on_router_error(_: Request, error: Exception) -> Response:
    assert isinstance(error, RouterError)  # noqa: S101 registered for this class
    return _answer(error)


async def _on_bug(_: Request, __: Exception) -> Response:
    return _answer(InternalError())


def _headers(scope: Scope) -> dict[str, str]:
    return {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]}


def _request_id(headers: dict[str, str]) -> str:
    given = headers.get("x-request-id", "")
    return given if _REQUEST_ID.fullmatch(given) else uuid.uuid4().hex


def _announced(headers: dict[str, str]) -> int | None:
    length = headers.get("content-length", "")
    return int(length) if length.isdecimal() else None


def _for_engines(headers: dict[str, str], request_id: str) -> dict[str, str]:
    forwarded = {name: headers[name] for name in _FORWARDED if name in headers}
    return {"x-request-id": request_id, **forwarded}


def _log(error: RouterError, request_id: str, task: str) -> None:
    level = logging.WARNING if error.status >= 500 else logging.DEBUG
    logger.log(level, "request %s of %r: %s %s", request_id, task, error.code, error.__cause__ or "")
