"""Runs the engine's server in this process with our front end around it. The only module that starts anything."""

from __future__ import annotations

import asyncio
import signal
from argparse import Namespace
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import uvloop
from fastapi import FastAPI
from prometheus_client import REGISTRY, start_http_server
from vllm import envs
from vllm.engine.protocol import EngineClient
from vllm.entrypoints.launchers.api_server.app_state import init_app_state
from vllm.entrypoints.launchers.app import build_app
from vllm.entrypoints.launchers.cli_args import make_arg_parser, validate_parsed_serve_args
from vllm.entrypoints.launchers.launcher import serve_http, setup_server
from vllm.logger import configure_logging_from_args
from vllm.utils.argparse_utils import FlexibleArgumentParser
from vllm.v1.engine.async_llm import AsyncLLM
from vllm.version import __version__ as engine_version

from sunfleet_api.worker import WorkerSettings
from sunfleet_worker import jobs
from sunfleet_worker.adapters import admin
from sunfleet_worker.adapters.depot import Depot
from sunfleet_worker.adapters.engine import EngineAdapters
from sunfleet_worker.adapters.keeper import Keeper
from sunfleet_worker.adapters.shelf import Shelf
from sunfleet_worker.drain import drain
from sunfleet_worker.engine import running_engine
from sunfleet_worker.frontend.app import install
from sunfleet_worker.frontend.gate import Traffic
from sunfleet_worker.frontend.metrics import PodMetrics
from sunfleet_worker.frontend.standing import Standing
from sunfleet_worker.frontend.steps import step_by_step
from sunfleet_worker.frontend.streams import WatchedEngine
from sunfleet_worker.selfcheck.pod import Pod
from sunfleet_worker.selfcheck.run import run_until_passed

_KV_USAGE = "vllm:kv_cache_usage_perc"


def run(args: Sequence[str], settings: WorkerSettings) -> int:
    """Serve until SIGTERM; the exit code, 0 after a drain.

    Raises:
        SystemExit: the engine does not know an argument.
    """
    parsed = make_arg_parser(FlexibleArgumentParser()).parse_args(list(args))
    configure_logging_from_args(parsed)
    validate_parsed_serve_args(parsed)
    metrics = PodMetrics(settings.role)
    with running_engine(parsed) as engine:
        engine.output_processor = step_by_step(engine.output_processor, metrics.count_computed_prompt)
        return uvloop.run(_serve(engine, parsed, settings, metrics))


async def _serve(engine: AsyncLLM, args: Namespace, settings: WorkerSettings, metrics: PodMetrics) -> int:
    await engine.reset_mm_cache()  # drops the inputs of the engine's own start-up profile
    _, sock = setup_server(args, reuse_port=False)
    if settings.metrics_port:  # the API's port has them too, but a NetworkPolicy tells ports apart, not paths
        start_http_server(settings.metrics_port)
    try:
        standing = Standing()
        app, watched = await _application(engine, args, metrics, standing)
        shelf = Shelf(standing) if settings.adapters_path else None
        traffic = install(app, settings, watched, metrics, standing, engine_version, shelf)
        pod = Pod(app, watched, settings, metrics, _kv_in_use)
        leaving = jobs.started("the drain", _drain_on_sigterm(engine, app, traffic, settings.drain_timeout_seconds))
        beside = [jobs.started("the self-check", _prove(pod, app, standing, traffic))]
        if shelf is not None:
            beside.append(jobs.started("the keeper of adapters", _keep_adapters(app, watched, settings, shelf)))
        shutdown = await serve_http(app, sock=sock, **_http_options(args))
        code = jobs.exit_code(leaving, beside)
        for job in (leaving, *beside):
            job.cancel()
        await shutdown
        return code
    finally:
        sock.close()


async def _application(
    engine: EngineClient, args: Namespace, metrics: PodMetrics, standing: Standing
) -> tuple[FastAPI, WatchedEngine]:
    def count(code: str) -> None:
        if standing.proven:  # before, the self-check provokes them
            metrics.ended.labels(code).inc()

    tasks = await engine.get_supported_tasks()
    app = build_app(args, tasks, engine.model_config)
    watched = WatchedEngine(engine, count)
    await init_app_state(watched, app.state, args, tasks)
    return app, watched


def _http_options(args: Namespace) -> dict[str, Any]:
    return {
        "host": args.host,
        "port": args.port,
        "log_level": args.uvicorn_log_level,
        "access_log": not args.disable_uvicorn_access_log,
        "timeout_keep_alive": envs.VLLM_HTTP_TIMEOUT_KEEP_ALIVE,
        "h11_max_incomplete_event_size": args.h11_max_incomplete_event_size,
        "h11_max_header_count": args.h11_max_header_count,
        "ssl_certfile": args.ssl_certfile,
        "ssl_keyfile": args.ssl_keyfile,
    }


async def _drain_on_sigterm(engine: AsyncLLM, app: FastAPI, traffic: Traffic, seconds: float) -> None:
    """Take SIGTERM over from the stock server once that has installed its handlers; it keeps SIGINT, which stops it."""
    await _started(app)
    terminated = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, terminated.set)
    await terminated.wait()
    await drain(traffic, _kv_in_use, lambda: _abort_all(engine), seconds)
    signal.raise_signal(signal.SIGINT)


async def _prove(pod: Pod, app: FastAPI, standing: Standing, traffic: Traffic) -> None:
    await _started(app)
    await run_until_passed(pod, standing, traffic)


async def _keep_adapters(app: FastAPI, engine: EngineClient, settings: WorkerSettings, shelf: Shelf) -> None:
    """Follow the operator's wishes for as long as the pod lives, a drain included."""
    await _started(app)
    keeper = Keeper(EngineAdapters(app.state.openai_serving_models, engine), Depot(Path(settings.adapters_path)), shelf)
    async with admin.serving(keeper, settings.admin_port):
        await keeper.run()


async def _started(app: FastAPI) -> None:
    while not getattr(getattr(app.state, "server", None), "started", False):  # noqa: ASYNC110 - uvicorn has only a flag
        await asyncio.sleep(0.05)


async def _abort_all(engine: AsyncLLM) -> None:
    await engine.abort(list(engine.output_processor.request_states), internal=True)


def _kv_in_use() -> float:
    """Share of the KV pool that requests hold, as the engine last reported it."""
    values = [sample.value for family in REGISTRY.collect() for sample in family.samples if sample.name == _KV_USAGE]
    return max(values, default=0.0)
