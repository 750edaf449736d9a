"""The scaler's queries on a real Prometheus that scrapes what looks like two routers."""

from __future__ import annotations

import asyncio
import socket
import subprocess
import threading
import time
from base64 import b64encode
from collections.abc import Awaitable, Callable, Iterable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
import yaml

from sunfleet_api import metrics
from sunfleet_fakes.certificates import certificate
from sunfleet_operator import promql
from sunfleet_operator.autoscale.signals import PrefillSignals
from sunfleet_operator.prometheus import MetricsError, Prometheus
from sunfleet_operator.promql import Queries, decode_signals, prefill_signals, queries
from sunfleet_operator.settings import PrometheusSettings

QUERIES: Queries = queries(10, {})
PER_TASK = metrics.OF_ROUTER - {metrics.SYNCED} - {
    metrics.KV_RESERVED, metrics.KV_CAPACITY, metrics.KV_QUEUED, metrics.DECODE_ENDPOINTS,
}  # fmt: skip

# Of the password "test", as Prometheus' own guide has it.
HASH_OF_TEST = "$2b$12$hNf2lSsxfm0.i4a.1kVpSOVyBCfIB51VRjgBUyv6kdnyTlgWj81Ay"


class Exporter:
    """One scrape target. ``value`` of a counter grows by ``pace`` with every scrape."""

    def __init__(self, pace: int = 100) -> None:
        self.pace, self.scrapes, self.backlog = pace, 0, 3
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                body = outer.text().encode()
                self.send_response(200)
                self.send_header("Content-Type", "text/plain; version=0.0.4")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: object) -> None:
                """Quiet."""

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.port = self.server.server_port
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def text(self) -> str:
        self.scrapes += 1
        lines = [f"{metrics.SYNCED} 1"]
        for name in sorted(PER_TASK):
            grows = name.endswith(("_total", "_sum", "_count"))
            more = ',revision="r1"' if name in metrics.OF_REVISIONS else ""
            more += ',outcome="ok"' if name == metrics.REVISION_REQUESTS else ""
            gauge = self.backlog if name == metrics.PREFILL_BACKLOG else 3
            lines.append(f'{name}{{task="maths"{more}}} {self.scrapes * self.pace if grows else gauge}')
        per_decoder = (metrics.KV_RESERVED, metrics.KV_QUEUED, metrics.KV_CAPACITY, metrics.DECODE_ENDPOINTS)
        lines += [f'{name}{{decoder="team/base"}} 7' for name in per_decoder]
        return "\n".join(lines) + "\n"

    def stop(self) -> None:
        self.server.shutdown()
        self.server.server_close()


def _free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


@pytest.fixture
def exporters() -> Iterator[tuple[Exporter, Exporter]]:
    both = (Exporter(), Exporter())
    yield both
    for one in both:
        one.stop()


@contextmanager
def prometheus_of(folder: Path, exporters: Iterable[Exporter], *arguments: str) -> Iterator[str]:
    """One that scrapes those twice a second, at ``127.0.0.1:PORT``."""
    config = folder / "prometheus.yaml"
    targets = [{"targets": [f"127.0.0.1:{one.port}" for one in exporters]}]
    scrapes = [{"job_name": "router", "scrape_interval": "500ms", "scrape_timeout": "400ms", "static_configs": targets}]
    config.write_text(yaml.safe_dump({"scrape_configs": scrapes}))
    address = f"127.0.0.1:{_free_port()}"
    command = [
        "prometheus", f"--config.file={config}", f"--storage.tsdb.path={folder}/data",
        f"--web.listen-address={address}", "--log.level=warn", *arguments,
    ]  # fmt: skip
    with (folder / "log").open("wb") as log, subprocess.Popen(command, stderr=log, stdout=log) as child:
        yield address
        child.terminate()


@pytest.fixture
def url(exporters: tuple[Exporter, Exporter], tmp_path: Path) -> Iterator[str]:
    with prometheus_of(tmp_path, exporters) as address:
        yield f"http://{address}"


async def until(question: Callable[[], Awaitable[bool]], what: str, seconds: float = 40) -> None:
    deadline = time.monotonic() + seconds
    while True:
        try:
            if await question():
                return
        except OSError:
            pass
        assert time.monotonic() < deadline, what
        await asyncio.sleep(0.2)


