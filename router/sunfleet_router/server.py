"""The process: wires the parts together, runs both ports, and leaves in good order on SIGTERM."""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import signal
import socket
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from threading import Thread
from typing import Any, Protocol
from wsgiref.simple_server import WSGIServer

from fastapi import FastAPI
from fastapi.routing import APIRoute
from prometheus_client import start_http_server
from starlette.routing import Route
from starlette.types import ASGIApp

from sunfleet_router.admission.decode_room import Admission
from sunfleet_router.admission.gate import Gate
from sunfleet_router.admission.load import Load
from sunfleet_router.admission.lobby import Lobby
from sunfleet_router.admission.waiting import Bounds, Waiting
from sunfleet_router.discovery.scraper import Scraper
from sunfleet_router.discovery.static import StaticDiscovery, fill, load
from sunfleet_router.engines.release import Releaser
from sunfleet_router.engines.upstream import Upstream
from sunfleet_router.fleet.current import Fleet
from sunfleet_router.fleet.replicas import Replicas
from sunfleet_router.keys.keyring import KeyRing
from sunfleet_router.serving.fanout import Fanout
from sunfleet_router.serving.flow import Flow
from sunfleet_router.serving.pairing import Pairing
from sunfleet_router.serving.shadow import Shadow
from sunfleet_router.serving.streaming import Streaming
from sunfleet_router.settings import ConfigError, RouterSettings
from sunfleet_router.surface.app import doors, make_app
from sunfleet_router.surface.asides import Asides
from sunfleet_router.surface.desk import Desk
from sunfleet_router.surface.door import Serving
from sunfleet_router.surface.guard import Guard
from sunfleet_router.telemetry import admin
from sunfleet_router.telemetry.metrics import Metrics
from sunfleet_router.trace import OFF, Tracer
from sunfleet_router.transport import pump
from sunfleet_router.transport.credentials import Credentials
from sunfleet_router.transport.front import Front
from sunfleet_router.transport.sockets import Sockets

logger = logging.getLogger(__name__)

Page = tuple[WSGIServer, Thread]  # a small server and the thread that runs it

_LAST_ANSWERS = 5.0  # seconds that answers get which were made while the drain ended


class Discovery(Protocol):
    """Keeps a fleet's snapshot current until cancelled."""

    async def run(self) -> None: ...


@dataclass(frozen=True)
class Parts:
    """Everything a router process is made of; tests look at the books through it."""

    settings: RouterSettings
    fleet: Fleet
    load: Load
    replicas: Replicas
    gate: Gate
    admission: Admission
    flow: Flow
    upstream: Upstream
    metrics: Metrics
    releaser: Releaser
    shadow: Shadow
    desk: Desk
    front: Front
    discovery: Discovery
    scraper: Scraper
    tracer: Tracer
    credentials: Credentials
    sockets: Sockets


def assemble_parts(settings: RouterSettings, sockets: Sockets | None = None) -> Parts:
    """Make the parts; must be called inside the event loop. Raises ``static.ConfigError`` for an unusable file.

    ``sockets``: in place of those that the settings choose.
    """
    fleet, spare = Fleet(), Load(settings.suspect_seconds)
    fleet.on_change(lambda snapshot: spare.keep(frozenset(snapshot.endpoints())))
    bounds = Bounds(settings.max_queued_requests, settings.max_queued_tokens, settings.max_queued_bytes)
    replicas = Replicas(settings.replicas or 1)
    waiting = Waiting(bounds, replicas)
    admission = Admission(fleet, spare, waiting)
    gate, lobby = Gate(fleet, spare, replicas), Lobby(fleet, waiting)
    credentials = Credentials(settings)
    sockets = sockets or pump.choose(settings.sockets)
    upstream = Upstream(
        connect_timeout=settings.connect_timeout, idle_timeout=settings.engine_idle_timeout, credentials=credentials,
        sockets=sockets,
    )  # fmt: skip
    metrics = Metrics(fleet, spare, admission, replicas, native=sockets.relays)
    scraper = Scraper(fleet, spare, admission, upstream, interval=settings.scrape_interval)
    releaser = Releaser(upstream, metrics.releases)
    tracer = _tracer(settings)
    pairing = Pairing(settings, fleet, spare, admission, upstream, metrics, releaser)
    shadow, streaming = Shadow(settings, pairing, waiting, metrics), Streaming(settings, pairing, upstream, metrics)
    flow = Flow(settings, fleet, gate, lobby, pairing, streaming, shadow, metrics, tracer)
    desk = Desk()
    ring = KeyRing(required=settings.authentication != "disabled")
    ring.on_change(metrics.keys_changed)
    discovery = _discovery(settings, fleet, ring, upstream, replicas)
    fanout = Fanout(flow, most=settings.max_answers, at_once=settings.answers_at_once)
    serving = Serving(flow, metrics, desk, settings.max_body_bytes)
    app = make_app(fleet, serving, doors(serving, fanout, Asides(settings, spare, upstream)))
    guard = partial(Guard, ring=ring, outcomes=metrics.requests)
    front = Front(guard(app), direct_routes(app, guard), keep_alive=settings.client_idle_timeout, sockets=sockets)
    return Parts(
        settings, fleet, spare, replicas, gate, admission, flow, upstream, metrics, releaser, shadow, desk, front,
        discovery, scraper, tracer, credentials, sockets,
    )  # fmt: skip


