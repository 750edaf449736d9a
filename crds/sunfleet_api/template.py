"""``spec.template``: a user's overlay over the engine's pod, merged strategically (containers by name)."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Final

from pydantic import Field

from sunfleet_api import names
from sunfleet_api.base import ApiModel
from sunfleet_api.markers import Cel, Instead

# The API server keeps the pod spec as it is. Only the grace period is declared: CEL sees declared fields alone.
_POD_SPEC: Final = {
    "type": "object",
    "x-kubernetes-preserve-unknown-fields": True,
    "description": 'Pod spec to merge over ours; the engine\'s container is named "engine".',
    "properties": {
        "terminationGracePeriodSeconds": {
            "type": "integer",
            "format": "int64",
            "minimum": 0,
            "description": "At least preStop + rollout.drainTimeoutSeconds. Default: that and a margin.",
        }
    },
}
_LABEL_VALUE = Annotated[str, Field(max_length=63)]
_ANNOTATION_VALUE = Annotated[str, Field(max_length=4096)]


class TemplateMetadata(ApiModel):
    RULES: ClassVar = (
        Cel(
            f"!has(self.labels) || self.labels.all(key, !key.startsWith('{names.GROUP}/'))",
            f"labels under {names.GROUP}/ belong to the operator",
            ".labels",
        ),
    )

    labels: Annotated[dict[str, _LABEL_VALUE], Field(max_length=64)] = Field(default_factory=dict)
    """Added to the pods' labels."""
    annotations: Annotated[dict[str, _ANNOTATION_VALUE], Field(max_length=64)] = Field(default_factory=dict)
    """Added to the pods' annotations."""


class PodTemplate(ApiModel):
    """Overlay over the pods that the operator makes."""

    metadata: TemplateMetadata = Field(default_factory=TemplateMetadata)
    """Labels and annotations to add."""
    spec: Annotated[dict[str, Any], Instead(_POD_SPEC)] = Field(default_factory=dict)


# For the spec of every kind with ``template`` and ``rollout``.
GRACE_COVERS_DRAIN: Final = Cel(
    "!has(self.template) || !has(self.template.spec) || !has(self.template.spec.terminationGracePeriodSeconds) || "
    f"self.template.spec.terminationGracePeriodSeconds >= {names.PRE_STOP_SECONDS} + "
    "(has(self.rollout) && has(self.rollout.drainTimeoutSeconds) ? self.rollout.drainTimeoutSeconds : 300)",
    f"terminationGracePeriodSeconds must be at least {names.PRE_STOP_SECONDS} (preStop) "
    "+ rollout.drainTimeoutSeconds (300 unless set)",
    ".template.spec.terminationGracePeriodSeconds",
)
