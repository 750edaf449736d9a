"""Discovery against a real API server, with the rights of the manifests and nothing more."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from sunfleet_api import names
from sunfleet_apitest.client import Api
from sunfleet_apitest.identity import SYSTEM, service_account_kubeconfig
from sunfleet_apitest.paths import collection
from sunfleet_cluster.controlplane import RunningControlPlane
from sunfleet_router.discovery.watching import KubernetesDiscovery
from sunfleet_router.engines.upstream import Upstream
from sunfleet_router.errors import UnauthenticatedError
from sunfleet_router.fleet.current import Fleet
from sunfleet_router.fleet.replicas import Replicas
from sunfleet_router.fleet.snapshot import Snapshot
from sunfleet_router.keys.keyring import KeyRing
from sunfleet_router.keys.making import secret
from sunfleet_router.settings import RouterSettings

MANIFESTS = Path(__file__).resolve().parents[3] / "manifests" / "base" / "router"
STATUS = "application/merge-patch+json"
# Pods are told apart by loopback addresses: an engine's port is fixed.
PREFILL, DECODE, OTHER = "127.0.81.1", "127.0.81.2", "127.0.81.3"


@pytest.fixture(scope="module")
def identity(plane: RunningControlPlane, api: Api, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A kubeconfig of the router's own service account."""
    target = tmp_path_factory.mktemp("router") / "router.kubeconfig"
    return service_account_kubeconfig(api, plane.kubeconfig, MANIFESTS, target)