def _tracer(settings: RouterSettings) -> Tracer:
    if not settings.tracing:
        return OFF
    try:
        from sunfleet_router.telemetry.tracing import Tracing  # noqa: PLC0415 its packages are optional, and cost time and memory
    except ModuleNotFoundError as error:
        raise ConfigError(
            f"SUNFLEET_ROUTER_TRACING is on, but {error.name} is not installed: pip install 'sunfleet[router,tracing]'."
        ) from error
    return Tracing()


def _discovery(
    settings: RouterSettings, fleet: Fleet, ring: KeyRing, upstream: Upstream, replicas: Replicas
) -> Discovery:
    if settings.config:
        config = load(settings.config)
        fill(ring, config)
        return StaticDiscovery(config, fleet, upstream, interval=settings.info_interval)
    from sunfleet_router.discovery.watching import KubernetesDiscovery  # noqa: PLC0415 its client is a third of the memory

    return KubernetesDiscovery(settings, fleet, ring, upstream, replicas)


def direct_routes(app: FastAPI, guard: Callable[[ASGIApp], ASGIApp]) -> dict[bytes, ASGIApp]:
    """The raw ASGI endpoints among the application's routes, by path, each behind ``guard``: a request for one needs
    none of the application's own layers.
    """
    return {
        route.path.encode(): guard(route.app)
        for route in app.router.routes
        if isinstance(route, Route) and not isinstance(route, APIRoute) and route.methods == {"POST"}
    }


def settle_memory() -> None:
    """What the process has made so far stays to its end: the collector need not look at it again and again.

    Requests leave hardly any cycles, so it may look for them less often than the default, which is a pause for every
    few requests.
    """
    pump.keep_freed_memory()
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000, 20, 20)


async def run(settings: RouterSettings) -> None:
    """Serve until SIGTERM or SIGINT and the drain that follows."""
    parts = assemble_parts(settings)
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    await serve(parts, stop)


async def serve(parts: Parts, stop: asyncio.Event, listener: socket.socket | None = None) -> None:
    """Run both ports and discovery until ``stop``; then drain. ``listener``: serve this socket instead."""
    settings, front = parts.settings, parts.front
    pages: list[Page] = []
    jobs: dict[str, asyncio.Task[Any]] = {}
    logger.info("sockets: %s", "native" if parts.sockets.relays else "asyncio")
    try:
        with _port("port", settings.port):
            await front.start(settings.host, settings.port, listener, parts.credentials.to_clients)
        settle_memory()
        _open_pages(parts, pages)
        jobs |= {
            "discovery": _job(parts.discovery.run(), "discovery"),
            "credentials": _job(parts.credentials.run(), "credentials"),
            "scraper": _job(parts.scraper.run(), "scraper"),
            "stop": _job(stop.wait(), "stop"),
        }
        done, _ = await asyncio.wait(jobs.values(), return_when=asyncio.FIRST_COMPLETED)
        if jobs["stop"] in done:
            await _drain(parts.desk, settings.drain_timeout)
        await front.stop(_LAST_ANSWERS)
        for job in done:
            job.result()  # a part that ended by an error ends the process with it
    finally:
        await front.stop(0)
        await _end(parts, list(jobs.values()), pages)


def _open_pages(parts: Parts, pages: list[Page]) -> None:
    """The ports that have a thread of their own; ``pages`` gets each that is open."""
    settings = parts.settings
    with _port("metrics-port", settings.metrics_port):
        pages.append(start_http_server(settings.metrics_port, settings.host, parts.metrics.registry))
    if settings.config is not None:  # a fleet from a file has no operator
        return
    page = admin.RoutesPage(parts.fleet, settings.namespaces)
    with _port("admin-port", settings.admin_port):
        pages.append(admin.serve(settings.admin_port, settings.host, page))


@contextmanager
def _port(name: str, number: int) -> Iterator[None]:
    """What the system says of a port that cannot be opened, as something that a person can mend."""
    try:
        yield
    except OSError as error:
        why = os.strerror(error.errno) if error.errno else str(error)
        variable = f"SUNFLEET_ROUTER_{name.replace('-', '_').upper()}"
        raise ConfigError(
            f"port {number} cannot be opened: {why}. Free it, or set {variable} (or --{name}) to another one."
        ) from error


async def _drain(desk: Desk, timeout: float) -> None:  # noqa: ASYNC109 a limit of the drain, after which it goes on
    desk.draining = True
    logger.info("draining: %d requests in flight", desk.in_flight)
    if not await desk.wait_empty(timeout):
        logger.warning("drain timeout: %d requests are cut", desk.in_flight)
        desk.interrupt_all()
        await desk.wait_empty(5.0)


async def _end(parts: Parts, jobs: list[asyncio.Task[Any]], pages: list[Page]) -> None:
    for job in jobs:
        job.cancel()
    await asyncio.gather(*jobs, return_exceptions=True)
    await parts.shadow.close()
    await parts.releaser.close()
    parts.upstream.close()  # the sockets go with the next turns of the loop, of which there are some below
    await asyncio.to_thread(parts.tracer.close)
    for server, thread in pages:
        await asyncio.to_thread(admin.end, server, thread)
    parts.sockets.close()


def _job(work: Coroutine[Any, Any, Any], name: str) -> asyncio.Task[Any]:
    return asyncio.get_running_loop().create_task(work, name=name)
