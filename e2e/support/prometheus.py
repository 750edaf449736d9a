"""A real Prometheus on the cluster, which scrapes what the shipped PodMonitors name; and the operator that asks it."""

from __future__ import annotations

import json
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from support.fakes import RESTRICTED, create_namespace
from support.kubectl import Json, Kubectl, wait_until
from support.operator_settings import operator_with
from support.scrape import configuration, with_discovery_over_http

NAME = "prometheus"
PORT = 9090
_DISCOVERY_PORT = 9091
MONITORS = Path(__file__).resolve().parents[2] / "manifests/components/monitors/podmonitors.yaml"
# Quicker than anybody would set it, so that minutes become seconds; each is the smallest that its rule allows.
SCRAPE_INTERVAL = "2s"
WINDOW_SECONDS = 10
ROUND_SECONDS = 2
READY_SECONDS = 60
_NO_PROXY = urllib.request.build_opener(urllib.request.ProxyHandler({}))


@dataclass(frozen=True)
class Prometheus:
    """The server in its own namespace. ``api``: where this machine reaches its HTTP API."""

    kubectl: Kubectl
    namespace: str
    api: str

    @property
    def url(self) -> str:
        """For pods."""
        return f"http://{NAME}.{self.namespace}.svc:{PORT}"

    def query(self, text: str) -> list[Json]:
        """Series of an instant query: ``metric`` (labels) and ``value`` (time, text). ValueError says what is wrong."""
        form = urllib.parse.urlencode({"query": text}).encode()
        try:
            with _NO_PROXY.open(f"{self.api}/api/v1/query", form, timeout=10) as answer:
                body: Any = json.load(answer)
        except urllib.error.HTTPError as error:
            raise ValueError(f"{text}: {error.code} {error.read().decode(errors='replace')}") from error
        found: list[Json] = body["data"]["result"]
        return found

    def wait_for(self, what: str, query: str, seconds: float = 30) -> list[Json]:
        """The series of a query, once there are any."""
        found: list[Json] = wait_until(what, lambda: self.query(query), seconds)
        return found

    def pods(self, query: str) -> set[tuple[str, str]]:
        """Namespace and name of every pod that the series of a query are of."""
        return {(one["metric"]["namespace"], one["metric"]["pod"]) for one in self.query(query)}

    def stop(self) -> None:
        """No pod, so no answer."""
        self._scale(0)
        wait_until("no pod of Prometheus", lambda: not self._own_pods(), READY_SECONDS, 0.5)

    def start(self) -> None:
        """And it answers again, without what it knew."""
        self._scale(1)
        self.wait_ready()

    def wait_ready(self) -> None:
        where = ("--namespace", self.namespace, f"--timeout={READY_SECONDS}s")
        self.kubectl.run("rollout", "status", f"deployment/{NAME}", *where, timeout=READY_SECONDS + 10)

    def configure(self, settings: Json) -> None:
        """Replace its configuration; it starts anew."""
        self.kubectl.apply([_config_map(settings)], self.namespace)
        self.kubectl.run("rollout", "restart", f"deployment/{NAME}", "--namespace", self.namespace)
        self.wait_ready()

    def _scale(self, replicas: int) -> None:
        self.kubectl.run("scale", f"deployment/{NAME}", f"--replicas={replicas}", "--namespace", self.namespace)

    def _own_pods(self) -> list[Json]:
        return self.kubectl.items("pods", "--namespace", self.namespace, "--selector", f"app={NAME}")


def from_monitors() -> Json:
    """The configuration that the shipped PodMonitors become."""
    return configuration(yaml.safe_load_all(MONITORS.read_text()), SCRAPE_INTERVAL)


@contextmanager
def running_prometheus(kubectl: Kubectl, image: str, discovery: str, proxy: str) -> Iterator[Prometheus]:
    """Start it, and leave nothing behind. ``discovery``: the image of ``sunfleet_fakes``; ``proxy``: ``kubectl proxy``,
    through which it is reached."""
    namespace = create_namespace(kubectl, NAME)
    roles = _discovery(namespace)
    try:
        kubectl.apply(roles)
        kubectl.apply([_account(), _config_map(from_monitors()), _deployment(image, discovery), _service()], namespace)
        path = f"/api/v1/namespaces/{namespace}/services/{NAME}:{PORT}/proxy"
        prometheus = Prometheus(kubectl, namespace, proxy + path)
        prometheus.wait_ready()
        yield prometheus
    finally:
        for role in roles:
            kubectl.delete(role["kind"], role["metadata"]["name"])
        kubectl.run("delete", "namespace", namespace, "--wait=false", "--ignore-not-found")


