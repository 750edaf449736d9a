"""One Deployment per revision. Its template comes from the revision's record and never changes. Pure."""

from __future__ import annotations

from sunfleet_api import names
from sunfleet_operator.build import labels
from sunfleet_operator.types import Json, Key, Manifest


def deployment(
    owner: Json, key: Key, revision: str, template: Json, *, progress_deadline_seconds: int, create_with: int | None
) -> Manifest:
    """The Deployment ``NAME-REVISION``.

    ``create_with`` is the replica count of one that does not exist yet, ``None`` for the API server's own of 1. For a
    live one it is ``None``: the field belongs to the scale manager, and naming it here would take it away.
    """
    replicas = {} if create_with is None else {"replicas": create_with}
    made = labels.child(
        "apps/v1",
        "Deployment",
        name=labels.child_name(key, revision),
        owner=owner,
        labels={
            **labels.child_labels(key, labels.role(key.kind)),
            names.LABEL_ROLE: labels.role(key.kind),
            names.LABEL_REVISION: revision,
        },
        spec={
            "selector": {"matchLabels": labels.revision_selector(key, revision)},
            "template": template,
            # Only a repaired template can ever roll; one after the other, since there may be no spare GPU.
            "strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 0, "maxUnavailable": 1}},
            "progressDeadlineSeconds": progress_deadline_seconds,
            "revisionHistoryLimit": 0,
        },
    )
    made["spec"] |= replicas
    return made


def scale(key: Key, revision: str, replicas: int) -> Manifest:
    """Just the replica count, for the scale field manager."""
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": labels.child_name(key, revision), "namespace": key.namespace},
        "spec": {"replicas": replicas},
    }
