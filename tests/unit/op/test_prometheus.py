"""The client against a server that speaks Prometheus' API, and misbehaves as real ones do."""

from __future__ import annotations

import asyncio
import math
import ssl
import subprocess
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from sunfleet_operator.prometheus import (
    BadAnswerError,
    MetricsError,
    Prometheus,
    RefusedQueryError,
    UnreachableError,
)
from sunfleet_operator.settings import PrometheusSettings

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


def vector(*values: tuple[dict[str, str], str], **more: Any) -> Handler:
    result = [{"metric": labels, "value": [1.0, value]} for labels, value in values]
    return answering({"status": "success", "data": {"resultType": "vector", "result": result}, **more})


def answering(document: Any, status: int = 200) -> Handler:
    async def handle(_: web.Request) -> web.StreamResponse:
        return web.json_response(document, status=status)

    return handle


@asynccontextmanager
async def serving(handler: Handler, tls: ssl.SSLContext | None = None) -> AsyncIterator[str]:
    app = web.Application()
    app.router.add_post("/base/api/v1/query", handler)
    runner = web.AppRunner(app)
    await runner.setup()
    try:
        site = web.TCPSite(runner, "127.0.0.1", 0, ssl_context=tls)
        await site.start()
        port = runner.addresses[0][1]
        yield f"{'https' if tls else 'http'}://127.0.0.1:{port}/base/"
    finally:
        await runner.cleanup()


@asynccontextmanager
async def client(handler: Handler, **settings: Any) -> AsyncIterator[Prometheus]:
    async with AsyncExitStack() as stack:
        url = await stack.enter_async_context(serving(handler))
        made = Prometheus(PrometheusSettings(url=url, **settings))
        stack.push_async_callback(made.close)
        yield made


async def test_series_come_back_with_their_labels() -> None:
    async with client(vector(({"task": "a"}, "1.5"), ({"task": "b"}, "NaN"))) as prometheus:
        first, second = await prometheus.query("up")
        assert (first.labels, first.value) == ({"task": "a"}, 1.5)
        assert math.isnan(second.value)  # the policy takes it for unknown


async def test_an_empty_answer_is_no_series_and_no_error() -> None:
    async with client(vector()) as prometheus:
        assert await prometheus.ask({"x": "up"}) == {"x": []}


