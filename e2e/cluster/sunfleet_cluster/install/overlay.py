"""The kustomization that puts this machine's images into the manifests. It lies in the state folder."""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

Manifest = dict[str, Any]

# Images that manifests name and ones that the operator is told of, by short name.
_IN_MANIFESTS = ("operator", "router")
_TOLD_TO_THE_OPERATOR = {
    "SUNFLEET_OPERATOR_ENGINE_IMAGE": "worker",
    "SUNFLEET_OPERATOR_WEIGHTS_IMAGE": "weights",
    "SUNFLEET_OPERATOR_TUNER_IMAGE": "tuner",
}
NEEDED = (*_IN_MANIFESTS, *_TOLD_TO_THE_OPERATOR.values())


def kustomization(folder: Path, manifests: Path, refs: Mapping[str, str]) -> Manifest:
    """The kustomization that lies in `folder`, builds on `manifests` and uses the images `refs` (by short name).

    kustomize refuses absolute paths, so the way to `manifests` is relative.
    """
    return {
        "apiVersion": "kustomize.config.k8s.io/v1beta1",
        "kind": "Kustomization",
        "resources": [os.path.relpath(manifests, folder)],
        "images": [_image(name, refs[name]) for name in _IN_MANIFESTS],
        "patches": [{"patch": yaml.safe_dump(_operator_patch(refs), sort_keys=False)}],
    }


def uninstall_batches(manifests: Sequence[Manifest]) -> list[list[Manifest]]:
    """What to delete, one batch after the other: what runs, in reverse order; the CRDs; the namespaces."""
    crds = [each for each in manifests if each["kind"] == "CustomResourceDefinition"]
    namespaces = [each for each in manifests if each["kind"] == "Namespace"]
    rest = [each for each in reversed(manifests) if each not in crds and each not in namespaces]
    return [batch for batch in (rest, crds, namespaces) if batch]


def _image(name: str, ref: str) -> Manifest:
    repository, _, tag = ref.rpartition(":")
    return {"name": f"sunfleet/{name}", "newName": repository, "newTag": tag}


def _operator_patch(refs: Mapping[str, str]) -> Manifest:
    environment = [{"name": name, "value": refs[image]} for name, image in _TOLD_TO_THE_OPERATOR.items()]
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "sunfleet-operator", "namespace": "sunfleet-system"},
        "spec": {"template": {"spec": {"containers": [{"name": "operator", "env": environment}]}}},
    }
