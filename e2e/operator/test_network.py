"""Who gets through to engine pods, tried on a network that enforces the operator's policies."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from sunfleet_api import names
from support.fleets import Fleet
from support.kubectl import Json, Kubectl, KubectlError, wait_until
from support.reach import reaches

pytestmark = pytest.mark.timeout(240)
API, METRICS, SIDE, KV = names.ENGINE_PORT, names.METRICS_PORT, names.SIDE_CHANNEL_PORT, names.KV_PORT_FIRST
SYSTEM = "sunfleet-system"


@pytest.fixture(scope="module")
def fleet(make_fleet: Callable[[str], Fleet], kubectl: Kubectl, fake_image: str) -> Fleet:
    """A fleet that is Ready, and beside it pods of nobody and of a Prometheus."""
    made = make_fleet("network")
    kubectl.apply(made.manifests, made.namespace)
    kubectl.apply([_bystander("stranger", "stranger", fake_image), _bystander("prom", "prometheus", fake_image),
                   _bystander("router", "sunfleet-router", fake_image)], made.namespace)  # fmt: skip
    made.wait_ready()
    kubectl.run(
        "wait", "pod/stranger", "pod/prom", "pod/router", "--namespace", made.namespace, "--for=condition=Ready",
        "--timeout=60s",
    )  # fmt: skip
    return made


def _bystander(name: str, label: str, image: str) -> Json:
    container: Json = {
        "name": "main", "image": image, "command": ["sleep", "3600"],
        "resources": {"requests": {"cpu": "10m", "memory": "32Mi"}},
        "securityContext": {
            "allowPrivilegeEscalation": False, "readOnlyRootFilesystem": True, "capabilities": {"drop": ["ALL"]},
        },
    }  # fmt: skip
    spec: Json = {
        "automountServiceAccountToken": False,
        "terminationGracePeriodSeconds": 1,
        "securityContext": {"runAsNonRoot": True, "runAsUser": 65532, "seccompProfile": {"type": "RuntimeDefault"}},
        "containers": [container],
    }
    meta = {"name": name, "labels": {"app.kubernetes.io/name": label}}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": spec}


class Network:
    """Tries connections from one pod to another."""

    def __init__(self, fleet: Fleet) -> None:
        self._fleet = fleet

    def reached(self, client: str, server: Json, port: int, *, namespace: str = "") -> bool:
        """Whether a TCP connection from ``client`` (a pod, or kind/name) is accepted."""
        where, address = namespace or self._fleet.namespace, server["status"]["podIP"]
        return reaches(self._fleet.kubectl, client, where, address, port)

    def opens(self, client: str, server: Json, port: int, *, namespace: str = "") -> None:
        """Wait until it is: a policy engine is a moment behind new pods."""
        wait_until(f"{client} gets in", lambda: self.reached(client, server, port, namespace=namespace), 30)

    def closes(self, client: str, server: Json, port: int) -> None:
        """Wait until it is not."""
        wait_until(f"{client} is kept out", lambda: not self.reached(client, server, port), 30)


@pytest.fixture(scope="module")
def network(fleet: Fleet) -> Network:
    return Network(fleet)


def _engines(fleet: Fleet) -> tuple[Json, Json, Json]:
    """The decode pod, the prefill pod of maths, that of code."""
    (decode,), (maths,), (code,) = fleet.pods("decode"), fleet.pods("prefill", "maths"), fleet.pods("prefill", "code")
    return decode, maths, code


def _name(pod: Json) -> str:
    return str(pod["metadata"]["name"])


def test_only_routers_reach_the_engines_api(fleet: Fleet, network: Network) -> None:
    decode, maths, code = _engines(fleet)
    for engine in (decode, maths):
        network.closes("stranger", engine, API)
        # Its label alone opens nothing: it is in another namespace than the operator.
        assert not network.reached("router", engine, API)
        assert not network.reached("prom", engine, API)
        assert not network.reached(_name(code), engine, API)
        network.opens("deployment/sunfleet-router", engine, API, namespace=SYSTEM)


def test_only_prometheus_reaches_the_engines_metrics(fleet: Fleet, network: Network) -> None:
    for engine in _engines(fleet)[:2]:
        network.opens("prom", engine, METRICS)
        network.closes("stranger", engine, METRICS)
        assert not network.reached("deployment/sunfleet-router", engine, METRICS, namespace=SYSTEM)


def test_only_decode_pods_reach_a_tasks_kv(fleet: Fleet, network: Network) -> None:
    decode, maths, code = _engines(fleet)
    with _listening(fleet, maths, KV):
        for port in (SIDE, KV):
            network.opens(_name(decode), maths, port)
            for client in ("stranger", "prom", _name(code)):
                assert not network.reached(client, maths, port)
            assert not network.reached("deployment/sunfleet-router", maths, port, namespace=SYSTEM)


def test_a_decode_pods_kv_is_for_prefill_pods(fleet: Fleet, network: Network) -> None:
    decode, maths, _ = _engines(fleet)
    with _listening(fleet, decode, KV):
        network.opens(_name(maths), decode, KV)
        assert not network.reached("stranger", decode, KV)
        assert not network.reached(_name(maths), decode, SIDE)


def test_only_the_operator_reaches_the_routers_admin_port(kubectl: Kubectl, network: Network) -> None:
    (pod, *_) = kubectl.items("pods", "--namespace", SYSTEM, "--selector", "app.kubernetes.io/name=sunfleet-router")
    network.opens("deployment/sunfleet-operator", pod, names.ADMIN_PORT, namespace=SYSTEM)
    network.closes("stranger", pod, names.ADMIN_PORT)
    assert not network.reached("prom", pod, names.ADMIN_PORT)
    assert not network.reached("deployment/sunfleet-operator", pod, METRICS, namespace=SYSTEM)


def test_kubelet_still_sees_that_pods_are_ready(fleet: Fleet) -> None:
    for engine in _engines(fleet):
        states = {each["type"]: each["status"] for each in engine["status"]["conditions"]}
        assert states["Ready"] == "True"
        assert all(not status["restartCount"] for status in engine["status"]["containerStatuses"])


def test_a_deleted_policy_comes_back(fleet: Fleet, kubectl: Kubectl) -> None:
    place = ("networkpolicy", "maths-prefill", "--namespace", fleet.namespace)
    before = kubectl.get(*place)["metadata"]["uid"]
    kubectl.delete(*place)
    kubectl.run("annotate", "sunmodel/maths", "--namespace", fleet.namespace, "looked=again")  # or the next resync

    def back() -> bool:
        found = kubectl.find(*place)
        return found is not None and found["metadata"]["uid"] != before

    wait_until("the policy", back, 30)


@contextmanager
def _listening(fleet: Fleet, pod: Json, port: int) -> Iterator[None]:
    """A fake engine opens no KV port, so a server of our own in its pod does."""
    program = ("timeout", "120", "python", "-m", "http.server", str(port), "--directory", "/tmp")  # noqa: S108
    command = fleet.kubectl.command("exec", _name(pod), "--namespace", fleet.namespace, "--", *program)
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as server:
        try:
            _until_it_listens(fleet, pod, port)
            yield
        finally:
            server.terminate()


def _until_it_listens(fleet: Fleet, pod: Json, port: int) -> None:
    def local() -> bool:
        try:
            return reaches(fleet.kubectl, _name(pod), fleet.namespace, "127.0.0.1", port)
        except KubectlError:
            return False

    wait_until("a listener", local, 20)
