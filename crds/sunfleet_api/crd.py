"""CustomResourceDefinition documents: schema, subresources and the columns that ``kubectl get`` prints."""

from __future__ import annotations

from typing import Any, Final

from sunfleet_api import names
from sunfleet_api.kinds import KINDS
from sunfleet_api.prefill_pool import PREFILL_POOL
from sunfleet_api.prefill_tuning import PREFILL_TUNING
from sunfleet_api.schema import resource_schema
from sunfleet_api.serving_profile import SERVING_PROFILE
from sunfleet_api.shared_decoder import SHARED_DECODER
from sunfleet_api.sun_model import SUN_MODEL

CATEGORY: Final = "sunfleet"
Document = dict[str, Any]


def _column(name: str, path: str, kind: str = "string", *, wide: bool = False, about: str = "") -> Document:
    column: Document = {"name": name, "type": kind, "jsonPath": path}
    return column | ({"description": about} if about else {}) | ({"priority": 1} if wide else {})


def _condition(type_: str, part: str) -> str:
    return f".status.conditions[?(@.type=='{type_}')].{part}"


_READY: Final = (
    _column("Ready", _condition("Ready", "status")),
    _column("Reason", _condition("Ready", "reason")),
)
_PODS: Final = (
    _column("Replicas", ".spec.replicas", "integer", about="Pods that are wanted"),
    _column("ReadyReplicas", ".status.readyReplicas", "integer", about="Pods that are Ready"),
)
_TAIL: Final = (
    _column("Revision", ".status.currentRevision", wide=True),
    _column("Fingerprint", ".status.kvFingerprint.digest", wide=True, about="KV fingerprint"),
    _column("Message", _condition("Ready", "message"), wide=True),
    _column("Age", ".metadata.creationTimestamp", "date"),
)
COLUMNS: Final = {
    SHARED_DECODER.kind: (
        *_READY,
        *_PODS,
        _column("Models", ".status.attachedModels", "integer", about="SunModels that use this decoder"),
        _column("URI", ".spec.model.uri", wide=True),
        *_TAIL,
    ),
    SUN_MODEL.kind: (
        _column("Model", ".status.modelName", about="The OpenAI model name in effect"),
        _column("Decoder", ".spec.decoderRef.name"),
        *_READY,
        *_PODS,
        _column("Verified", ".status.conditions[?(@.type=='Verified')].status", wide=True),
        _column("Canary", ".status.canary.phase", about="How a canary stands", wide=True),
        *_TAIL,
    ),
    PREFILL_POOL.kind: (
        _column("Decoder", ".spec.decoderRef.name"),
        *_READY,
        *_PODS,
        _column("Models", ".status.attachedModels", "integer", about="SunModels that share these pods"),
        _column("Adapters", ".status.loadedAdapters", "integer", about="Adapters that a Ready pod has loaded"),
        _column("Wanted", ".status.wantedAdapters", "integer", wide=True, about="Adapters that are asked for"),
        _column("URI", ".spec.model.uri", wide=True),
        *_TAIL,
    ),
    PREFILL_TUNING.kind: (
        _column("Decoder", ".spec.decoderRef.name"),
        _column("Complete", _condition("Complete", "status")),
        _column("Reason", _condition("Progressing", "reason")),
        _column("Step", ".status.progress.step", "integer"),
        _column("Of", ".status.progress.totalSteps", "integer", about="Steps of the whole run"),
        _column("Loss", ".status.progress.loss"),
        _column("Artifact", ".status.artifact.uri", wide=True),
        _column("Message", _condition("Progressing", "message"), wide=True),
        _TAIL[-1],
    ),
    SERVING_PROFILE.kind: (
        *_READY,
        _column("Attached", ".status.attachedObjects", "integer", about="Objects that refer to this profile"),
        _TAIL[-1],
    ),
}
_SCALE: Final[Document] = {
    "scale": {
        "specReplicasPath": ".spec.replicas",
        "statusReplicasPath": ".status.replicas",
        "labelSelectorPath": ".status.selector",
    }
}


def crd(kind: str) -> Document:
    """The CustomResourceDefinition of one of our kinds."""
    model = KINDS[kind]
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": model.KIND.crd_name, "labels": {names.LABEL_PART_OF: names.MANAGED_BY}},
        "spec": {
            "group": names.GROUP,
            "scope": "Namespaced",
            "names": {
                "kind": model.KIND.kind,
                "listKind": f"{model.KIND.kind}List",
                "plural": model.KIND.plural,
                "singular": model.KIND.singular,
                "shortNames": list(model.KIND.short_names),
                "categories": [CATEGORY],
            },
            "versions": [
                {
                    "name": names.VERSION,
                    "served": True,
                    "storage": True,
                    "additionalPrinterColumns": list(COLUMNS[kind]),
                    "subresources": {"status": {}, **(_SCALE if model.KIND.scales else {})},
                    "schema": {"openAPIV3Schema": resource_schema(model)},
                }
            ],
        },
    }
