"""The fake engine's HTTP surface: the worker's, and below ``/fake`` the controls of tests."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import time
import uuid
from collections.abc import Callable
from dataclasses import asdict
from typing import Any

from pydantic import ValidationError
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from sunfleet_api import pooling, wire
from sunfleet_fakes.engine import generate, handover, metrics, tokens
from sunfleet_fakes.engine.admin import Admin
from sunfleet_fakes.engine.behaviour import Behaviour
from sunfleet_fakes.engine.ledger import LeaseLostError
from sunfleet_fakes.engine.request import ApiError, Kind, detokenize_body, tokenize_body
from sunfleet_fakes.engine.state import Engine

ENGINE_VERSION = "fake-1"


class Generate:
    """ASGI application of one generation path: needs ``receive`` itself, to see the client leave in every phase."""

    def __init__(self, engine: Engine, kind: Kind, reset: Callable[[Scope], None]) -> None:
        self._engine = engine
        self._kind = kind
        self._reset = reset

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        request = Request(scope, receive)
        try:
            raw = await request.body()
        except ClientDisconnect:
            return
        request_id = request.headers.get("x-request-id") or uuid.uuid4().hex
        prefix = "chatcmpl" if self._kind == "chat" else "cmpl"
        record = self._engine.remember(scope["path"], dict(request.headers), _readable(raw), f"{prefix}-{request_id}")
        try:
            await generate.serve(self._engine, self._kind, raw, record, scope, receive, send, self._reset)
        finally:
            record.finished = time.monotonic()


class Controls:
    """Handlers of everything but generation."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    async def health(self, _: Request) -> Response:
        return PlainTextResponse("", 200 if self._engine.behaviour.healthy else 500)

    async def ready(self, _: Request) -> Response:
        ready = self._engine.behaviour.ready and not self._engine.draining
        return PlainTextResponse("", 200 if ready else 503)

    async def info(self, _: Request) -> Response:
        engine = self._engine
        info = wire.EngineInfo(
            role=engine.settings.role,
            kv_capacity_tokens=engine.ledger.capacity * engine.ledger.block_size,
            block_size=engine.ledger.block_size,
            max_model_len=engine.settings.max_model_len,
            kv_fingerprint=engine.settings.kv_fingerprint,
            engine_version=ENGINE_VERSION,
            tells_progress=True,
        )
        return JSONResponse(info.model_dump())

    async def models(self, _: Request) -> Response:
        await asyncio.sleep(self._engine.behaviour.models_seconds)
        names = [wire.ENGINE_MODEL, *([wire.ENGINE_BASE_MODEL] if self._engine.settings.adapter_path else [])]
        limit = self._engine.settings.max_model_len
        data = [{"id": name, "object": "model", "owned_by": "vllm", "max_model_len": limit} for name in names]
        return JSONResponse({"object": "list", "data": data})

    async def tokenize(self, request: Request) -> Response:
        return await self._tokens(request, tokenize_body, lambda ids: {
            "count": len(ids), "max_model_len": self._engine.settings.max_model_len, "tokens": ids, "token_strs": None,
        })  # fmt: skip

    async def detokenize(self, request: Request) -> Response:
        return await self._tokens(
            request, detokenize_body, lambda ids: {"prompt": "".join(map(tokens.token_text, ids))}
        )

    async def _tokens(
        self, request: Request, read: Callable[[bytes], list[int]], answer: Callable[[list[int]], dict[str, Any]]
    ) -> Response:
        raw, behaviour = await request.body(), self._engine.behaviour_for_request()
        record = self._engine.remember(request.url.path, dict(request.headers), _readable(raw), "tokens")
        try:
            status, body = 200, answer(read(raw))
        except ApiError as error:
            status, body = error.status, error.body
        if behaviour.fail_status and not behaviour.fail_module:
            status, body = behaviour.fail_status, {"error": {"message": behaviour.fail_message, "code": "fault"}}
        record.outcome, record.status = ("completed" if status == 200 else "refused"), status
        return JSONResponse(body, status)

    async def metrics(self, _: Request) -> Response:
        return PlainTextResponse(metrics.render(self._engine), media_type=metrics.CONTENT_TYPE)

    async def kv(self, request: Request) -> Response:
        """A decoder reads the KV of one request, once."""
        engine = self._engine
        if request.scope["server"][1] != engine.side_channel_port:
            return JSONResponse({"error": "KV is read on the side channel's port"}, 404)
        if request.path_params["engine_id"] != engine.engine_id:
            return JSONResponse({"error": "another engine has this address now"}, 404)
        try:
            entry = engine.ledger.read(request.path_params["request_id"], time.monotonic())
        except LeaseLostError:
            return JSONResponse({"error": "the prefill does not hold this KV (any more)"}, 410)
        finally:
            await engine.notify()
        return JSONResponse(asdict(entry))

    async def progress(self, request: Request) -> Response:
        """Output tokens of a request that this pod works on."""
        if self._engine.behaviour.hang == "progress":
            await asyncio.Event().wait()
        asked = request.query_params.get("request")
        for record in reversed(self._engine.records):
            if record.headers.get("x-request-id") == asked and record.outcome == "running":
                return JSONResponse(wire.LegProgress(tokens=record.tokens).model_dump())
        return JSONResponse({"error": {"message": "no such request is worked on", "code": 404}}, 404)

    async def release(self, request: Request) -> Response:
        """Frees the KV of one request that no decoder will read; says whether it was still held."""
        engine = self._engine
        if engine.behaviour.hang == "release":
            await asyncio.Event().wait()
        if engine.settings.role != "prefill":
            return JSONResponse({"error": {"message": "only a prefill pod holds KV for others", "code": 404}}, 404)
        params = (await request.json())["kv_transfer_params"]
        owner = params["remote_request_id"] if params.get("remote_engine_id") == engine.engine_id else ""
        held = engine.ledger.is_leased(owner)
        if held:
            engine.ledger.free(owner)
        engine.counters.releases += held
        await engine.notify()
        return JSONResponse({"released": held})

    async def get_config(self, _: Request) -> Response:
        engine = self._engine
        about = {"identity": engine.identity, "adapters": engine.adapter_identities()}
        return JSONResponse({**engine.behaviour.model_dump(mode="json"), **about})

    async def put_config(self, request: Request) -> Response:
        """PUT replaces the whole behaviour, PATCH the named fields."""
        base: dict[str, Any] = self._engine.behaviour.model_dump() if request.method == "PATCH" else {}
        try:
            self._engine.configure(Behaviour.model_validate({**base, **await request.json()}))
        except (ValidationError, ValueError) as error:
            return JSONResponse({"error": str(error)}, 400)
        return await self.get_config(request)

    async def requests(self, _: Request) -> Response:
        return JSONResponse(self._engine.dump_records())

    async def exit(self, _: Request) -> Response:
        """The process is gone before an answer, as after a SIGKILL."""
        os._exit(128 + signal.SIGKILL)

    async def reset(self, _: Request) -> Response:
        self._engine.reset()
        return Response(status_code=204)


