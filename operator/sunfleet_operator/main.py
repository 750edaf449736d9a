"""The process: settings, logs, health, Lease; then kopf for as long as the Lease is ours."""

from __future__ import annotations

import asyncio
import logging
import signal
import sys
from collections.abc import Coroutine
from typing import Any

import kopf
from prometheus_client import start_http_server

from sunfleet_api.settings import UnusableSettings, read
from sunfleet_operator import health, metrics
from sunfleet_operator.cluster import Cluster, ClusterError, connect
from sunfleet_operator.handlers import events, lifecycle
from sunfleet_operator.health import Health
from sunfleet_operator.leader import LeaderElection
from sunfleet_operator.process import Operator
from sunfleet_operator.settings import Settings
from sunfleet_operator.types import Key
from sunfleet_operator.workqueue import WorkQueue

logger = logging.getLogger(__name__)
# kopf finds handlers by their decorators having run.
_HANDLERS = (events, lifecycle)
# Not 1, which a crash would also give: the log and this code tell a lost Lease from a fault.
EXIT_LEASE_LOST = 3


async def run(settings: Settings) -> int:
    """The exit code: 0 after a signal, ``EXIT_LEASE_LOST`` when somebody else may lead now."""
    queue: WorkQueue[Key] = WorkQueue(
        first_delay=settings.backoff_first_seconds, max_delay=settings.backoff_max_seconds, expected=ClusterError
    )
    state = Health(queue.stalled_for, settings.stuck_after_seconds)
    metrics.QUEUE_WAITING.set_function(lambda: len(queue))
    metrics.QUEUE_RUNNING.set_function(lambda: queue.running)
    start_http_server(settings.metrics_port)
    server = await health.serve(state, settings.health_port)
    cluster = Cluster(await connect(), timeout_seconds=settings.request_timeout_seconds, namespaces=settings.namespaces)
    # The Lease has a client, so a connection, of its own: the workers' pool may hold many that died silently, and each
    # would cost an attempt to renew.
    leases = Cluster(await connect(), timeout_seconds=settings.request_timeout_seconds)
    operator = Operator(settings, cluster, queue, state)
    try:
        if not settings.leader_election_namespace:
            logger.warning("no leader election: nobody else may run an operator for the same objects")
            return await _work(operator, asyncio.Event().wait())
        election = LeaderElection(leases, settings)
        if not await _acquired(election):
            return 0
        code = await _work(operator, election.keep())
        if code != EXIT_LEASE_LOST:
            await election.release()
        return code
    finally:
        await cluster.close()
        await leases.close()
        await server.cleanup()


async def _acquired(election: LeaderElection) -> bool:
    """Wait for the Lease; ``False`` when a signal ends the process first."""
    stop, loop = asyncio.Event(), asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    waiting = [asyncio.create_task(election.acquire()), asyncio.create_task(stop.wait())]
    await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
    for task in waiting:
        task.cancel()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.remove_signal_handler(number)
    return not stop.is_set()


async def _work(operator: Operator, keeping: Coroutine[Any, Any, object]) -> int:
    """Watch and reconcile until a signal (kopf's own handlers), or until ``keeping`` ends: then the Lease is lost."""
    operator.health.leading = True
    metrics.LEADER.set(1)
    if not operator.settings.namespaces:
        events.watch_namespaces()
    keeper = asyncio.create_task(keeping)
    watcher = asyncio.create_task(
        kopf.operator(
            memo=operator,
            standalone=True,
            clusterwide=not operator.settings.namespaces,
            namespaces=operator.settings.namespaces,
        )
    )
    await asyncio.wait({keeper, watcher}, return_when=asyncio.FIRST_COMPLETED)
    metrics.LEADER.set(0)
    operator.health.leading = False
    if not watcher.done():
        if not keeper.cancelled() and (fault := keeper.exception()) is not None:
            logger.error("lease not kept", exc_info=fault)
        # Somebody else may write now: the workers stop at once, and the end of the process ends kopf.
        await operator.stop()
        return EXIT_LEASE_LOST
    keeper.cancel()
    await watcher
    return 0


def main() -> None:
    """Entry point of ``python -m sunfleet_operator``."""
    try:
        settings = read(Settings)
    except UnusableSettings as error:
        sys.exit(f"settings cannot be used:\n{error}")
    log_format = kopf.LogFormat.JSON if settings.log_json else kopf.LogFormat.FULL
    kopf.configure(debug=settings.log_level == "DEBUG", log_format=log_format)
    logging.getLogger().setLevel(settings.log_level)
    if settings.log_level != "DEBUG":
        logging.getLogger("kopf.objects").setLevel(logging.WARNING)  # a line per watch event otherwise
    sys.exit(asyncio.run(run(settings)))
