"""The policies of our manifests, on a network that enforces them."""

from __future__ import annotations

from pathlib import Path

import yaml

from smoke.objects import pod
from support.kubectl import Json, Kubectl, KubectlError, wait_until

BASE = Path(__file__).resolve().parents[2] / "manifests" / "base"
READY = ("wait", "--for=condition=Ready", "--timeout=60s")


def test_other_pods_reach_the_ports_that_are_offered_and_no_other(kubectl: Kubectl, namespace: str, image: str) -> None:
    offered = {("operator", "metrics", 9090), ("router", "http", 8080), ("router", "metrics", 9090)}
    closed = {("operator", "health", 8080), ("router", "other", 8081)}
    servers = [_server(component, port, number, image) for component, port, number in sorted(offered | closed)]
    kubectl.apply([*servers, pod("client", image, "wait"), *map(_policy, ("operator", "router"))], namespace)
    names = [server["metadata"]["name"] for server in servers]
    kubectl.run(*READY, *(f"pod/{name}" for name in (*names, "client")), f"--namespace={namespace}")

    def reached(component: str, port: str, number: int) -> bool:
        name = f"{component}-{port}"
        address = kubectl.get("pod", name, f"--namespace={namespace}")["status"]["podIP"]
        command = ("exec", "client", f"--namespace={namespace}", "--", "/probe", "get", f"http://{address}:{number}/")
        try:
            return kubectl.run(*command) == f"{name}\n"
        except KubectlError:
            return False

    wait_until("the policies", lambda: not any(reached(*each) for each in closed), 30)
    assert all(wait_until(str(each), lambda each=each: reached(*each), 20) for each in sorted(offered))


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
