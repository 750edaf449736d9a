"""The Job that tunes a prefill module or quantises a decoder. Pure.

Its pods have no part of the cluster but their volumes: they say in their log how far they are, and in their termination
message what came out. A failure that another attempt would only repeat ends the Job at once (exit code
``EXIT_HOPELESS``); a pod that a node took away does not count against ``backoffLimit``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from sunfleet_api import names
from sunfleet_api.tuning import EXIT_HOPELESS, JOB_VARIABLE, RENDEZVOUS_PORT, QuantizeJob, TuneJob
from sunfleet_api.weights import parse_uri
from sunfleet_operator.build import labels
from sunfleet_operator.build.engine_pod import GPU, share_claims
from sunfleet_operator.build.merge import merge
from sunfleet_operator.build.security import CONTAINER_SECURITY, POD_SECURITY
from sunfleet_operator.build.weights import Fetcher, Weights, place
from sunfleet_operator.types import Json, Key, Manifest

# After SIGTERM: the step in hand ends, and checkpoints on their way to a bucket arrive.
_GRACE_SECONDS = 120


@dataclass(frozen=True)
class Place:
    """Where rows are read or a result is written: ``path`` in the pod, and the Secret that opens it."""

    uri: str
    path: str
    secret: str = ""
    prefix: str = ""  # of the Secret's variables

    @property
    def claim(self) -> str:
        """The claim that holds it; empty for what is reached over the network."""
        uri = parse_uri(self.uri)
        return uri.location if uri.scheme == "pvc" else ""

    @property
    def inside(self) -> str:
        """The path in the pod with that in the claim."""
        path = parse_uri(self.uri).path
        return f"{self.path}/{path}" if path else self.path


@dataclass(frozen=True)
class Work:
    """Everything that a run's pods depend on."""

    name: str
    role: str
    job: TuneJob | QuantizeJob
    image: str
    fetcher: Fetcher
    weights: Sequence[Weights]
    read: Sequence[Place]
    write: Place
    pull_policy: str = ""
    revision: str = ""  # hash of what is asked for, where an owner may ask again
    nodes: int = 1
    overlay: Mapping[str, Any] = field(default_factory=dict)  # spec.template
    limits: Mapping[str, Any] = field(default_factory=dict)  # of the Job: backoffLimit, deadlines, suspend


def processes(overlay: Mapping[str, Any]) -> int:
    """Of each pod: one for each GPU that its container gets."""
    mine = next((c for c in _containers(overlay) if c.get("name") == names.TUNER_CONTAINER), {})
    resources: Mapping[str, Any] = mine.get("resources") or _RESOURCES
    return max(1, int((resources.get("limits") or {}).get(GPU, 0)))


