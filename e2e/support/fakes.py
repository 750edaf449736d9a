"""A fleet of fake engines on the cluster: its manifests, and how tests steer its pods."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any
from uuid import uuid4

from sunfleet_api import names
from sunfleet_fakes.harness import EngineControl
from support.kubectl import Json, Kubectl, KubectlError

API = f"{names.GROUP}/{names.VERSION}"
HUB_PORT = 8000
DECODER = "base"
MAX_MODEL_LEN = 512
_SMALL = {"requests": {"cpu": "10m", "memory": "64Mi"}, "limits": {"memory": "256Mi"}}
RESTRICTED: Json = {
    "allowPrivilegeEscalation": False,
    "readOnlyRootFilesystem": True,
    "capabilities": {"drop": ["ALL"]},
}


def hub(image: str) -> list[Json]:
    """A model hub with sample repositories: pod and Service ``hub``."""
    container: Json = {
        "name": "hub",
        "image": image,
        "command": ["python", "-m", "sunfleet_fakes.hub", str(HUB_PORT)],
        "resources": _SMALL,
        "securityContext": RESTRICTED,
        "readinessProbe": {"tcpSocket": {"port": HUB_PORT}, "periodSeconds": 1},
    }
    spec: Json = {
        "automountServiceAccountToken": False,
        "terminationGracePeriodSeconds": 1,
        "securityContext": {"runAsNonRoot": True, "runAsUser": 65532, "seccompProfile": {"type": "RuntimeDefault"}},
        "containers": [container],
    }
    service = {"selector": {"app": "hub"}, "ports": [{"port": HUB_PORT}]}
    return [
        {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "hub", "labels": {"app": "hub"}}, "spec": spec},
        {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "hub"}, "spec": service},
    ]


def secret(name: str, hub_namespace: str, **more: str) -> Json:
    """Points ``hf://`` URIs to the hub in that namespace; perhaps with a token."""
    data = {"HF_ENDPOINT": f"http://hub.{hub_namespace}.svc:{HUB_PORT}", **more}
    return {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name}, "stringData": data}


def decoder(
    image: str, *, name: str = DECODER, uri: str = "hf://acme/base", replicas: int = 1, drain_seconds: int | None = 30
) -> Json:
    """A SharedDecoder whose engines are fakes; ``drain_seconds`` of ``None`` is the API's default."""
    spec: Json = {
        "model": {"uri": uri, "credentialsSecretRef": {"name": "hub"}},
        "engine": {"image": image, "dtype": "float32", "blockSize": 16, "maxModelLen": MAX_MODEL_LEN},
        "replicas": replicas,
        "rollout": _rollout(drain_seconds),
        "template": _template(),
    }
    return {"apiVersion": API, "kind": "SharedDecoder", "metadata": {"name": name}, "spec": spec}


def sun_model(
    name: str, uri: str, *, model_name: str, decoder: str = DECODER, replicas: int = 1, credentials: str = "hub",
    drain_seconds: int | None = 30,
) -> Json:  # fmt: skip
    """A SunModel; a URI that ends in ``-lora`` (before its revision) is an adapter. ``drain_seconds`` as above."""
    source = {"uri": uri, "credentialsSecretRef": {"name": credentials}}
    spec: Json = {
        "modelName": model_name,
        "decoderRef": {"name": decoder},
        "prefill": {"adapter" if uri.partition("@")[0].endswith("-lora") else "weights": source},
        "replicas": replicas,
        "rollout": _rollout(drain_seconds),
        "template": _template(),
    }
    return {"apiVersion": API, "kind": "SunModel", "metadata": {"name": name}, "spec": spec}


def _rollout(drain_seconds: int | None) -> Json:
    return {} if drain_seconds is None else {"drainTimeoutSeconds": drain_seconds}


def _template() -> Json:
    return {"spec": {"containers": [{"name": names.ENGINE_CONTAINER, "resources": _SMALL}]}}


@dataclass(frozen=True)
class ApiProxy:
    """The API server on a plain local port (``kubectl proxy``), through which every pod can be reached."""

    url: str

    def engine(self, pod: Json) -> EngineControl:
        """The controls of the fake engine in this pod."""
        metadata = pod["metadata"]
        path = f"/api/v1/namespaces/{metadata['namespace']}/pods/{metadata['name']}:{names.ENGINE_PORT}/proxy"
        return EngineControl(self.url + path)

    def engines(self, pods: Sequence[Json]) -> list[EngineControl]:
        """The same for several."""
        return [self.engine(pod) for pod in pods]


@contextmanager
def api_proxy(kubectl: Kubectl) -> Iterator[ApiProxy]:
    """Run ``kubectl proxy`` for the time of the block."""
    command = kubectl.command("proxy", "--port=0", "--address=127.0.0.1")
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            said = process.stdout.readline()
            match = re.search(r"127\.0\.0\.1:\d+", said)
            if match is None:
                raise KubectlError(f"kubectl proxy: {said.strip() or 'ended without a word'}")
            yield ApiProxy(f"http://{match.group()}")
        finally:
            process.terminate()


def condition(thing: Json, kind: str) -> Json:
    """A condition of an object; empty when it is not there or speaks of an older generation."""
    generation = thing["metadata"].get("generation")
    found = (entry for entry in thing.get("status", {}).get("conditions", []) if entry["type"] == kind)
    entry: Json = next(found, {})
    return entry if entry.get("observedGeneration", generation) == generation else {}


def is_ready(thing: Json) -> bool:
    """Whether an object says that it is Ready, for its present generation."""
    return condition(thing, "Ready").get("status") == "True"


def uids(pods: Sequence[Json]) -> dict[str, str]:
    """Pod name -> UID."""
    return {pod["metadata"]["name"]: pod["metadata"]["uid"] for pod in pods}


def identity(engine: EngineControl) -> str:
    """What the fake engine calls the module that it serves."""
    config: Any = engine.request("GET", "/fake/config")
    return str(config["identity"])


def patch(kubectl: Kubectl, namespace: str, target: str, spec: Json) -> None:
    """Merge-patch the spec of ``sunmodel/NAME`` or ``shareddecoder/NAME``."""
    kubectl.run("patch", target, "--namespace", namespace, "--type=merge", "--patch", json.dumps({"spec": spec}))


def create_namespace(kubectl: Kubectl, prefix: str) -> str:
    """A fresh namespace with restricted Pod Security; its name."""
    name = f"e2e-{prefix}-{uuid4().hex[:6]}"
    labels = {"pod-security.kubernetes.io/enforce": "restricted", "sunfleet-e2e": "true"}
    kubectl.apply([{"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": labels}}])
    return name
