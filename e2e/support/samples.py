"""The sample manifests and requests, and the namespace that they run in."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import yaml

from sunfleet_cluster.state import StateFolder
from sunfleet_cluster.volumes import ENGINE_CLAIM, MODELS_CLAIM, local_claim
from support.kubectl import Json, Kubectl, wait_until

SAMPLES = Path(__file__).resolve().parents[2] / "manifests" / "samples"
EMBEDDED = SAMPLES / "embedded"
REQUESTS = SAMPLES / "requests"
DELETION_SECONDS = 400  # engines may drain for five minutes


def documents(path: Path) -> list[Json]:
    """The objects of a manifest file."""
    return [document for document in yaml.safe_load_all(path.read_text()) if document]


def sample_request(task: str) -> dict[str, Any]:
    """The OpenAI chat request of ``manifests/samples/requests``."""
    body: dict[str, Any] = json.loads((REQUESTS / f"{task}.json").read_text())
    return body


def prefill_uri(model: Json) -> str:
    """The weights URI of a SunModel."""
    prefill = model["spec"]["prefill"]
    uri: str = (prefill.get("adapter") or prefill["weights"])["uri"]
    return uri


def namespace_objects(namespace: str, state: StateFolder, node: str) -> list[Json]:
    """A namespace under the restricted Pod Security Standard, with claims for models and engine on ``node``."""
    labels = {"pod-security.kubernetes.io/enforce": "restricted", "app.kubernetes.io/part-of": "sunfleet"}
    return [
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace, "labels": labels}},
        *local_claim(MODELS_CLAIM, namespace, state.models, node),
        *local_claim(ENGINE_CLAIM, namespace, state.engine, node),
    ]


def make_namespace(kubectl: Kubectl, namespace: str, state: StateFolder) -> None:
    """Make it, or bring it up to date; one that is being deleted is waited for."""
    gone = f"namespace {namespace}, which is being deleted, is gone"
    wait_until(gone, lambda: not _being_deleted(kubectl, namespace), DELETION_SECONDS)
    for volume in _volumes(namespace):
        found = kubectl.find("persistentvolume", volume)
        if found and found.get("status", {}).get("phase") in {"Released", "Failed"}:
            # Its claim went with an earlier namespace of this name; a volume never binds to a second one.
            kubectl.delete("persistentvolume", volume)
    (node,) = kubectl.items("nodes")  # every cluster of ours has one
    kubectl.apply(namespace_objects(namespace, state, node["metadata"]["labels"]["kubernetes.io/hostname"]))


def _being_deleted(kubectl: Kubectl, namespace: str) -> bool:
    found = kubectl.find("namespace", namespace)
    return found is not None and "deletionTimestamp" in found["metadata"]


def delete_namespace(kubectl: Kubectl, namespace: str, timeout: float = 120.0) -> None:
    """Delete it with its volumes, and wait until both are gone."""
    kubectl.delete("namespace", namespace, timeout=timeout)
    kubectl.delete("persistentvolume", *_volumes(namespace), timeout=timeout)


def _volumes(namespace: str) -> list[str]:
    """Names of the namespace's volumes, which do not go with it."""
    return [f"{claim}-{namespace}" for claim in (MODELS_CLAIM, ENGINE_CLAIM)]