def run_job(owner: Json, key: Key, work: Work) -> Manifest:
    """The Job; several nodes make an Indexed one, whose pods find the first by the Service's name."""
    own_labels = {**labels.child_labels(key, work.role), names.LABEL_ROLE: work.role}
    own_labels |= {names.LABEL_REVISION: work.revision} if work.revision else {}
    indexed = {"completionMode": "Indexed", "completions": work.nodes, "parallelism": work.nodes}
    return labels.child(
        "batch/v1",
        "Job",
        name=work.name,
        owner=owner,
        labels=own_labels,
        spec={
            **(indexed if work.nodes > 1 else {}),
            **work.limits,
            "podReplacementPolicy": "Failed",
            "podFailurePolicy": {
                "rules": [
                    {
                        "action": "FailJob",
                        "onExitCodes": {
                            "containerName": names.TUNER_CONTAINER, "operator": "In", "values": [EXIT_HOPELESS],
                        },
                    },
                    {"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]},
                ]
            },
            "template": _template(work, own_labels),
        },
    )  # fmt: skip


def run_service(owner: Json, key: Key) -> Manifest:
    """Headless: the names by which a run's pods find each other, before any of them is ready."""
    return labels.child(
        "v1",
        "Service",
        name=labels.tuner_name(key),
        owner=owner,
        labels=labels.child_labels(key, names.ROLE_TUNER),
        spec={
            "clusterIP": "None",
            "publishNotReadyAddresses": True,
            "selector": {labels.owner_label(key.kind): key.name, names.LABEL_ROLE: names.ROLE_TUNER},
            "ports": [
                {"name": "rendezvous", "port": RENDEZVOUS_PORT, "targetPort": RENDEZVOUS_PORT, "protocol": "TCP"}
            ],
        },
    )


_RESOURCES: Manifest = {"requests": {"cpu": "2", "memory": "16Gi", GPU: "1"}, "limits": {GPU: "1"}}


def _containers(overlay: Mapping[str, Any]) -> Sequence[Mapping[str, Any]]:
    return (overlay.get("spec") or {}).get("containers") or ()


def _template(work: Work, own_labels: Mapping[str, str]) -> Manifest:
    """With the user's overlay; labels, the missing token and the policy's ``Never`` are not negotiable."""
    merged = merge({"metadata": {"labels": {}, "annotations": {}}, "spec": _spec(work)}, work.overlay)
    merged["metadata"]["labels"] = {**(merged["metadata"].get("labels") or {}), **own_labels}
    fixed = {"automountServiceAccountToken": False, "restartPolicy": "Never"}
    merged["spec"] = share_claims({**merged["spec"], **fixed})
    return merged


def _spec(work: Work) -> Manifest:
    placements = [place(weights, work.fetcher) for weights in work.weights]
    init = [container for placement in placements for container in placement.init_containers]
    volumes = {volume["name"]: volume for placement in placements for volume in placement.volumes}
    pull = [{"name": name} for name in dict.fromkeys(p.pull_secret for p in placements if p.pull_secret)]
    read = [_mounted(found, f"data-{number}") for number, found in enumerate(work.read) if found.claim]
    written_volume, written_mount = _written(work.write)
    return {
        "restartPolicy": "Never",
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "securityContext": POD_SECURITY,
        "terminationGracePeriodSeconds": _GRACE_SECONDS,
        **({"subdomain": work.name} if work.nodes > 1 else {}),
        **({"imagePullSecrets": pull} if pull else {}),
        **({"initContainers": init} if init else {}),
        "containers": [_tuner(work, [*(p.mount for p in placements), *(mount for _, mount in read), written_mount])],
        "volumes": [
            *volumes.values(),
            *(volume for volume, _ in read),
            written_volume,
            {"name": "tmp", "emptyDir": {}},
            {"name": "shm", "emptyDir": {"medium": "Memory"}},
        ],
    }


def _tuner(work: Work, mounts: Sequence[Manifest]) -> Manifest:
    secrets = {(where.prefix, where.secret): where for where in (*work.read, work.write) if where.secret}
    endpoint = [{"name": "HF_ENDPOINT", "value": work.fetcher.hf_endpoint}] if work.fetcher.hf_endpoint else []
    given = any(c.get("name") == names.TUNER_CONTAINER and "resources" in c for c in _containers(work.overlay))
    return {
        "name": names.TUNER_CONTAINER,
        "image": work.image,
        **({"imagePullPolicy": work.pull_policy} if work.pull_policy else {}),
        "env": [{"name": JOB_VARIABLE, "value": work.job.model_dump_json(exclude_defaults=False)}, *endpoint],
        **(
            {"envFrom": [{"prefix": prefix, "secretRef": {"name": secret}} for prefix, secret in sorted(secrets)]}
            if secrets
            else {}
        ),
        "securityContext": CONTAINER_SECURITY,
        **({} if given else {"resources": _RESOURCES}),
        "terminationMessagePolicy": "FallbackToLogsOnError",
        "volumeMounts": [
            *mounts,
            {"name": "tmp", "mountPath": "/tmp"},  # noqa: S108 - a path in the pod, on a volume of its own
            {"name": "shm", "mountPath": "/dev/shm"},  # noqa: S108
        ],
    }


def _mounted(found: Place, name: str) -> tuple[Manifest, Manifest]:
    """The whole claim: what lies in it may be a file or a folder."""
    volume = {"name": name, "persistentVolumeClaim": {"claimName": found.claim, "readOnly": True}}
    return volume, {"name": name, "mountPath": found.path, "readOnly": True}


def _written(found: Place) -> tuple[Manifest, Manifest]:
    """The claim, or room on the node for what goes to a bucket."""
    source = {"persistentVolumeClaim": {"claimName": found.claim}} if found.claim else {"emptyDir": {}}
    return {"name": "output", **source}, {"name": "output", "mountPath": found.path}
