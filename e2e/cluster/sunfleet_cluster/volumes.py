"""Folders of this machine as volumes of pods: the engine's environment and the sample weights, which pods only read.

Restricted pods may not mount host paths, but they may mount a claim, which may be bound to a local volume on the node.
"""

from pathlib import Path
from typing import Any

Manifest = dict[str, Any]

ENGINE_CLAIM = "sunfleet-engine"
MODELS_CLAIM = "sunfleet-models"
# Kubernetes wants a size; a local volume has no limit.
_SIZE = "10Gi"


def local_claim(claim: str, namespace: str, folder: Path, node: str, access: str = "ReadOnlyMany") -> list[Manifest]:
    """A claim in `namespace` and the one volume it is bound to: `folder` on `node`.

    A volume belongs to one claim, so each namespace gets a volume of its own for the same folder. Deleting claim and
    volume leaves the folder alone; a volume whose claim is gone must be deleted before another claim can have it.
    """
    volume = f"{claim}-{namespace}"
    common: Manifest = {
        "accessModes": [access],
        # The empty class: no provisioner shall answer the claim.
        "storageClassName": "",
    }
    return [
        {
            "apiVersion": "v1",
            "kind": "PersistentVolume",
            "metadata": {"name": volume, "labels": {"app.kubernetes.io/part-of": "sunfleet"}},
            "spec": common
            | {
                "capacity": {"storage": _SIZE},
                "persistentVolumeReclaimPolicy": "Retain",
                "claimRef": {"name": claim, "namespace": namespace},
                "local": {"path": str(folder)},
                "nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": [_on(node)]}]}},
            },
        },
        {
            "apiVersion": "v1",
            "kind": "PersistentVolumeClaim",
            "metadata": {"name": claim, "namespace": namespace, "labels": {"app.kubernetes.io/part-of": "sunfleet"}},
            "spec": common | {"volumeName": volume, "resources": {"requests": {"storage": _SIZE}}},
        },
    ]


def _on(node: str) -> Manifest:
    return {"key": "kubernetes.io/hostname", "operator": "In", "values": [node]}
