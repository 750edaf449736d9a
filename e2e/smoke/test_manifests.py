"""The policies of our manifests, on a network that enforces them."""

from __future__ import annotations

from pathlib import Path

import yaml

from smoke.objects import pod
from support.kubectl import Json, Kubectl, KubectlError, wait_until

BASE = Path(__file__).resolve().parents[2] / "manifests" / "base"
READY = ("wait", "--for=condition=Ready", "--timeout=60s")


def test_clients_reach_what_is_offered_and_only_prometheus_the_metrics(
    kubectl: Kubectl, namespace: str, image: str
) -> None:
    offered = {("router", "http", 8080)}
    metrics = {("operator", "metrics", 9090), ("router", "metrics", 9090)}
    closed = {("operator", "health", 8080), ("router", "other", 8081)}
    servers = [_server(*each, image) for each in sorted(offered | metrics | closed)]
    prometheus = pod("prometheus", image, "wait")
    prometheus["metadata"]["labels"]["app.kubernetes.io/name"] = "prometheus"
    policies = map(_policy, ("operator", "router"))
    kubectl.apply([*servers, pod("client", image, "wait"), prometheus, *policies], namespace)
    names = [server["metadata"]["name"] for server in servers]
    kubectl.run(*READY, *(f"pod/{name}" for name in (*names, "client", "prometheus")), f"--namespace={namespace}")

    def reached(component: str, port: str, number: int, client: str = "client") -> bool:
        name = f"{component}-{port}"
        address = kubectl.get("pod", name, f"--namespace={namespace}")["status"]["podIP"]
        command = ("exec", client, f"--namespace={namespace}", "--", "/probe", "get", f"http://{address}:{number}/")
        try:
            return kubectl.run(*command) == f"{name}\n"
        except KubectlError:
            return False

    wait_until("the policies", lambda: not any(reached(*each) for each in closed | metrics), 30)
    assert all(wait_until(str(each), lambda each=each: reached(*each), 20) for each in sorted(offered))
    known = {(*each, "prometheus") for each in offered | metrics}
    assert all(wait_until(str(each), lambda each=each: reached(*each), 20) for each in sorted(known))
    assert not any(reached(*each, "prometheus") for each in closed)


def _server(component: str, port: str, number: int, image: str) -> Json:
    """A pod with the labels and the named port of a real one; probed, as policies must let kubelet."""
    name = f"{component}-{port}"
    server = pod(name, image, "serve", f":{number}", name, port=number)
    server["metadata"]["labels"] = {"app.kubernetes.io/name": f"sunfleet-{component}"}
    server["spec"]["containers"][0]["ports"] = [{"name": port, "containerPort": number}]
    return server


def _policy(component: str) -> Json:
    policy: Json = yaml.safe_load((BASE / component / "network-policy.yaml").read_text())
    del policy["metadata"]["namespace"]
    return policy
