"""prometheus-adapter on the cluster: metrics of Prometheus, served as external metrics by the aggregation layer."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import yaml

from support.fakes import RESTRICTED
from support.kubectl import Json, Kubectl

NAME = "prometheus-adapter"
API_SERVICE = "v1beta1.external.metrics.k8s.io"
VALUES = Path(__file__).resolve().parents[2] / "manifests/samples/scalers/prometheus-adapter.yaml"
_PORT = 6443
_READY_SECONDS = 60


@contextmanager
def running_adapter(kubectl: Kubectl, namespace: str, image: str, url: str) -> Iterator[None]:
    """Serve the rules of the sample values from the Prometheus at ``url``, and leave nothing behind."""
    shared = [*_permissions(namespace), _registration(namespace)]
    try:
        kubectl.apply(shared)
        kubectl.apply([_account(), _rules(), _deployment(image, url), _service()], namespace)
        limit = f"--timeout={_READY_SECONDS}s"
        kubectl.run("wait", "--for=condition=Available", limit, f"apiservice/{API_SERVICE}", timeout=_READY_SECONDS + 5)
        yield
    finally:
        for thing in shared:
            place = thing["metadata"].get("namespace")
            kubectl.delete(thing["kind"], thing["metadata"]["name"], *(("--namespace", place) if place else ()))


def _rules() -> Json:
    """The sample's rules in the form in which the chart gives them to the program."""
    rules = yaml.safe_load(VALUES.read_text())["rules"]["external"]
    data = {"config.yaml": yaml.safe_dump({"externalRules": rules})}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": NAME}, "data": data}


def _account() -> Json:
    return {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": NAME}}


def _service() -> Json:
    spec = {"selector": {"app": NAME}, "ports": [{"port": 443, "targetPort": _PORT}]}
    return {"apiVersion": "v1", "kind": "Service", "metadata": {"name": NAME}, "spec": spec}


def _registration(namespace: str) -> Json:
    version, _, group = API_SERVICE.partition(".")
    spec = {
        "group": group,
        "version": version,
        "groupPriorityMinimum": 100,
        "versionPriority": 100,
        "insecureSkipTLSVerify": True,
        "service": {"name": NAME, "namespace": namespace, "port": 443},
    }
    return {
        "apiVersion": "apiregistration.k8s.io/v1",
        "kind": "APIService",
        "metadata": {"name": API_SERVICE},
        "spec": spec,
    }


def _permissions(namespace: str) -> list[Json]:
    """To ask the API server who calls, and whether they may."""
    api = "rbac.authorization.k8s.io"
    subjects = [{"kind": "ServiceAccount", "name": NAME, "namespace": namespace}]
    delegate = {"apiGroup": api, "kind": "ClusterRole", "name": "system:auth-delegator"}
    reader = {"apiGroup": api, "kind": "Role", "name": "extension-apiserver-authentication-reader"}
    return [
        {
            "apiVersion": f"{api}/v1",
            "kind": "ClusterRoleBinding",
            "metadata": {"name": f"{namespace}-{NAME}"},
            "roleRef": delegate,
            "subjects": subjects,
        },
        {
            "apiVersion": f"{api}/v1",
            "kind": "RoleBinding",
            "metadata": {"name": f"{namespace}-{NAME}", "namespace": "kube-system"},
            "roleRef": reader,
            "subjects": subjects,
        },
    ]


def _deployment(image: str, url: str) -> Json:
    container: Json = {
        "name": NAME,
        "image": image,
        "args": [
            "--cert-dir=/certificates",
            "--config=/etc/adapter/config.yaml",
            "--metrics-relist-interval=10s",
            f"--prometheus-url={url}",
            f"--secure-port={_PORT}",
        ],
        "readinessProbe": {"httpGet": {"scheme": "HTTPS", "path": "/readyz", "port": _PORT}, "periodSeconds": 1},
        "resources": {"requests": {"cpu": "50m", "memory": "64Mi"}, "limits": {"memory": "256Mi"}},
        "securityContext": RESTRICTED,
        "volumeMounts": [
            {"name": "rules", "mountPath": "/etc/adapter"},
            {"name": "certificates", "mountPath": "/certificates"},
        ],
    }
    spec: Json = {
        "serviceAccountName": NAME,
        "terminationGracePeriodSeconds": 2,
        "securityContext": {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}},
        "containers": [container],
        "volumes": [{"name": "rules", "configMap": {"name": NAME}}, {"name": "certificates", "emptyDir": {}}],
    }
    labels = {"app": NAME}
    template = {"metadata": {"labels": labels}, "spec": spec}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": NAME},
        "spec": {"selector": {"matchLabels": labels}, "template": template},
    }