async def test_figures_of_two_routers_are_added_up_and_a_silent_one_is_noticed(
    url: str, exporters: tuple[Exporter, Exporter]
) -> None:
    prometheus = Prometheus(PrometheusSettings(url=url, timeout_seconds=5))

    async def rates_are_there() -> bool:
        try:
            answers = await prometheus.ask(QUERIES.prefill)
        except MetricsError:
            return False  # it is still starting
        return (prefill_signals(answers, "maths").token_rate or 0) > 0

    await until(rates_are_there, "no rate after 40 s")
    found = prefill_signals(await prometheus.ask(QUERIES.prefill), "maths")
    assert found.age is not None
    assert found.age < 10
    assert (found.in_flight, found.backlog, found.oldest) == (12, 6, 3)
    assert found.requests is not None
    assert found.requests > 0
    pool = decode_signals(await prometheus.ask(QUERIES.decode), "team/base")
    assert (pool.reserved, pool.queued, pool.capacity, pool.endpoints) == (14, 14, 7, 7)
    assert await prometheus.query(QUERIES.silent) == []
    assert [sample.value for sample in await prometheus.query(QUERIES.told)] == [2]
    assert await prometheus.query(QUERIES.work) == []

    by_revision = await prometheus.ask(promql.by_revision(10, {}))
    figures = promql.revision_figures(by_revision, "maths")["r1"]
    assert figures.requests > 0
    assert (figures.failed, figures.error_percent) == (0, 0)
    assert figures.per_token == pytest.approx(1, rel=0.2)  # both counters grow alike

    exporters[0].scrapes = 0  # the process was restarted: counters begin anew
    await asyncio.sleep(1)
    after = prefill_signals(await prometheus.ask(QUERIES.prefill), "maths")
    assert after.token_rate is not None
    assert after.token_rate > 0

    await prometheus.close()


async def test_one_that_wants_a_certificate_and_a_password_below_a_path_of_its_own(
    exporters: tuple[Exporter, Exporter], tmp_path: Path
) -> None:
    """Its own TLS, as Prometheus, Thanos and Mimir have it from one library."""
    server, server_key = certificate(tmp_path, "server", "IP:127.0.0.1")
    client, client_key = certificate(tmp_path, "client", "DNS:sunfleet-operator")
    tls = {
        "cert_file": str(server), "key_file": str(server_key),
        "client_auth_type": "RequireAndVerifyClientCert", "client_ca_file": str(client),
    }  # fmt: skip
    web = tmp_path / "web.yaml"
    web.write_text(yaml.safe_dump({"tls_server_config": tls, "basic_auth_users": {"scaler": HASH_OF_TEST}}))
    whole: dict[str, Any] = {
        "ca_file": str(server), "client_cert_file": str(client), "client_key_file": str(client_key),
        "headers": {"Authorization": f"Basic {b64encode(b'scaler:test').decode()}"},
    }  # fmt: skip
    arguments = (f"--web.config.file={web}", "--web.route-prefix=/prometheus")
    with prometheus_of(tmp_path, exporters, *arguments) as address:

        async def asked(**given: Any) -> str:
            prometheus = Prometheus(PrometheusSettings(url=f"https://{address}/prometheus", timeout_seconds=5, **given))
            try:
                found = prefill_signals(await prometheus.ask(QUERIES.prefill), "maths")
                return "rates" if found.token_rate else "no rates"
            except MetricsError as error:
                return type(error).__name__
            finally:
                await prometheus.close()

        async def it_answers() -> bool:
            return await asked(**whole) == "rates"

        await until(it_answers, "no rate after 40 s")
        assert await asked(**{**whole, "headers": {}}) == "RefusedQueryError"
        assert await asked(**{**whole, "ca_file": str(client)}) == "UnreachableError"
        del whole["client_cert_file"]
        assert await asked(**whole) == "UnreachableError"


async def test_what_piles_up_comes_too_and_a_restart_is_no_fall_of_load(
    url: str, exporters: tuple[Exporter, Exporter]
) -> None:
    prometheus = Prometheus(PrometheusSettings(url=url, timeout_seconds=5))

    async def figures() -> PrefillSignals:
        return prefill_signals(await prometheus.ask(QUERIES.prefill), "maths")

    async def it_piles_up() -> bool:
        exporters[0].backlog += 400
        try:
            found = await figures()
        except MetricsError:
            return False  # it is still starting
        return (found.arriving or 0) > (found.token_rate or 0) * 1.2 > 0 and found.recent is not None

    await until(it_piles_up, "what piles up is not seen to come")
    exporters[0].scrapes, exporters[0].backlog = 0, 0  # the process was restarted, and has forgotten what waited

    async def the_restart_was_scraped() -> bool:
        return (await figures()).backlog == 3  # of the other one

    await until(the_restart_was_scraped, "the restart was not scraped")
    after = await figures()
    assert after.token_rate is not None
    assert after.arriving is not None
    assert after.arriving >= 0.9 * after.token_rate > 0
    await prometheus.close()


async def test_a_router_that_falls_silent_is_noticed(url: str, exporters: tuple[Exporter, Exporter]) -> None:
    prometheus = Prometheus(PrometheusSettings(url=url, timeout_seconds=5))

    async def both_are_scraped() -> bool:
        try:
            return prefill_signals(await prometheus.ask(QUERIES.prefill), "maths").in_flight == 12
        except MetricsError:
            return False  # it is still starting

    await until(both_are_scraped, "two routers were not scraped")
    exporters[1].stop()

    async def silence_is_noticed() -> bool:
        return [sample.value for sample in await prometheus.query(QUERIES.silent)] == [1.0]

    await until(silence_is_noticed, "the silent router was not noticed")
    assert [sample.value for sample in await prometheus.query(QUERIES.told)] == [
        1
    ]  # no old sample passes for a new one
    half = prefill_signals(await prometheus.ask(QUERIES.prefill), "maths")
    assert half.in_flight == 6  # what the sums hold now is no longer all there is
    await prometheus.close()