@contextmanager
def asking_operator(kubectl: Kubectl, url: str) -> Iterator[None]:
    """For the time of the block the operator decides from the Prometheus at ``url``, often."""
    variables = {
        "SUNFLEET_OPERATOR_PROMETHEUS__URL": url,
        "SUNFLEET_OPERATOR_PROMETHEUS__WINDOW_SECONDS": str(WINDOW_SECONDS),
        "SUNFLEET_OPERATOR_SCALING_INTERVAL_SECONDS": str(ROUND_SECONDS),
    }
    with operator_with(kubectl, variables):
        yield


def _discovery(namespace: str) -> list[Json]:
    """What it may read: pods, to find those that it scrapes. Cluster-wide objects, named by the namespace."""
    name, api = f"sunfleet-{namespace}", "rbac.authorization.k8s.io"
    rules = [{"apiGroups": [""], "resources": ["pods"], "verbs": ["get", "list", "watch"]}]
    reference = {"apiGroup": api, "kind": "ClusterRole", "name": name}
    subjects = [{"kind": "ServiceAccount", "name": NAME, "namespace": namespace}]
    head: Json = {"apiVersion": f"{api}/v1", "metadata": {"name": name}}
    return [
        {**head, "kind": "ClusterRole", "rules": rules},
        {**head, "kind": "ClusterRoleBinding", "roleRef": reference, "subjects": subjects},
    ]


def _account() -> Json:
    return {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": NAME}}


def _config_map(settings: Json) -> Json:
    found = with_discovery_over_http(settings, f"127.0.0.1:{_DISCOVERY_PORT}", SCRAPE_INTERVAL)
    data = {"prometheus.yml": yaml.safe_dump(found, sort_keys=False)}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": NAME}, "data": data}


def _service() -> Json:
    spec = {"selector": {"app": NAME}, "ports": [{"name": "http", "port": PORT}]}
    return {"apiVersion": "v1", "kind": "Service", "metadata": {"name": NAME}, "spec": spec}


def _deployment(image: str, discovery: str) -> Json:
    mounts = {"config": "/etc/prometheus", "data": "/data"}
    container: Json = {
        "name": NAME,
        "image": image,
        "args": ["--config.file=/etc/prometheus/prometheus.yml", "--storage.tsdb.path=/data"],
        "ports": [{"name": "http", "containerPort": PORT}],
        "readinessProbe": {"httpGet": {"path": "/-/ready", "port": "http"}, "periodSeconds": 1},
        "resources": {"requests": {"cpu": "50m", "memory": "128Mi"}, "limits": {"memory": "512Mi"}},
        "securityContext": RESTRICTED,
        "volumeMounts": [{"name": name, "mountPath": path} for name, path in mounts.items()],
    }
    finder: Json = {
        "name": "discovery",
        "image": discovery,
        "command": ["python", "-m", "sunfleet_fakes.discovery", str(_DISCOVERY_PORT)],
        "resources": {"requests": {"cpu": "10m", "memory": "32Mi"}, "limits": {"memory": "128Mi"}},
        "securityContext": RESTRICTED,
    }
    spec: Json = {
        "serviceAccountName": NAME,
        "terminationGracePeriodSeconds": 2,
        "securityContext": {"runAsNonRoot": True, "runAsUser": 65532, "seccompProfile": {"type": "RuntimeDefault"}},
        "containers": [container, finder],
        "volumes": [{"name": "config", "configMap": {"name": NAME}}, {"name": "data", "emptyDir": {}}],
    }
    labels: Mapping[str, str] = {"app": NAME}
    # The second is the usual one, by which the policies of what is scraped know a Prometheus.
    template = {"metadata": {"labels": {**labels, "app.kubernetes.io/name": NAME}}, "spec": spec}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": NAME},
        "spec": {"selector": {"matchLabels": labels}, "strategy": {"type": "Recreate"}, "template": template},
    }
