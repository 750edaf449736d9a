"""Puts our front end around the engine's application."""

from __future__ import annotations

from http import HTTPStatus

from fastapi import FastAPI, Request
from fastapi.responses import JSONResponse
from pydantic import BaseModel
from vllm.config import VllmConfig

from sunfleet_api import names, wire
from sunfleet_api.worker import WorkerSettings
from sunfleet_worker.adapters.shelf import Shelf
from sunfleet_worker.errors import NOT_READY, RequestError, ended_by_engine
from sunfleet_worker.frontend.gate import INFO_PATH, READY_PATH, Gate, NotServedError, Traffic
from sunfleet_worker.frontend.metrics import PodMetrics
from sunfleet_worker.frontend.serving import SunChat, SunCompletion, serving_for
from sunfleet_worker.frontend.standing import Standing
from sunfleet_worker.frontend.streams import EngineEndedError, WatchedEngine


def install(
    app: FastAPI,
    settings: WorkerSettings,
    engine: WatchedEngine,
    metrics: PodMetrics,
    standing: Standing,
    engine_version: str,
    shelf: Shelf | None = None,
) -> Traffic:
    """Make the engine's initialised ``app`` a pod of its role; returns the count of what it does for clients.

    ``shelf`` is there on a PrefillPool's pods.
    """
    state, role = app.state, settings.role
    state.openai_serving_chat = serving_for(state.openai_serving_chat, SunChat, role, metrics, shelf)
    state.openai_serving_completion = serving_for(state.openai_serving_completion, SunCompletion, role, metrics, shelf)
    # The engine has assembled its middlewares already; without them the next request assembles them anew, with ours.
    app.middleware_stack = None
    app.add_exception_handler(RequestError, _answer_request_error)
    app.add_exception_handler(EngineEndedError, _answer_engine_ended)
    traffic = Traffic()
    app.add_middleware(Gate, traffic=traffic, standing=standing, key=settings.api_key.get_secret_value())
    info = engine_info(settings, engine.vllm_config, engine_version)

    @app.get(INFO_PATH)
    async def get_info() -> wire.EngineInfo:
        if not standing.proven:
            raise ended_by_engine(NOT_READY)
        return info.model_copy(update={"kv_contract": standing.kv_contract})

    @app.get(READY_PATH)
    async def get_ready() -> JSONResponse:
        reason = "draining" if traffic.draining else standing.reason
        return JSONResponse({"ready": not reason, "reason": reason}, status_code=503 if reason else 200)

    if role == names.ROLE_DECODE:

        @app.get(wire.PROGRESS_PATH)
        async def get_progress(request: str) -> wire.LegProgress:
            tokens = engine.tokens_of(request)
            if tokens is None:
                raise NotServedError("This pod works on no such request.", code="request_not_found")
            return wire.LegProgress(tokens=tokens)

    if role == names.ROLE_PREFILL:

        @app.post(wire.RELEASE_PATH, status_code=HTTPStatus.NO_CONTENT)
        async def release(body: Release) -> None:
            metrics.released.inc()
            await engine.release([body.kv_transfer_params.remote_request_id])

    return traffic


class Handover(BaseModel):
    """What of a prefill's ``kv_transfer_params`` says whose KV it is."""

    remote_request_id: str


class Release(BaseModel):
    """Body of a release: a hand-over that no decoder has been sent, or that one has given up."""

    kv_transfer_params: Handover


def engine_info(settings: WorkerSettings, vllm_config: VllmConfig, engine_version: str) -> wire.EngineInfo:
    """What the router needs to place work; one block of the pool is the engine's own."""
    cache = vllm_config.cache_config
    return wire.EngineInfo(
        role=settings.role,
        kv_capacity_tokens=max(0, (cache.num_gpu_blocks or 0) - 1) * cache.block_size,
        block_size=cache.block_size,
        max_model_len=vllm_config.model_config.max_model_len,
        kv_fingerprint=settings.kv_fingerprint,
        engine_version=engine_version,
        accelerators=settings.tensor_parallel_size,
        tells_progress=settings.role == names.ROLE_DECODE,
    )


async def _answer_request_error(_: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, RequestError)  # noqa: S101 - how Starlette calls us
    return JSONResponse(error.body(), status_code=error.status)


async def _answer_engine_ended(request: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, EngineEndedError)  # noqa: S101 - how Starlette calls us
    return await _answer_request_error(request, error.reason)
