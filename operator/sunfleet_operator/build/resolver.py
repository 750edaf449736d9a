"""The Job that finds out what a weights URI is: revision, digest and what the KV fingerprint needs. Pure.

Its one pod restarts for ever with kubelet's backoff, so a fixed Secret or a hub that is back needs no new Job; the
reason of each failure is the pod's termination message.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sunfleet_api import names
from sunfleet_api.weights import parse_uri
from sunfleet_operator.build import labels
from sunfleet_operator.build.security import POD_SECURITY
from sunfleet_operator.build.weights import MOUNTED_SCHEMES, Fetcher, Weights, container, mounted, support_volumes
from sunfleet_operator.types import Json, Key, Manifest

_FOREVER = 2**31 - 1


def resolver_job(
    owner: Json, key: Key, source: str, weights: Weights, fetcher: Fetcher, pod: Mapping[str, Any]
) -> Manifest:
    """``source`` is the hash of what is resolved; it is part of the name and the revision label. ``pod`` holds more
    fields of the pod."""
    volume, mount = mounted(weights) if parse_uri(weights.uri).scheme in MOUNTED_SCHEMES else (None, None)
    own_labels = {
        **labels.child_labels(key, names.ROLE_RESOLVER),
        names.LABEL_ROLE: names.ROLE_RESOLVER,
        names.LABEL_REVISION: source,
    }
    return labels.child(
        "batch/v1",
        "Job",
        name=labels.resolver_name(key, source),
        owner=owner,
        labels=own_labels,
        spec={
            "backoffLimit": _FOREVER,
            "template": {
                "metadata": {"labels": own_labels},
                "spec": {
                    **pod,
                    "restartPolicy": "OnFailure",
                    "automountServiceAccountToken": False,
                    "enableServiceLinks": False,
                    "securityContext": POD_SECURITY,
                    "containers": [
                        container(
                            names.ROLE_RESOLVER,
                            fetcher,
                            ["resolve", weights.uri, "--to", weights.path],
                            weights,
                            [mount] if mount else [],
                        )
                    ],
                    "volumes": [
                        *([volume] if volume else []),
                        *support_volumes(weights, fetcher),
                        {"name": "tmp", "emptyDir": {}},
                    ],
                },
            },
        },
    )
