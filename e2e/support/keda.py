"""KEDA on the cluster, from the manifests and programs of its own module."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

import yaml

from sunfleet_cluster.programs import KEDA
from support.adapter import API_SERVICE
from support.kubectl import Json, Kubectl
from support.programs import module_folder

MODULE: Final = "github.com/kedacore/keda/v2"
NAMESPACE: Final = "keda"
_READY_SECONDS = 120
# Webhooks check what people write; nothing that is tested here needs them.
_LEFT_OUT = frozenset({"keda-admission", "keda-admission-webhooks"})


@contextmanager
def defined(kubectl: Kubectl) -> Iterator[None]:
    """Its kinds, without anybody who serves them."""
    made = [thing for thing in manifests(kubectl, {}) if thing["kind"] == "CustomResourceDefinition"]
    try:
        kubectl.apply(made)
        established = [f"crd/{thing['metadata']['name']}" for thing in made]
        kubectl.run("wait", "--for=condition=Established", "--timeout=30s", *established)
        yield
    finally:
        kubectl.run("delete", "--ignore-not-found", "--wait=false", "--filename=-", stdin=yaml.safe_dump_all(made))


@contextmanager
def running_keda(kubectl: Kubectl, images: dict[str, str]) -> Iterator[None]:
    """Start it where its kinds are defined, and leave nothing behind. ``images``: by the program's name."""
    made = [thing for thing in manifests(kubectl, images) if thing["kind"] != "CustomResourceDefinition"]
    try:
        kubectl.apply([thing for thing in made if thing["kind"] == "Namespace"])
        kubectl.apply([thing for thing in made if thing["kind"] != "Namespace"])
        limit = f"--timeout={_READY_SECONDS}s"
        kubectl.run("wait", "--for=condition=Available", limit, f"apiservice/{API_SERVICE}", timeout=_READY_SECONDS + 5)
        yield
    finally:
        kubectl.run("delete", "--ignore-not-found", "--wait=false", "--filename=-", stdin=yaml.safe_dump_all(made))


def manifests(kubectl: Kubectl, images: dict[str, str]) -> list[Json]:
    """KEDA's default installation with these images."""
    text = kubectl.run("kustomize", str(module_folder(KEDA[0], MODULE) / "config/default"))
    kept = [thing for thing in yaml.safe_load_all(text) if thing and thing["metadata"]["name"] not in _LEFT_OUT]
    for thing in kept:
        if images and thing["kind"] == "Deployment":
            _adapt(thing["spec"]["template"]["spec"]["containers"][0], images)
    return kept


def _adapt(container: Json, images: dict[str, str]) -> None:
    program = container["command"][0].removeprefix("/")
    container |= {"image": images[program], "imagePullPolicy": "Never"}
    container["resources"] = {"requests": {"cpu": "50m", "memory": "100Mi"}, "limits": {"memory": "1000Mi"}}
    if program == "keda":
        container["args"] = [*container["args"], "--enable-webhook-patching=false"]
    container["readinessProbe"] |= {"initialDelaySeconds": 1, "periodSeconds": 1}


def scaled_object(sample: Json, server: str, model: str) -> Json:
    """The sample for this Prometheus and model, quick enough for a test."""
    made: Json = json.loads(json.dumps(sample))
    spec = made["spec"]
    spec |= {"pollingInterval": 2, "cooldownPeriod": 5, "maxReplicaCount": 3}
    spec["advanced"] = {"horizontalPodAutoscalerConfig": {"behavior": {"scaleDown": {"stabilizationWindowSeconds": 0}}}}
    trigger = spec["triggers"][0]["metadata"]
    trigger |= {"serverAddress": server, "threshold": "5"}
    trigger["query"] = trigger["query"].replace('task="maths"', f'task="{model}"')
    return made