FAULTS: dict[str, tuple[Handler, type[MetricsError], str]] = {
    "the query is wrong": (
        answering({"status": "error", "errorType": "bad_data", "error": "parse error"}, 400), RefusedQueryError,
        "parse error",
    ),
    "the token is wrong": (answering("no", 401), RefusedQueryError, "401"),
    "the tenant is missing": (answering({"status": "error", "error": "no org id"}, 401), RefusedQueryError, "no org"),
    "a login page with a good status": (answering("<html>"), RefusedQueryError, "200"),
    "a part of the stores did not answer": (
        vector(({"task": "a"}, "1"), warnings=["store x is down"]), BadAnswerError, "store x",
    ),
    "a scalar": (
        answering({"status": "success", "data": {"resultType": "scalar", "result": [1, "2"]}}), BadAnswerError,
        "scalar",
    ),
    "series without values": (
        answering({"status": "success", "data": {"resultType": "vector", "result": [{"metric": {}}]}}),
        BadAnswerError, "form",
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", FAULTS, ids=str)
async def test_every_doubt_is_an_error_that_says_what_came_back(case: str) -> None:
    handler, error, says = FAULTS[case]
    async with client(handler) as prometheus:
        with pytest.raises(error, match=says):
            await prometheus.query("up")


async def test_nobody_there_is_unreachable() -> None:
    prometheus = Prometheus(PrometheusSettings(url="http://127.0.0.1:1", timeout_seconds=5))
    with pytest.raises(UnreachableError, match=r"127\.0\.0\.1:1"):
        await prometheus.query("up")
    await prometheus.close()


async def test_a_silent_server_costs_the_timeout_and_no_more() -> None:
    async def hang(_: web.Request) -> web.StreamResponse:
        await never.wait()
        return web.Response()

    never = asyncio.Event()
    async with client(hang, timeout_seconds=0.05) as prometheus:
        with pytest.raises(UnreachableError):
            await prometheus.query("up")
        never.set()


async def test_token_and_tenant_are_sent_and_a_rotated_token_is_read_again(tmp_path: Path) -> None:
    seen: list[tuple[str | None, str | None]] = []

    async def handle(request: web.Request) -> web.StreamResponse:
        seen.append((request.headers.get("Authorization"), request.headers.get("X-Scope-OrgID")))
        assert (await request.post())["partial_response"] == "false"
        return web.json_response({"status": "success", "data": {"resultType": "vector", "result": []}})

    token = tmp_path / "token"
    token.write_text("first\n")
    async with client(handle, bearer_token_file=str(token), headers={"X-Scope-OrgID": "team"}) as prometheus:
        await prometheus.query("up")
        token.write_text("second\n")
        await prometheus.query("up")
        token.unlink()
        with pytest.raises(UnreachableError, match="token"):
            await prometheus.query("up")
    assert seen == [("Bearer first", "team"), ("Bearer second", "team")]


async def test_an_own_authority_is_trusted_and_a_strange_one_is_not(tmp_path: Path) -> None:
    public, key = certificate(tmp_path, "prometheus")
    tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    tls.load_cert_chain(public, key)
    async with serving(vector(), tls) as url:
        trusting = Prometheus(PrometheusSettings(url=url, ca_file=str(public)))
        assert await trusting.query("up") == []
        await trusting.close()
        strange = Prometheus(PrometheusSettings(url=url))
        with pytest.raises(UnreachableError, match="certificate"):
            await strange.query("up")
        await strange.close()


def certificate(folder: Path, name: str) -> tuple[Path, Path]:
    """One that signs itself, for 127.0.0.1 and for clients alike: (certificate, key)."""
    made, key = folder / f"{name}.crt", folder / f"{name}.key"
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2",
         "-subj", f"/CN={name}", "-addext", "subjectAltName=IP:127.0.0.1", "-keyout", key, "-out", made],
        check=True, capture_output=True, timeout=30,
    )  # fmt: skip
    return made, key


async def test_over_tls_a_server_that_wants_certificate_token_and_tenant_gets_all_three(tmp_path: Path) -> None:
    """As a Mimir or Thanos behind a gateway; without the certificate there is no connection, without a token a 401."""

    async def handle(request: web.Request) -> web.StreamResponse:
        told = request.headers.get("Authorization"), request.headers.get("THANOS-TENANT")
        if told != ("Bearer right", "team"):
            return web.json_response({"status": "error", "error": f"{told}"}, status=401)
        return web.json_response({"status": "success", "data": {"resultType": "vector", "result": []}})

    (server, server_key), (mine, my_key) = certificate(tmp_path, "server"), certificate(tmp_path, "client")
    tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=str(mine))
    tls.load_cert_chain(server, server_key)
    tls.verify_mode = ssl.CERT_REQUIRED
    token = tmp_path / "token"
    token.write_text("right\n")
    whole: dict[str, Any] = {
        "ca_file": str(server), "client_cert_file": str(mine), "client_key_file": str(my_key),
        "bearer_token_file": str(token), "headers": {"THANOS-TENANT": "team"},
    }  # fmt: skip
    async with serving(handle, tls) as url:
        for lacking, error in (
            (set[str](), None),
            ({"client_cert_file", "client_key_file"}, UnreachableError),
            ({"bearer_token_file"}, RefusedQueryError),
            ({"headers"}, RefusedQueryError),
        ):
            given = {name: value for name, value in whole.items() if name not in lacking}
            prometheus = Prometheus(PrometheusSettings(url=url, **given))
            if error is None:
                assert await prometheus.query("up") == []
            else:
                with pytest.raises(error):
                    await prometheus.query("up")
            await prometheus.close()
