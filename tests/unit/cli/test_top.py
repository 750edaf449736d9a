"""``sunfleet top`` and ``chat`` through an API server's proxy: what is asked of it, and what comes of its answers."""

from __future__ import annotations

import asyncio
import itertools
import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
import yaml
from aiohttp import web
from click.testing import CliRunner, Result

from sunfleet_cli.commands import top as command
from sunfleet_cli.main import cli
from sunfleet_cli.reach import scrape

SYSTEM = "/api/v1/namespaces/sunfleet-system"
METRICS = """# TYPE sunfleet_router_in_flight_requests gauge
sunfleet_router_in_flight_requests{{task="maths"}} 2.0
# TYPE sunfleet_router_output_tokens_total counter
sunfleet_router_output_tokens_total{{task="maths"}} {tokens}
# TYPE sunfleet_router_decode_kv_capacity_tokens gauge
sunfleet_router_decode_kv_capacity_tokens{{decoder="team/base"}} 4000.0
"""
STREAM = b'data: {"choices": [{"delta": {"content": "twelve"}, "finish_reason": "stop"}]}\n\ndata: [DONE]\n\n'


def pod(name: str, phase: str = "Running") -> dict[str, Any]:
    return {"metadata": {"name": name}, "spec": {"containers": []}, "status": {"phase": phase}}


class ApiServer:
    """Answers of an API server by path; the router pod ``gone`` has just left."""

    def __init__(self) -> None:
        self.pods = [pod("router-a"), pod("gone"), pod("new", "Pending")]
        self.posts: list[tuple[str, dict[str, str], dict[str, Any]]] = []
        self.tokens = itertools.count(100, 50)
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                self._answer(*outer.get(self.path.partition("?")[0]))

            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                outer.posts.append((self.path, {name.lower(): value for name, value in self.headers.items()}, body))
                self._answer(200, STREAM)

            def _answer(self, status: int, body: bytes) -> None:
                self.send_response(status)
                self.send_header("Content-Type", "application/json" if body.startswith(b"{") else "text/plain")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: object) -> None:
                """Quiet."""

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def get(self, path: str) -> tuple[int, bytes]:
        if path == f"{SYSTEM}/pods":
            return 200, json.dumps({"kind": "PodList", "apiVersion": "v1", "items": self.pods}).encode()
        if path == f"{SYSTEM}/services":
            ports = [{"name": "http", "port": 80}]
            service = {"metadata": {"name": "sunfleet-router"}, "spec": {"ports": ports}}
            return 200, json.dumps({"kind": "ServiceList", "apiVersion": "v1", "items": [service]}).encode()
        if path == f"{SYSTEM}/pods/router-a:9090/proxy/metrics":
            return 200, METRICS.format(tokens=next(self.tokens)).encode()
        return 503, b'{"kind": "Status", "message": "no endpoints"}'


def use(url: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Make an API server the one that is asked."""
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "test",
        "clusters": [{"name": "test", "cluster": {"server": url}}],
        "users": [{"name": "test", "user": {"token": "of-the-api-server"}}],
        "contexts": [{"name": "test", "context": {"cluster": "test", "user": "test", "namespace": "team"}}],
    }
    (folder / "config").write_text(yaml.safe_dump(config))
    monkeypatch.setenv("KUBECONFIG", str(folder / "config"))
    monkeypatch.setattr("kubernetes.config.kube_config.KUBE_CONFIG_DEFAULT_LOCATION", str(folder / "config"))


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ApiServer]:
    made = ApiServer()
    use(f"http://127.0.0.1:{made.server.server_port}", tmp_path, monkeypatch)
    yield made
    made.server.shutdown()
    made.server.server_close()


def run(*arguments: str) -> Result:
    return CliRunner().invoke(cli, arguments)


def test_tokens_a_second_are_those_between_two_looks(server: ApiServer) -> None:
    said = run("top", "--interval", "0.2", "-o", "json")
    assert said.exit_code == 0, said.output
    data = json.loads(said.stdout)
    assert data["routers"] == 1  # the pod that left and the one that has not begun are left out
    assert data["tasks"][0]["output_tokens_per_second"] == pytest.approx(50 / data["seconds"], rel=0.01)
    assert data["pools"][0]["kv_capacity_tokens"] == 4000
    table = run("top", "--interval", "0.2").stdout
    assert "\x1b" not in table  # no colour in a pipe
    assert table.splitlines()[1].split()[0] == "maths"
    assert table.splitlines()[2].split()[0] == "all"


def test_watching_goes_on_look_by_look_until_it_is_interrupted(
    server: ApiServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks = itertools.count()

    def three_times(*_: object) -> dict[str, str]:
        if next(looks) == 3:
            raise KeyboardInterrupt
        return scrape(None, "sunfleet-system")

    monkeypatch.setattr(command, "scrape", three_times)
    said = run("top", "--watch", "--interval", "0.2", "-o", "json")
    assert said.exit_code == 0, said.output
    assert [json.loads(line)["routers"] for line in said.stdout.splitlines()] == [1, 1]


def test_without_a_router_that_answers_it_says_what_was_looked_for(server: ApiServer) -> None:
    server.pods = [pod("gone")]
    assert "gives its metrics" in run("top").stderr
    server.pods = []
    assert "no router runs in namespace elsewhere" in run(
        "top", "--system-namespace", "sunfleet-system"
    ).stderr.replace("sunfleet-system", "elsewhere")


def test_a_chat_goes_through_the_service_and_its_key_is_not_the_api_servers(server: ApiServer, tmp_path: Path) -> None:
    key = tmp_path / "key"
    key.write_text("of-the-router\n")
    said = run("chat", "maths", "six times two?", "--key-file", str(key))
    assert said.stdout == "twelve\n", said.output
    ((path, headers, body),) = server.posts
    assert path == f"{SYSTEM}/services/sunfleet-router:http/proxy/v1/chat/completions"
    assert (headers["authorization"], headers["x-api-key"]) == ("Bearer of-the-api-server", "of-the-router")
    assert (body["model"], body["stream"]) == ("maths", True)


async def test_metrics_come_through_a_forwarded_port_where_policies_close_the_proxy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []

    async def pods(_: web.Request) -> web.StreamResponse:
        return web.json_response({"kind": "PodList", "apiVersion": "v1", "items": [pod("router-a")]})

    async def forward(request: web.Request) -> web.StreamResponse:
        """As kubelet's websocket: a byte of channel before all data, first of each the port."""
        stream = web.WebSocketResponse(protocols=["v4.channel.k8s.io"])
        await stream.prepare(request)
        port = int(request.query["ports"]).to_bytes(2, "little")
        await stream.send_bytes(b"\0" + port)
        await stream.send_bytes(b"\1" + port)
        said = b""
        while b"\r\n\r\n" not in said:
            said += (await stream.receive_bytes())[1:]
        asked.append(said.decode().splitlines()[0])
        body = METRICS.format(tokens=7).encode()
        await stream.send_bytes(b"\0HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(body))
        await stream.send_bytes(b"\0" + body)
        await stream.close()
        return stream

    app = web.Application()
    app.router.add_get(f"{SYSTEM}/pods", pods)
    app.router.add_get(f"{SYSTEM}/pods/router-a/portforward", forward)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    use(f"http://127.0.0.1:{runner.addresses[0][1]}", tmp_path, monkeypatch)
    found = await asyncio.to_thread(scrape, None, "sunfleet-system")
    await runner.cleanup()
    assert found == {"router-a": METRICS.format(tokens=7)}
    assert asked == ["GET /metrics HTTP/1.1"]
