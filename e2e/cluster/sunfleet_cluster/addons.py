"""The objects that every embedded cluster has from the start (`manifests/addons.yaml`), and the pretend GPUs of its
node.
"""

import math
import textwrap
from datetime import datetime
from pathlib import Path
from string import Template

from sunfleet_cluster import configs
from sunfleet_cluster.api import ApiClient, Json
from sunfleet_cluster.kubectl import Kubectl
from sunfleet_cluster.layout import NODE_NAME, Layout

MANIFESTS = Path(__file__).resolve().parents[1] / "manifests"
GPU = "nvidia.com/gpu"
_DNS_DEPLOYMENT = "/apis/apps/v1/namespaces/kube-system/deployments/coredns"
_NODE = f"/api/v1/nodes/{NODE_NAME}"


def render(layout: Layout, coredns_image: str, resolv_conf: str) -> str:
    """The add-ons (YAML) for the cluster `layout`, whose DNS asks the servers of `resolv_conf` for names that are
    not the cluster's.
    """
    corefile = textwrap.indent(configs.corefile(resolv_conf), "    ").strip()
    template = Template((MANIFESTS / "addons.yaml").read_text())
    names = {"COREFILE": corefile, "DNS_ADDRESS": str(layout.addresses.dns), "COREDNS_IMAGE": coredns_image}
    return template.substitute(names)


def apply(layout: Layout, manifests: str) -> None:
    """Apply `manifests` as the field manager `sunfleet-cluster`."""
    Kubectl(str(layout.bin / "kubectl"), layout.admin, manager="sunfleet-cluster").apply(
        "--filename=-", stdin=manifests
    )


def pretend_gpus(api: ApiClient, count: int) -> None:
    """Make the node offer `count` GPUs. kubelet keeps what it did not put there, unless it registers the node anew."""
    node = api.get(_NODE)
    if node is not None and node["status"].get("allocatable", {}).get(GPU) != str(count):
        offer = {GPU: str(count)}
        api.merge(f"{_NODE}/status", {"status": {"capacity": offer, "allocatable": offer}})


def node_exists(api: ApiClient) -> bool:
    """Whether kubelet has registered its node."""
    return api.get(_NODE) is not None


def node_problem(api: ApiClient, since: float = 0.0) -> str | None:
    """Why the node cannot take pods, or None. What kubelet said before `since` (Unix time) does not count."""
    node = api.get(_NODE)
    if node is None:
        return "not registered"
    ready = _condition(node, "Ready")
    if ready.get("status") != "True":
        return f"not ready: {ready.get('message', 'no condition yet')}"
    return "nothing heard from this kubelet yet" if _heard(ready) < math.floor(since) else None


def _heard(condition: Json) -> float:
    """When kubelet last confirmed a condition (Unix time, whole seconds)."""
    return datetime.fromisoformat(condition["lastHeartbeatTime"]).timestamp()


def dns_problem(api: ApiClient) -> str | None:
    """Why cluster DNS does not answer, or None."""
    deployment = api.get(_DNS_DEPLOYMENT)
    if deployment is None:
        return "not installed"
    status = deployment.get("status", {})
    if status.get("observedGeneration") != deployment["metadata"]["generation"]:
        return "not yet seen by its controller"
    updated, available = status.get("updatedReplicas", 0), status.get("availableReplicas", 0)
    return None if updated and available else "no pod is ready"


def _condition(thing: Json, kind: str) -> Json:
    conditions: list[Json] = thing.get("status", {}).get("conditions", [])
    return next((condition for condition in conditions if condition["type"] == kind), {})
