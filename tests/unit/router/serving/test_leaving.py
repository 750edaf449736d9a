"""A client that leaves takes its work with it, in every phase; a process that leaves takes nobody's."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import yaml

from sunfleet_router.__main__ import main
from sunfleet_router_harness import HOST, Engines, Router, RouterFactory, fleet_file
from support.engines import free_ports

TEXT: dict[str, Any] = {"model": "acme/maths", "prompt": "one two three", "max_tokens": 16}
PATH = "/v1/completions"


async def open_request(router: Router, body: dict[str, Any]) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    host, port = router.url.removeprefix("http://").split(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    raw = json.dumps(body).encode()
    writer.write(f"POST {PATH} HTTP/1.1\r\nhost: x\r\ncontent-length: {len(raw)}\r\n\r\n".encode() + raw)
    return reader, writer


async def until(condition: Any, seconds: float = 5.0) -> None:
    for _ in range(int(seconds / 0.02)):
        if condition():
            return
        await asyncio.sleep(0.02)
    raise AssertionError("it did not come about in time")


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(
    ("role", "fault"),
    [
        ("prefill", {"hang": "accept"}), ("prefill", {"hang": "prefill"}), ("decode", {"hang": "accept"}),
        ("decode", {"hang": "kv_load"}), ("decode", {"hang": "first_token"}),
        ("decode", {"hang": "stream", "hang_after_tokens": 3}), ("decode", {"tokens_per_second": 4}),
    ],
    ids=str,
)  # fmt: skip
async def test_a_client_that_leaves_ends_the_engines_work_and_every_counter_goes_back(
    router: Router, engines: Engines, role: str, fault: dict[str, Any], stream: bool
) -> None:
    (engines.configure_prefills if role == "prefill" else engines.configure_decoders)(**fault)
    legs = engines.prefill_requests if role == "prefill" else engines.decode_requests
    _, writer = await open_request(router, {**TEXT, "stream": stream})
    await until(lambda: any(leg["outcome"] == "running" for leg in legs()))
    await asyncio.sleep(0.1)
    writer.transport.abort()
    await router.settled(1.0)
    await until(lambda: all(leg["outcome"] == "disconnected" for leg in legs()))
    gone = router.parts.metrics.requests.labels("acme/maths", "client_gone")._value.get()
    assert gone == 1


async def test_a_client_that_leaves_the_line_leaves_its_place(start_router: RouterFactory, engines: Engines) -> None:
    router = await start_router()
    engines.configure_decoders(hang="first_token")
    first = [await open_request(router, {**TEXT, "max_tokens": 2000}) for _ in range(20)]
    await until(lambda: router.parts.admission.waiting.requests.total() >= 4)
    for _, writer in reversed(first):
        writer.transport.abort()
    await router.settled()
    assert not router.parts.admission._lines


@pytest.mark.parametrize("stream", [False, True])
async def test_a_client_that_leaves_while_its_task_sleeps_is_no_reason_to_wake_it(
    start_router: RouterFactory, engines: Engines, stream: bool
) -> None:
    fleet = fleet_file(engines)
    fleet["tasks"][2]["traffic"] = {"queue": {"holdSeconds": 60}}
    router = await start_router(fleet=fleet)
    waiting = router.parts.admission.waiting
    _, writer = await open_request(router, {**TEXT, "model": "asleep", "stream": stream})
    await until(lambda: waiting.requests["asleep"] == 1)
    writer.transport.abort()
    await router.settled(1.0)
    assert not waiting.requests


async def test_a_client_that_never_finishes_its_body_is_forgotten(router: Router) -> None:
    host, port = router.url.removeprefix("http://").split(":")
    _, writer = await asyncio.open_connection(host, int(port))
    writer.write(f"POST {PATH} HTTP/1.1\r\nhost: x\r\ncontent-length: 100\r\n\r\n{{".encode())
    await asyncio.sleep(0.1)
    writer.transport.abort()
    await router.settled()


async def test_a_drain_waits_for_open_streams_and_says_not_ready(router: Router, engines: Engines) -> None:
    engines.configure_decoders(tokens_per_second=10)
    stream = asyncio.ensure_future(router.stream(PATH, {**TEXT, "max_tokens": 8}))
    await until(lambda: router.parts.desk.in_flight == 1)
    router.stop.set()
    await asyncio.sleep(0.05)
    async with router.http.get(router.url + "/readyz") as answer:
        assert answer.status == 503
    async with router.http.get(router.url + "/livez") as answer:
        assert answer.status == 200
    assert (await stream).endswith("data: [DONE]\n\n")
    await asyncio.wait_for(router.task, 5)
    with pytest.raises(aiohttp.ClientConnectionError):
        await router.http.get(router.url + "/livez")


async def test_after_the_drain_timeout_everyone_gets_an_explicit_error(
    start_router: RouterFactory, engines: Engines
) -> None:
    router = await start_router(settings={"drain_timeout": 0.3})
    engines.configure_decoders(hang="stream", hang_after_tokens=2)
    stream = asyncio.ensure_future(router.stream(PATH, TEXT))
    whole = asyncio.ensure_future(router.post(PATH, TEXT))
    await until(lambda: router.parts.desk.in_flight == 2)
    await asyncio.sleep(0.2)
    router.stop.set()
    text = await stream
    assert '"code":"stream_interrupted"' in text
    assert "[DONE]" not in text
    status, answer = await whole
    assert (status, answer["error"]["code"]) == (503, "shutting_down")
    await asyncio.wait_for(router.task, 5)


def test_the_process_leaves_with_0_after_sigterm_and_serves_both_ports(engines: Engines, tmp_path: Path) -> None:
    config = tmp_path / "fleet.yaml"
    config.write_text(yaml.safe_dump(fleet_file(engines)), encoding="utf-8")
    ports = [free_ports(1)[0], free_ports(1)[0]]
    rooms = os.pathsep.join(filter(None, sys.path))
    environment = {**os.environ, "PYTHONPATH": rooms, "SUNFLEET_ROUTER_AUTHENTICATION": "disabled"}
    arguments = ["--config", str(config), "--host", HOST, "--port", str(ports[0]), "--metrics-port", str(ports[1])]
    process = subprocess.Popen([sys.executable, "-m", "sunfleet_router", *arguments], env=environment)
    try:
        metrics = asyncio.run(_ask_until_served(ports))
    finally:
        process.send_signal(signal.SIGTERM)
        code = process.wait(20)
    assert code == 0
    for task in ("acme/maths", "code", "asleep", "undecoded"):
        assert f'sunfleet_router_queue_depth{{task="{task}"}} 0.0' in metrics
        assert f'sunfleet_router_requests_total{{code="ok",task="{task}"}}' in metrics


async def _ask_until_served(ports: list[int]) -> str:
    async with aiohttp.ClientSession() as http:
        for _ in range(600):
            try:
                async with http.post(f"http://{HOST}:{ports[0]}{PATH}", json=TEXT) as answer:
                    if answer.status == 200:
                        break
            except aiohttp.ClientConnectionError:
                pass
            await asyncio.sleep(0.05)
        async with http.get(f"http://{HOST}:{ports[1]}/metrics") as answer:
            return await answer.text()


def test_files_that_cannot_be_used_end_the_process_with_2(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    bad = tmp_path / "bad.yaml"
    bad.write_text("tasks: [{name: a}]", encoding="utf-8")
    for file, words in ((bad, "decoder"), (tmp_path / "none.yaml", "none.yaml")):
        assert main(["--config", str(file), "--port", "0", "--metrics-port", "0"]) == 2
        assert words in capsys.readouterr().err


def test_settings_that_cannot_be_used_end_the_process_with_2(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("SUNFLEET_ROUTER_ATTEMPTS", "0")
    assert main([]) == 2
    assert "SUNFLEET_ROUTER_ATTEMPTS" in capsys.readouterr().err
