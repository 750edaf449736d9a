"""The running cluster does what the fleet needs of it."""

import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest

from smoke.objects import pod, service, web_server
from sunfleet_cluster.cluster import Cluster
from support.kubectl import Json, Kubectl, KubectlError, wait_until

READY = ("wait", "--for=condition=Ready", "--timeout=60s")
_NO_PROXY = urllib.request.build_opener(urllib.request.ProxyHandler({}))


def test_status_is_healthy_and_changes_nothing(cluster: Cluster) -> None:
    before = _files(cluster.kubeconfig.parent)
    assert cluster.status().healthy
    assert _files(cluster.kubeconfig.parent) == before


def test_up_on_a_running_cluster_starts_nothing_and_takes_seconds(cluster: Cluster) -> None:
    before = {part.name: part.pid for part in cluster.status().parts}
    subprocess.run([sys.executable, "-m", "sunfleet_cluster", "up"], check=True, timeout=15)
    assert {part.name: part.pid for part in cluster.status().parts} == before


def test_the_node_offers_pretend_gpus_and_schedules_only_what_fits(
    kubectl: Kubectl, namespace: str, image: str
) -> None:
    fits = pod("fits", image, "wait", gpus=2)
    too_many = pod("too-many", image, "wait", gpus=64)
    kubectl.apply([fits, too_many], namespace)
    kubectl.run(*READY, "pod/fits", f"--namespace={namespace}")
    scheduled = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}
    conditions = kubectl.get("pod", "too-many", f"--namespace={namespace}")["status"]["conditions"]
    assert any(scheduled.items() <= condition.items() for condition in conditions)


def test_pods_find_services_by_name_and_reach_them(kubectl: Kubectl, namespace: str, image: str) -> None:
    client = pod("client", image, "wait")
    kubectl.apply([web_server("server", image), service("server"), client], namespace)
    kubectl.run(*READY, "pod/server", "pod/client", f"--namespace={namespace}")
    found = _exec(kubectl, namespace, "client", "resolve", "kubernetes.default.svc.cluster.local")
    assert kubectl.get("service", "kubernetes", "--namespace=default")["spec"]["clusterIP"] in found
    # A short name, so the search list of the pod's resolv.conf is right too. kube-proxy may be a moment behind.
    assert wait_until("the Service", lambda: _fetch(kubectl, namespace, "client", "http://server"), 20) == (
        "hello from server\n"
    )


def test_this_machine_reaches_pods_and_services(kubectl: Kubectl, namespace: str, image: str) -> None:
    kubectl.apply([web_server("server", image), service("server")], namespace)
    kubectl.run(*READY, "pod/server", f"--namespace={namespace}")
    pod_address = kubectl.get("pod", "server", f"--namespace={namespace}")["status"]["podIP"]
    cluster_address = kubectl.get("service", "server", f"--namespace={namespace}")["spec"]["clusterIP"]
    assert _get(f"http://{pod_address}:8080/") == "hello from server\n"
    assert wait_until("the Service", lambda: _try(f"http://{cluster_address}/"), 20) == "hello from server\n"


def test_exec_logs_and_port_forward_work(kubectl: Kubectl, namespace: str, image: str) -> None:
    kubectl.apply([web_server("server", image)], namespace)
    kubectl.run(*READY, "pod/server", f"--namespace={namespace}")
    assert "uid=65532" in _exec(kubectl, namespace, "server", "id")
    assert "serving" in kubectl.run("logs", "server", f"--namespace={namespace}")
    assert kubectl.pod_get(namespace, "server", 8080, "/") == "hello from server\n"
    with kubectl.port_forward(namespace, "pod/server", 8080) as url:
        assert _get(url) == "hello from server\n"


def test_network_policies_are_enforced_between_pods_and_spare_probes(
    kubectl: Kubectl, namespace: str, image: str
) -> None:
    clients = [pod(name, image, "wait") for name in ("friend", "stranger")]
    kubectl.apply([web_server("server", image), *clients], namespace)
    kubectl.run(*READY, "pod/server", "pod/friend", "pod/stranger", f"--namespace={namespace}")
    address = kubectl.get("pod", "server", f"--namespace={namespace}")["status"]["podIP"]
    url = f"http://{address}:8080/"
    assert _fetch(kubectl, namespace, "stranger", url) == "hello from server\n"

    kubectl.apply([_only_from("friend", to="server")], namespace)
    wait_until("the policy", lambda: _fetch(kubectl, namespace, "stranger", url) is None, 20)
    assert _fetch(kubectl, namespace, "friend", url) == "hello from server\n"
    kubectl.run("wait", "--for=condition=Ready", "--timeout=1s", "pod/server", f"--namespace={namespace}")

    kubectl.delete("networkpolicy", "--all", f"--namespace={namespace}")
    wait_until("the policy's end", lambda: _fetch(kubectl, namespace, "stranger", url), 20)


def test_restricted_pod_security_is_enforced(kubectl: Kubectl, namespace: str, image: str) -> None:
    careless = pod("careless", image, "wait")
    careless["spec"].pop("securityContext")
    with pytest.raises(KubectlError, match="violates PodSecurity"):
        kubectl.apply([careless], namespace)


def _only_from(name: str, to: str) -> Json:
    rule = {"from": [{"podSelector": {"matchLabels": {"app": name}}}], "ports": [{"port": 8080}]}
    spec = {"podSelector": {"matchLabels": {"app": to}}, "policyTypes": ["Ingress"], "ingress": [rule]}
    return {"apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy", "metadata": {"name": name}, "spec": spec}


def _exec(kubectl: Kubectl, namespace: str, name: str, *command: str) -> str:
    return kubectl.run("exec", name, f"--namespace={namespace}", "--", "/probe", *command)


def _fetch(kubectl: Kubectl, namespace: str, name: str, url: str) -> str | None:
    """What a pod gets from `url`; None when it gets no answer within two seconds."""
    try:
        return _exec(kubectl, namespace, name, "get", url)
    except KubectlError:
        return None


def _get(url: str) -> str:
    with _NO_PROXY.open(url, timeout=5) as answer:
        return str(answer.read().decode())


def _try(url: str) -> str | None:
    try:
        return _get(url)
    except OSError:
        return None


def _files(folder: Path) -> dict[str, int]:
    """Our own files of the cluster and when they changed; what components write while they run is left out."""
    ours = [
        folder / "admin.kubeconfig",
        *(folder / "config").rglob("*"),
        *(folder / "pki").iterdir(),
    ]
    return {str(file): file.stat().st_mtime_ns for file in ours}
