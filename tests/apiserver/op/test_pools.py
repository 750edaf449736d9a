"""PrefillPools against a real API server: adapters are loaded through the pods' admin port, and no pod is touched."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from sunfleet_api import names
from sunfleet_api.pooling import PATH, announced
from sunfleet_optest.live import Fleet
from sunfleet_optest.objects import decoder, pool, pooled

pytestmark = pytest.mark.timeout(300)
Document = dict[str, Any]
ADDRESS = "127.0.0.71"  # of the one pod; the port is every pod's


class _Admin(BaseHTTPRequestHandler):
    """A pod's admin port, whose loads are done at once."""

    held: dict[str, str]

    def do_PUT(self) -> None:
        wanted = json.loads(self.rfile.read(int(self.headers["content-length"])))
        type(self).held = {one["name"]: one["digest"] for one in wanted["adapters"]}
        self.do_GET()

    def do_GET(self) -> None:
        adapters = [{"name": name, "digest": digest, "state": "Loaded"} for name, digest in type(self).held.items()]
        body = json.dumps({"adapters": adapters}).encode()
        self.send_response(200 if self.path == PATH else 404)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *arguments: object) -> None:  # noqa: A002 - the parent's signature
        """Silent."""


@contextmanager
def _admin() -> Iterator[type[_Admin]]:
    handler = type("Admin", (_Admin,), {"held": {}})
    server = ThreadingHTTPServer((ADDRESS, names.ADMIN_PORT), handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield handler
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def _pods(fleet: Fleet) -> list[Document]:
    """Of the pool's engine, not of its resolver."""
    found = fleet.items("api/v1", "pods")
    return [pod for pod in found if pod["metadata"]["labels"].get(names.LABEL_ROLE) == names.ROLE_PREFILL]


def _run_pod(fleet: Fleet, start: str = f"containerd://{1:064x}") -> None:
    """What ReplicaSet controller and kubelet do for the pool's one pod."""
    path = f"/api/v1/namespaces/{fleet.namespace}/pods"
    if not _pods(fleet):
        (deployment,) = fleet.deployments("spool").values()
        template = deployment["spec"]["template"]
        pod = {"metadata": {"name": "spool-pod", "labels": template["metadata"]["labels"]}, "spec": template["spec"]}
        fleet.api.create(path, pod, strict=False)
    engine = {
        "name": names.ENGINE_CONTAINER, "image": "i", "imageID": "", "ready": True, "restartCount": 0,
        "containerID": start, "state": {"running": {"startedAt": "2026-01-01T00:00:00Z"}},
    }  # fmt: skip
    ready = {"type": "Ready", "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z"}
    status = {"phase": "Running", "podIP": ADDRESS, "podIPs": [{"ip": ADDRESS}], "conditions": [ready]}
    fleet.api.merge(f"{path}/spool-pod/status", {"status": {**status, "containerStatuses": [engine]}})


def _announced(fleet: Fleet) -> frozenset[str]:
    (pod,) = _pods(fleet)
    return announced(pod["metadata"], pod["status"])


def _adapter(fleet: Fleet, task: str) -> str:
    (entry,) = fleet.get("SunModel", task)["status"]["traffic"]
    assert entry["prefill"]["pool"] == f"{fleet.namespace}/spool"
    return str(entry["prefill"]["adapter"])


def test_tasks_come_and_go_on_a_pool_without_a_write_to_its_pods_deployment(fleet: Fleet) -> None:
    fleet.apply(pooled("maths"))
    fleet.until(lambda: fleet.condition("SunModel", "maths")[1] == "DecoderNotFound", "what is missing is said")
    fleet.apply(decoder())
    fleet.until(lambda: fleet.condition("SunModel", "maths")[1] == "PoolNotFound", "the missing pool is said")
    fleet.apply(pool())
    fleet.until(lambda: bool(fleet.deployments("spool")), "the pool's Deployment")
    with _admin() as admin:
        _run_pod(fleet)
        fleet.until_ready(("PrefillPool", "spool"), ("SunModel", "maths"))
        (before,) = fleet.deployments("spool").values()
        fleet.apply(pooled("code"))
        fleet.until_ready(("SunModel", "code"))
        assert _announced(fleet) == set(admin.held) == {_adapter(fleet, "maths"), _adapter(fleet, "code")}

        _run_pod(fleet, f"containerd://{2:064x}")  # kubelet restarts the engine's container
        admin.held = {}
        fleet.until(lambda: len(admin.held) == 2 and _announced(fleet) == set(admin.held), "everything is loaded again")

        fleet.delete("SunModel", "code")
        fleet.until(lambda: set(admin.held) == {_adapter(fleet, "maths")} == _announced(fleet), "the pod lets go")
        (after,) = fleet.deployments("spool").values()
        assert after["metadata"]["generation"] == before["metadata"]["generation"]
        status = fleet.get("PrefillPool", "spool")["status"]
        assert (status["attachedModels"], status["loadedAdapters"]) == (1, 1)
        _scales(fleet)
        fleet.delete("SunModel", "maths")
        fleet.until(lambda: not admin.held, "nothing is held any more")
    fleet.delete("PrefillPool", "spool")


def _scales(fleet: Fleet) -> None:
    """A pool is the target of /scale; its Deployment follows."""
    path = f"{fleet.path('PrefillPool', 'spool')}/scale"
    assert names.LABEL_POOL in fleet.api.get(path)["status"]["selector"]
    fleet.api.merge(path, {"spec": {"replicas": 2}})
    fleet.until(lambda: _replicas(fleet) == 2, "two pods are wanted")


def _replicas(fleet: Fleet) -> int:
    (live,) = fleet.deployments("spool").values()
    return int(live["spec"]["replicas"])