class KeyGuard:
    """Refuses whoever does not show the fleet's key, where the worker does; the controls of tests stay open."""

    _GUARDED = ("/v1/", "/tokenize", "/detokenize", "/sunfleet/info", wire.RELEASE_PATH)

    def __init__(self, app: ASGIApp, key: str) -> None:
        self._app, self._wanted = app, f"Bearer {key}".encode()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One request."""
        shown = dict(scope.get("headers") or ()).get(b"authorization")
        if scope["type"] == "http" and scope["path"].startswith(self._GUARDED) and shown != self._wanted:
            error = {"message": "show the fleet's key", "type": "authentication_error", "code": "invalid_api_key"}
            await JSONResponse({"error": error}, status_code=401)(scope, receive, send)
            return
        await self._app(scope, receive, send)


def create_app(engine: Engine, reset: Callable[[Scope], None]) -> Starlette:
    """The application of one engine; ``reset`` closes a request's connection with a RST."""
    controls = Controls(engine)
    key = engine.settings.api_key.get_secret_value()
    admin = Admin(engine)
    guards = [Middleware(KeyGuard, key=key)] if key else []
    return Starlette(middleware=guards, routes=[
        Route("/health", controls.health),
        Route("/sunfleet/readyz", controls.ready),
        Route("/sunfleet/info", controls.info),
        Route("/v1/models", controls.models),
        Route("/v1/chat/completions", Generate(engine, "chat", reset), methods=["POST"]),
        Route("/v1/completions", Generate(engine, "completion", reset), methods=["POST"]),
        Route("/tokenize", controls.tokenize, methods=["POST"]),
        Route("/detokenize", controls.detokenize, methods=["POST"]),
        Route("/metrics", controls.metrics),
        Route(wire.PROGRESS_PATH, controls.progress),
        Route(wire.RELEASE_PATH, controls.release, methods=["POST"]),
        Route(handover.KV_PATH + "/{engine_id}/{request_id}", controls.kv),
        Route(pooling.PATH, admin.get, methods=["GET"]),
        Route(pooling.PATH, admin.put, methods=["PUT"]),
        Route("/fake/config", controls.get_config, methods=["GET"]),
        Route("/fake/config", controls.put_config, methods=["PUT", "PATCH"]),
        Route("/fake/requests", controls.requests),
        Route("/fake/exit", controls.exit, methods=["POST"]),
        Route("/fake/reset", controls.reset, methods=["POST"]),
    ])  # fmt: skip


def _readable(raw: bytes) -> Any:
    try:
        return json.loads(raw)
    except ValueError:
        return raw.decode("utf-8", "replace")
