"""TLS on both sides of the router, the engines' API key, and files that change while it runs."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from sunfleet_fakes.certificates import certificate
from sunfleet_fakes.harness import FakeEngine
from sunfleet_router.engines.upstream import Upstream
from sunfleet_router.fleet.snapshot import Endpoint
from sunfleet_router.settings import ConfigError, RouterSettings
from sunfleet_router.transport.connection import ConnectFailedError, UpstreamError
from sunfleet_router.transport.credentials import Credentials
from sunfleet_router_harness import Engines, RouterFactory

TEXT: dict[str, Any] = {"model": "acme/maths", "prompt": "one two three", "max_tokens": 4}
OK = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("certificates")


@pytest.fixture(scope="module")
def loopback(folder: Path) -> tuple[Path, Path]:
    return certificate(folder, "first", "IP:127.0.0.1")


@pytest.fixture(scope="module")
def engines_own(folder: Path) -> tuple[Path, Path]:
    return certificate(folder, "engine", "DNS:sunfleet-engine")


# To clients


async def subject(url: str, trusted: Path) -> str:
    """The common name of who answers there, if ``trusted`` vouches for it."""
    host, port = url.removeprefix("http://").split(":")
    context = ssl.create_default_context(cafile=str(trusted))
    _, writer = await asyncio.open_connection(host, int(port), ssl=context)
    peer = writer.get_extra_info("peercert")
    writer.close()
    return str(peer["subject"][0][0][1])


async def test_clients_are_served_by_tls_and_a_renewed_certificate_is_used_at_once(
    start_router: RouterFactory, engines: Engines, folder: Path, tmp_path: Path, loopback: tuple[Path, Path]
) -> None:
    router = await start_router()
    files = tmp_path / "tls.crt", tmp_path / "tls.key"
    for source, target in zip(loopback, files, strict=True):
        target.write_bytes(source.read_bytes())
    credentials = Credentials(RouterSettings(tls_cert_file=files[0], tls_key_file=files[1]))
    server = await asyncio.start_server(lambda _, writer: writer.close(), "127.0.0.1", 0, ssl=credentials.to_clients)
    url = f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
    assert await subject(url, loopback[0]) == "first"
    renewed = certificate(folder, "second", "IP:127.0.0.1")
    files[0].write_text("half a file")
    credentials.look()
    assert await subject(url, loopback[0]) == "first", "what cannot be used must not replace what can"
    for source, target in zip(renewed, files, strict=True):
        target.write_bytes(source.read_bytes())
    credentials.look()
    assert await subject(url, renewed[0]) == "second"
    server.close()
    assert (await router.post("/v1/completions", TEXT))[0] == 200


async def test_a_router_with_a_certificate_speaks_nothing_else(
    start_router: RouterFactory, engines: Engines, loopback: tuple[Path, Path]
) -> None:
    files = {"tls_cert_file": loopback[0], "tls_key_file": loopback[1]}
    context = ssl.create_default_context(cafile=str(loopback[0]))
    router = await start_router(settings=files, trust=context)
    assert router.url.startswith("https://")
    async with router.http.post(f"{router.url}/v1/completions", json={**TEXT, "stream": True}, ssl=context) as answer:
        assert (await answer.text()).endswith("data: [DONE]\n\n")
    with pytest.raises(aiohttp.ClientError):
        await router.http.get(router.url.replace("https", "http") + "/livez")


# To engines


@asynccontextmanager
async def engine(files: tuple[Path, Path] | None, seen: list[bytes]) -> AsyncIterator[Endpoint]:
    done = asyncio.Event()

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            seen.append(await reader.readuntil(b"\r\n\r\n"))
            writer.write(OK)
        except asyncio.IncompleteReadError:  # it left: what came was no request
            pass
        finally:
            writer.close()
            done.set()

    context = None
    if files:
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        context.load_cert_chain(*files)
    server = await asyncio.start_server(answer, "127.0.0.1", 0, ssl=context)
    yield Endpoint("u", "n", "127.0.0.1", server.sockets[0].getsockname()[1], "prefill", "f")
    server.close()
    if files is None:
        await done.wait()
        await asyncio.sleep(0.01)


async def ask(endpoint: Endpoint, settings: RouterSettings, path: str = "/metrics") -> bytes:
    credentials = Credentials(settings)
    upstream = Upstream(connect_timeout=settings.connect_timeout, idle_timeout=3, credentials=credentials)
    try:
        return (await upstream.fetch(endpoint, path, {"x-request-id": "r"}, None, limit=1000, resend=True)).body
    finally:
        upstream.close()
        await asyncio.sleep(0.01)


async def test_engines_are_spoken_to_by_tls_under_one_name_for_all_pods(engines_own: tuple[Path, Path]) -> None:
    seen: list[bytes] = []
    async with engine(engines_own, seen) as endpoint:
        assert await ask(endpoint, RouterSettings(engine_ca_file=engines_own[0])) == b"ok"
    assert b"authorization" not in seen[0]


@pytest.mark.parametrize("wrong", ["authority", "name", "plain"])
async def test_an_engine_that_is_not_what_it_should_be_gets_no_request(
    engines_own: tuple[Path, Path], loopback: tuple[Path, Path], wrong: str
) -> None:
    seen: list[bytes] = []
    authority = loopback[0] if wrong == "authority" else engines_own[0]
    name = "another" if wrong == "name" else "sunfleet-engine"
    async with engine(None if wrong == "plain" else engines_own, seen) as endpoint:
        with pytest.raises(ConnectFailedError):
            await ask(endpoint, RouterSettings(engine_ca_file=authority, engine_server_name=name, connect_timeout=0.2))
    assert not [one for one in seen if b"x-request-id" in one]


async def test_every_call_to_an_engine_shows_its_key_and_a_clients_own_never_gets_there(
    start_router: RouterFactory, engines: Engines, tmp_path: Path
) -> None:
    file = tmp_path / "key"
    file.write_text("engine-secret\n")
    seen: list[bytes] = []
    async with engine(None, seen) as endpoint:
        assert await ask(endpoint, RouterSettings(engine_api_key_file=file)) == b"ok"
    assert b"authorization: Bearer engine-secret\r\n" in seen[0]
    router = await start_router(settings={"engine_api_key_file": file})
    assert (await router.post("/v1/completions", TEXT, authorization="Bearer clients"))[0] == 200
    both = engines.prefill_requests() + engines.decode_requests()
    assert [one["headers"]["authorization"] for one in both] == ["Bearer engine-secret"] * 2
    file.write_text("another\n")
    router.parts.credentials.look()
    assert (await router.post("/v1/completions", TEXT))[0] == 200
    assert engines.prefill_requests()[-1]["headers"]["authorization"] == "Bearer another"


async def test_an_engine_that_asks_for_a_key_is_reached_with_it_and_not_without(tmp_path: Path) -> None:
    file = tmp_path / "key"
    file.write_text("engine-secret\n")
    with FakeEngine("decode", api_key="engine-secret") as guarded:
        endpoint = Endpoint("uid", "pod", guarded.host, guarded.port, "decode", "kv")
        assert b"kv_capacity_tokens" in await ask(
            endpoint, RouterSettings(engine_api_key_file=file), path="/sunfleet/info"
        )
        assert b"invalid_api_key" in await ask(endpoint, RouterSettings(), path="/sunfleet/info")


async def test_an_engine_of_ours_that_speaks_tls_is_reached_by_it_alone(tmp_path: Path) -> None:
    authority, _ = certificate(tmp_path, "tls", "DNS:sunfleet-engine")
    with FakeEngine("decode", tls_path=str(tmp_path)) as secured:
        endpoint = Endpoint("uid", "pod", secured.host, secured.port, "decode", "kv")
        trusting = RouterSettings(engine_ca_file=authority)
        assert b"kv_capacity_tokens" in await ask(endpoint, trusting, path="/sunfleet/info")
        with pytest.raises(UpstreamError):
            await ask(endpoint, RouterSettings(connect_timeout=0.2), path="/sunfleet/info")


@pytest.mark.parametrize(
    ("given", "named"),
    [
        ({"tls_cert_file": "crt"}, "TLS_KEY_FILE"),
        ({"tls_cert_file": "none", "tls_key_file": "none"}, "none"),
        ({"engine_ca_file": "empty"}, "TLS to engines"),
        ({"engine_api_key_file": "empty"}, "API key"),
        ({"engine_api_key_file": "none"}, "API key"),
    ],
)
def test_files_that_cannot_be_used_end_the_start(
    tmp_path: Path, loopback: tuple[Path, Path], given: dict[str, str], named: str
) -> None:
    (tmp_path / "empty").write_text("")
    (tmp_path / "crt").write_bytes(loopback[0].read_bytes())
    files: dict[str, Any] = {field: tmp_path / name for field, name in given.items()}
    with pytest.raises(ConfigError, match=named):
        Credentials(RouterSettings(**files))