class Proxy:
    """A TCP proxy before the API server that can cut or silence what goes through it."""

    def __init__(self, host: str, port: int) -> None:
        self._target = (host, port)
        self._writers: set[asyncio.StreamWriter] = set()
        self._flowing = asyncio.Event()
        self._flowing.set()
        self._closed = asyncio.Event()
        self.connections = 0

    async def start(self) -> int:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        port: int = self._server.sockets[0].getsockname()[1]
        return port

    def close(self) -> None:
        self._server.close()
        self._closed.set()
        self.heal()
        self.cut()

    @property
    def open(self) -> int:
        """Connections that are there now."""
        return len(self._writers) // 2

    def silence(self) -> None:
        self._flowing.clear()

    def heal(self) -> None:
        self._flowing.set()

    def cut(self) -> None:
        for writer in self._writers:
            writer.transport.abort()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        if not self._flowing.is_set():  # nobody will ever hear of a connection that was made into the silence
            await self._closed.wait()
            writer.close()
            return
        there_reader, there = await asyncio.open_connection(*self._target)
        self._writers |= {writer, there}
        await asyncio.gather(self._pump(reader, there), self._pump(there_reader, writer), return_exceptions=True)
        self._writers -= {writer, there}

    async def _pump(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while data := await reader.read(65536):
                await self._flowing.wait()
                writer.write(data)
                await writer.drain()
        finally:
            writer.close()


class Watched:
    """A fleet that a running discovery keeps current."""

    def __init__(self, fleet: Fleet, ring: KeyRing, replicas: Replicas, proxy: Proxy) -> None:
        self.fleet = fleet
        self.ring = ring
        self.replicas = replicas
        self.proxy = proxy

    async def until(self, condition: Callable[[Snapshot], Any], seconds: float = 15.0) -> None:
        deadline = asyncio.get_running_loop().time() + seconds
        while not (self.fleet.synced and condition(self.fleet.snapshot)):
            assert asyncio.get_running_loop().time() < deadline, self.fleet.snapshot
            await asyncio.sleep(0.02)


@pytest.fixture
async def engines() -> AsyncIterator[None]:
    """What answers for facts at the pods' addresses."""

    def facts(role: str) -> Callable[[web.Request], Any]:
        async def answer(_: web.Request) -> web.Response:
            info = {"role": role, "kv_capacity_tokens": 4096, "block_size": 16, "max_model_len": 512}
            return web.json_response(info)

        return answer

    runners = []
    for address, role in ((PREFILL, "prefill"), (DECODE, "decode"), (OTHER, "decode")):
        app = web.Application()
        app.router.add_get("/sunfleet/info", facts(role))
        runner = web.AppRunner(app)
        await runner.setup()
        await web.TCPSite(runner, address, names.ENGINE_PORT).start()
        runners.append(runner)
    yield
    for runner in runners:
        await runner.cleanup()


@pytest.fixture
async def watched(identity: Path, namespace: str, engines: None, tmp_path: Path) -> AsyncIterator[Watched]:
    async with watching(identity, namespace, tmp_path, watch_silence=2.0) as running:
        yield running


@asynccontextmanager
async def watching(identity: Path, namespace: str, folder: Path, *, watch_silence: float) -> AsyncIterator[Watched]:
    config = json.loads(identity.read_text())  # noqa: ASYNC240 a small file
    host, port = config["clusters"][0]["cluster"]["server"].removeprefix("https://").split(":")
    proxy = Proxy(host, int(port))
    config["clusters"][0]["cluster"]["server"] = f"https://127.0.0.1:{await proxy.start()}"
    path = folder / "kubeconfig"
    path.write_text(json.dumps(config))
    settings = RouterSettings(
        kubeconfig=path,
        namespaces=(namespace,),
        watch_timeout=3,
        watch_silence=watch_silence,
        info_interval=0.1,
        keys_namespace=SYSTEM,
    )
    fleet, ring, upstream = Fleet(), KeyRing(required=True), Upstream(connect_timeout=1, idle_timeout=3)
    replicas = Replicas()
    discovery = asyncio.ensure_future(KubernetesDiscovery(settings, fleet, ring, upstream, replicas).run())
    yield Watched(fleet, ring, replicas, proxy)
    discovery.cancel()
    await asyncio.gather(discovery, return_exceptions=True)
    upstream.close()
    proxy.close()
    await asyncio.sleep(0.1)


def make_pod(api: Api, namespace: str, name: str, address: str, labels: dict[str, str], fingerprint: str = "f") -> None:
    accounts = f"/api/v1/namespaces/{namespace}/serviceaccounts"
    if not api.get(accounts)["items"]:
        api.create(accounts, {"metadata": {"name": "default"}})
    fixed = {names.LABEL_MANAGED_BY: names.MANAGED_BY, names.LABEL_KV_FINGERPRINT: fingerprint}
    spec = {"containers": [{"name": "engine", "image": "none"}], "automountServiceAccountToken": False}
    pods = f"/api/v1/namespaces/{namespace}/pods"
    api.create(pods, {"metadata": {"name": name, "labels": fixed | labels}, "spec": spec})
    set_ready(api, namespace, name, address)


def set_ready(api: Api, namespace: str, name: str, address: str, *, ready: bool = True) -> None:
    conditions = [{"type": "Ready", "status": "True" if ready else "False"}]
    status = {"phase": "Running", "podIP": address, "podIPs": [{"ip": address}], "conditions": conditions}
    path = f"/api/v1/namespaces/{namespace}/pods/{name}/status"
    api.request("PATCH", path, {"status": status}, content_type=STATUS)


def make_fleet(api: Api, namespace: str) -> None:
    """A decoder with a pod, a task with a pod and traffic."""
    make_decoder(api, namespace)
    make_model(api, namespace, "maths")
    set_traffic(api, namespace, "maths")
    make_pod(api, namespace, "p", PREFILL, {names.LABEL_ROLE: "prefill", names.LABEL_MODEL: "maths"})
    make_pod(api, namespace, "d", DECODE, {names.LABEL_ROLE: "decode", names.LABEL_DECODER: "base"})


def make_decoder(api: Api, namespace: str) -> None:
    document = {"apiVersion": names.API_VERSION, "kind": "SharedDecoder", "metadata": {"name": "base"}}
    api.create(collection("SharedDecoder", namespace), {**document, "spec": {"model": {"uri": "hf://a/base"}}})


def make_model(api: Api, namespace: str, name: str) -> None:
    spec = {"modelName": f"{namespace}/{name}", "decoderRef": {"name": "base"}}
    spec["prefill"] = {"weights": {"uri": "hf://a/maths"}}
    document = {"apiVersion": names.API_VERSION, "kind": "SunModel", "metadata": {"name": name}, "spec": spec}
    api.create(collection("SunModel", namespace), document)


def set_traffic(api: Api, namespace: str, name: str) -> None:
    selector = f"{names.LABEL_MODEL}={name},{names.LABEL_ROLE}=prefill"
    target = {
        "revision": "r1", "weight": 100, "decoder": f"{namespace}/base", "prefill": {"selector": selector},
        "cacheSalt": "5a",
    }  # fmt: skip
    path = f"{collection('SunModel', namespace)}/{name}/status"
    api.request("PATCH", path, {"status": {"traffic": [target]}}, content_type=STATUS)


def served(namespace: str) -> Callable[[Snapshot], bool]:
    """The one task has a prefill pod, and its decoder a pod whose capacity is known."""

    def check(snapshot: Snapshot) -> bool:
        task = snapshot.tasks.get(f"{namespace}/maths")
        pool = snapshot.pool(f"{namespace}/base")
        return bool(task and task.routes and task.routes[0].prefill and pool and pool[0].capacity == 4096)

    return check


async def test_a_fleet_appears_changes_and_vanishes_with_its_objects(
    api: Api, namespace: str, watched: Watched
) -> None:
    await watched.until(lambda fleet: not fleet.tasks)
    make_fleet(api, namespace)
    await watched.until(served(namespace))
    pool = f"{namespace}/base"
    task = watched.fleet.snapshot.tasks[f"{namespace}/maths"]
    assert (task.routes[0].salt, task.routes[0].decoder, task.limits.max_in_flight) == ("5a", pool, 64)

    set_ready(api, namespace, "d", DECODE, ready=False)
    await watched.until(lambda fleet: not fleet.pool(pool))
    set_ready(api, namespace, "d", DECODE)
    await watched.until(served(namespace))

    make_pod(api, namespace, "x", OTHER, {names.LABEL_ROLE: "decode", names.LABEL_DECODER: "base"}, "g")
    await watched.until(lambda fleet: len(fleet.pool(pool)) == 2)
    assert {pod.fingerprint for pod in watched.fleet.snapshot.pool(pool)} == {"f", "g"}

    api.request("DELETE", f"/api/v1/namespaces/{namespace}/pods/p")
    await watched.until(lambda fleet: not fleet.tasks[f"{namespace}/maths"].routes[0].prefill)
    api.request("DELETE", f"{collection('SharedDecoder', namespace)}/base")
    await watched.until(lambda fleet: not fleet.pool(pool))
    api.request("DELETE", f"{collection('SunModel', namespace)}/maths")
    await watched.until(lambda fleet: not fleet.tasks)


async def test_a_task_without_traffic_is_known_and_has_nowhere_to_go(
    api: Api, namespace: str, watched: Watched
) -> None:
    make_model(api, namespace, "idle")
    await watched.until(lambda fleet: f"{namespace}/idle" in fleet.tasks)
    assert watched.fleet.snapshot.tasks[f"{namespace}/idle"].routes == ()


async def test_changes_made_while_the_connection_was_cut_are_seen(api: Api, namespace: str, watched: Watched) -> None:
    make_fleet(api, namespace)
    await watched.until(served(namespace))
    for round_number in range(3):
        watched.proxy.cut()
        set_ready(api, namespace, "d", DECODE, ready=bool(round_number % 2))
        await watched.until(lambda fleet, want=round_number % 2: len(fleet.pool(f"{namespace}/base")) == want)  # type: ignore[misc]


async def test_a_watch_that_falls_silent_is_replaced(api: Api, namespace: str, watched: Watched) -> None:
    make_fleet(api, namespace)
    await watched.until(served(namespace))
    before = watched.proxy.connections
    watched.proxy.silence()
    set_ready(api, namespace, "d", DECODE, ready=False)
    await asyncio.sleep(3.0)
    assert served(namespace)(watched.fleet.snapshot), "the last fleet stays while the API server cannot be heard"
    watched.proxy.heal()
    await watched.until(lambda fleet: not fleet.pool(f"{namespace}/base"))
    assert watched.proxy.connections > before


async def test_watches_that_are_replaced_all_the_time_lose_no_event_and_leave_no_connection(
    api: Api, namespace: str, identity: Path, tmp_path: Path
) -> None:
    pool = f"{namespace}/base"
    async with watching(identity, namespace, tmp_path, watch_silence=0.15) as watched:
        await watched.until(lambda fleet: not fleet.pools)
        for _ in range(8):  # at other moments of a watch's life each time
            make_decoder(api, namespace)
            await watched.until(lambda fleet: pool in fleet.pools)
            await asyncio.sleep(0.37)
            api.request("DELETE", f"{collection('SharedDecoder', namespace)}/base")
            await watched.until(lambda fleet: pool not in fleet.pools)
        assert watched.proxy.connections > 20
        assert watched.proxy.open <= 6, "one for each kind, and those that are just being closed"


async def test_keys_come_change_and_go_with_their_secrets(watched: Watched, api: Api) -> None:
    def shown(key: str) -> dict[bytes, bytes]:
        return {b"authorization": b"Bearer " + key.encode()}

    def fields(*keys: str, tasks: str) -> dict[str, str]:
        return {"sha256": ",".join(sha256(key.encode()).hexdigest() for key in keys), "tasks": tasks}

    secrets = f"/api/v1/namespaces/{SYSTEM}/secrets"
    api.create(secrets, secret("alice", SYSTEM, fields("first", tasks="acme/*")))
    api.create(secrets, {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "other"}, "stringData": {"a": "b"}})
    await watched.until(lambda _: watched.ring.names == {"alice"})
    alice = watched.ring.identify(shown("first"))
    assert (alice.name, alice.allows("acme/maths"), alice.allows("code")) == ("alice", True, False)
    replaced = secret("alice", SYSTEM, fields("first", "second", tasks="*"))
    api.request("PATCH", f"{secrets}/alice", replaced, content_type=STATUS)
    await watched.until(lambda _: all(watched.ring.identify(shown("first")).allows(task) for task in ("code", "x")))
    assert watched.ring.identify(shown("second")).name == "alice"
    api.request("DELETE", f"{secrets}/alice")
    await watched.until(lambda _: not watched.ring.names)
    with pytest.raises(UnauthenticatedError):
        watched.ring.identify(shown("second"))


async def test_routers_count_each_other_to_share_the_limits(api: Api, watched: Watched) -> None:
    pods = f"/api/v1/namespaces/{SYSTEM}/pods"
    labels = {"app.kubernetes.io/component": "router", "app.kubernetes.io/part-of": "sunfleet"}
    try:
        for number in range(3):
            make_pod(api, SYSTEM, f"router-{number}", f"127.0.82.{number + 1}", labels)
        await watched.until(lambda _: watched.replicas.count == 3)
        set_ready(api, SYSTEM, "router-1", "127.0.82.2", ready=False)
        await watched.until(lambda _: watched.replicas.count == 2)
    finally:
        for number in range(3):
            api.request("DELETE", f"{pods}/router-{number}")
    await watched.until(lambda _: watched.replicas.count == 1)
