"""What stands beside the pods of a pool whatever their revision: a headless Service and a PodDisruptionBudget."""

from __future__ import annotations

from sunfleet_api import names
from sunfleet_operator.build import labels
from sunfleet_operator.types import Json, Key, Manifest


def service(owner: Json, key: Key) -> Manifest:
    """Headless: it gives the pool a name in the DNS and picks no pod, which is the router's work."""
    return labels.child(
        "v1",
        "Service",
        name=labels.pool_name(key),
        owner=owner,
        labels=labels.child_labels(key, labels.role(key.kind)),
        spec={
            "clusterIP": "None",
            "selector": labels.pool_selector(key),
            "ports": [{"name": "http", "port": names.ENGINE_PORT, "targetPort": "http", "protocol": "TCP"}],
        },
    )


def disruption_budget(owner: Json, key: Key) -> Manifest:
    """One pod at a time, and a pod that is not healthy anyway never holds up a node drain."""
    return labels.child(
        "policy/v1",
        "PodDisruptionBudget",
        name=labels.pool_name(key),
        owner=owner,
        labels=labels.child_labels(key, labels.role(key.kind)),
        spec={
            "maxUnavailable": 1,
            "unhealthyPodEvictionPolicy": "AlwaysAllow",
            "selector": {"matchLabels": labels.pool_selector(key)},
        },
    )
