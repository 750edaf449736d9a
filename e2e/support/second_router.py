"""A second router beside the installed one, with settings of its own, for the engines of one namespace."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from support.fleet import ROUTER_NAMESPACE
from support.kubectl import Json, Kubectl

_LABEL = "app.kubernetes.io/name"
_PORT = 8080
_WHERE = ("--namespace", ROUTER_NAMESPACE)


def peer(name: str) -> Json:
    """A NetworkPolicyPeer: the second router called so."""
    space = {"matchLabels": {"kubernetes.io/metadata.name": ROUTER_NAMESPACE}}
    return {"namespaceSelector": space, "podSelector": {"matchLabels": {_LABEL: name}}}


@contextmanager
def second_router(
    kubectl: Kubectl, name: str, namespace: str, settings: Mapping[str, str], secrets: Mapping[str, str]
) -> Iterator[str]:
    """Its address, once it is ready. ``namespace``: the one that it serves; ``settings``: without their prefix;
    ``secrets``: where which Secret of the router's namespace is mounted."""
    live = kubectl.get("deployment/sunfleet-router", *_WHERE)
    kubectl.apply([_manifest(live, name, {"NAMESPACES": namespace, **settings}, secrets)], ROUTER_NAMESPACE)
    try:
        kubectl.run("rollout", "status", f"deployment/{name}", *_WHERE, "--timeout=90s", timeout=100)
        with kubectl.port_forward(ROUTER_NAMESPACE, f"deployment/{name}", _PORT) as url:
            yield url
    finally:
        kubectl.run("delete", f"deployment/{name}", *_WHERE, "--ignore-not-found", "--wait=false")
        # Nobody's requests are left, and its drain is that of a router with clients.
        kubectl.run("delete", "pods", "--selector", f"{_LABEL}={name}", *_WHERE, "--grace-period=1", "--wait=false")


def _manifest(live: Json, name: str, settings: Mapping[str, str], secrets: Mapping[str, str]) -> Json:
    """As the installed one, under other labels: its Service and its policies are not this one's."""
    labels = {_LABEL: name}
    pod = {**live["spec"]["template"]["spec"], "topologySpreadConstraints": []}
    (container,) = pod["containers"]
    variables = [{"name": f"SUNFLEET_ROUTER_{key}", "value": value} for key, value in settings.items()]
    mounts = [{"name": secret, "mountPath": path, "readOnly": True} for secret, path in secrets.items()]
    volumes = [{"name": secret, "secret": {"secretName": secret}} for secret in secrets]
    container = {
        **container,
        "env": [*container.get("env", []), *variables],
        "volumeMounts": [*container["volumeMounts"], *mounts],
    }
    pod |= {"containers": [container], "volumes": [*pod["volumes"], *volumes]}
    spec = {
        "replicas": 1,
        "selector": {"matchLabels": labels},
        "template": {"metadata": {"labels": labels}, "spec": pod},
    }
    return {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": name}, "spec": spec}
