"""The pod template of an engine, of either role. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from sunfleet_api import names
from sunfleet_api.worker import ENV_PREFIX, WorkerSettings
from sunfleet_operator.build.adapters import Supply, supplied
from sunfleet_operator.build.merge import merge
from sunfleet_operator.build.security import CONTAINER_SECURITY, POD_SECURITY, engine_key, tls_mount, tls_volume
from sunfleet_operator.build.weights import Fetcher, Placement, Weights, place
from sunfleet_operator.types import Json, Manifest

GPU = "nvidia.com/gpu"
# After preStop and drain: closing connections, releasing KV, writing the last metrics.
GRACE_MARGIN_SECONDS = 30
# Part of every revision. Raised only when pods of the form before cannot run: it rolls every pod of every fleet.
FORM = 1
_PROBE_PERIOD_SECONDS = 5
_ADMIN = ({"name": "admin", "containerPort": names.ADMIN_PORT, "protocol": "TCP"},)
_REVISION_LABELS = (names.LABEL_DECODER, names.LABEL_MODEL, names.LABEL_POOL, names.LABEL_ROLE, names.LABEL_REVISION)


@dataclass(frozen=True)
class EnginePod:
    """Everything that one revision's pods depend on."""

    image: str
    pull_policy: str
    settings: WorkerSettings
    weights: Sequence[Weights]
    fetcher: Fetcher
    labels: Mapping[str, str]
    start_deadline_seconds: int  # how long an engine may take from start to healthy
    overlay: Mapping[str, Any] = field(default_factory=dict)  # spec.template
    supply: Supply | None = None  # of a PrefillPool's pods
    key_secret: str = ""  # Secret with the key that callers must show
    tls_secret: str = ""  # Secret with which the API speaks TLS


def template(pod: EnginePod) -> Manifest:
    """``spec.template`` of a Deployment, with the user's overlay; labels and the missing token are not negotiable."""
    placements = [place(weights, pod.fetcher) for weights in pod.weights]
    placements += supplied(pod.supply, pod.fetcher) if pod.supply is not None else []
    built: Manifest = {"metadata": {"labels": {}, "annotations": {}}, "spec": _spec(pod, placements)}
    merged = merge(built, pod.overlay)
    merged["metadata"]["labels"] = {**(merged["metadata"].get("labels") or {}), **pod.labels}
    merged["spec"] = share_claims({**merged["spec"], "automountServiceAccountToken": False})
    return merged


def share_claims(spec: Manifest) -> Manifest:
    """One volume per claim: kubelet waits for ever for the second of two volumes of one claim (kubernetes#28502).

    It can be written when one of them could; the mounts say who may.
    """
    kept: dict[str, str] = {}  # claim -> name of its volume
    written = {_claim(volume) for volume in spec.get("volumes") or () if not _read_only(volume)}
    renamed: dict[str, str] = {}
    volumes = []
    for volume in spec.get("volumes") or ():
        claim = _claim(volume)
        if claim in kept:
            renamed[volume["name"]] = kept[claim]
            continue
        if claim:
            kept[claim] = volume["name"]
        shared = {"persistentVolumeClaim": {"claimName": claim}} if claim in written and _read_only(volume) else {}
        volumes.append({**volume, **shared})
    containers: Manifest = {
        field: [_with_volumes(container, renamed) for container in spec[field]]
        for field in ("initContainers", "containers")
        if field in spec
    }
    return {**spec, **containers, "volumes": volumes}


def _claim(volume: Json) -> str:
    return str((volume.get("persistentVolumeClaim") or {}).get("claimName") or "")


def _read_only(volume: Json) -> bool:
    return bool((volume.get("persistentVolumeClaim") or {}).get("readOnly"))


def _with_volumes(container: Manifest, renamed: Mapping[str, str]) -> Manifest:
    mounts = [
        {**mount, "name": renamed.get(mount["name"], mount["name"])} for mount in container.get("volumeMounts") or ()
    ]
    return {**container, "volumeMounts": mounts} if mounts else container


def _spec(pod: EnginePod, placements: Sequence[Placement]) -> Manifest:
    init = [container for placement in placements for container in placement.init_containers]
    volumes = {volume["name"]: volume for placement in placements for volume in placement.volumes}
    pull = [{"name": name} for name in dict.fromkeys(p.pull_secret for p in placements if p.pull_secret)]
    return {
        "topologySpreadConstraints": spread(pod.labels),
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "securityContext": POD_SECURITY,
        "terminationGracePeriodSeconds": grace_period(pod.settings.drain_timeout_seconds),
        **({"imagePullSecrets": pull} if pull else {}),
        **({"initContainers": init} if init else {}),
        "containers": [_engine(pod, placements)],
        "volumes": [
            *volumes.values(),
            *tls_volume(pod.tls_secret, key=True),
            {"name": "tmp", "emptyDir": {}},
            {"name": "shm", "emptyDir": {"medium": "Memory"}},
        ],
    }


def spread(pod_labels: Mapping[str, str]) -> list[Manifest]:
    """A revision's pods over nodes and zones, where there is room: a node that fails takes as few as it can."""
    selector = {key: pod_labels[key] for key in _REVISION_LABELS if key in pod_labels}
    return [
        {
            "maxSkew": 1,
            "topologyKey": key,
            "whenUnsatisfiable": "ScheduleAnyway",  # never the reason that a pod waits
            "labelSelector": {"matchLabels": selector},
        }
        for key in ("kubernetes.io/hostname", "topology.kubernetes.io/zone")
    ]


def grace_period(drain_timeout_seconds: int) -> int:
    """Seconds from deletion to SIGKILL: preStop, then the drain, then a margin."""
    return names.PRE_STOP_SECONDS + drain_timeout_seconds + GRACE_MARGIN_SECONDS


def _engine(pod: EnginePod, placements: Sequence[Placement]) -> Manifest:
    return {
        "name": names.ENGINE_CONTAINER,
        "image": pod.image,
        **({"imagePullPolicy": pod.pull_policy} if pod.pull_policy else {}),
        "env": [*_env(_settings(pod)), *engine_key(f"{ENV_PREFIX}API_KEY", pod.key_secret)],
        "ports": [
            {"name": "http", "containerPort": names.ENGINE_PORT, "protocol": "TCP"},
            {"name": "metrics", "containerPort": names.METRICS_PORT, "protocol": "TCP"},
            {"name": "kv-side", "containerPort": names.SIDE_CHANNEL_PORT, "protocol": "TCP"},
            *(_ADMIN if pod.supply is not None else ()),
        ],
        "securityContext": CONTAINER_SECURITY,
        **({} if _sets_resources(pod.overlay) else {"resources": default_resources(pod.settings.tensor_parallel_size)}),
        **_probes(pod.start_deadline_seconds, "HTTPS" if pod.tls_secret else ""),
        # Endpoints and routers need a moment to learn that the pod goes; until then it still answers.
        "lifecycle": {"preStop": {"sleep": {"seconds": names.PRE_STOP_SECONDS}}},
        "terminationMessagePolicy": "FallbackToLogsOnError",
        "volumeMounts": [
            *(placement.mount for placement in placements),
            *tls_mount(pod.tls_secret),
            {"name": "tmp", "mountPath": "/tmp"},  # noqa: S108 - a path in the pod, on a volume of its own
            {"name": "shm", "mountPath": "/dev/shm"},  # noqa: S108
        ],
    }


def default_resources(tensor_parallel_size: int) -> Manifest:
    """One GPU per tensor-parallel rank. The requests keep an engine from being the first to starve or to be evicted."""
    gpus = str(tensor_parallel_size)
    return {"requests": {"cpu": "1", "memory": "4Gi", GPU: gpus}, "limits": {GPU: gpus}}


def _sets_resources(overlay: Json) -> bool:
    containers = (overlay.get("spec") or {}).get("containers") or ()
    return any(c.get("name") == names.ENGINE_CONTAINER and "resources" in c for c in containers)


def _settings(pod: EnginePod) -> WorkerSettings:
    return pod.settings.model_copy(update={"tls_path": names.TLS_PATH if pod.tls_secret else ""})


def _env(settings: WorkerSettings) -> list[Manifest]:
    """Sorted, so that equal settings always make an equal template."""
    given = [{"name": key, "value": value} for key, value in sorted(settings.to_env().items())]
    return [
        *given,
        {"name": f"{ENV_PREFIX}POD_IP", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}},
        {"name": f"{ENV_PREFIX}POD_NAME", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
    ]


def _probes(start_deadline_seconds: int, scheme: str) -> Manifest:
    """Alive is ``/health``; ready also means not draining. Liveness is slow to judge, since a restart costs minutes
    of loading. Kubelet checks no certificate."""
    port = {"port": "http", **({"scheme": scheme} if scheme else {})}
    health = {"httpGet": {"path": "/health", **port}}
    ready = {"httpGet": {"path": "/sunfleet/readyz", **port}}
    period = _PROBE_PERIOD_SECONDS
    return {
        "startupProbe": {
            **health,
            "periodSeconds": period,
            "timeoutSeconds": 5,
            "failureThreshold": max(1, -(-start_deadline_seconds // period)),
        },
        "livenessProbe": {**health, "periodSeconds": 10, "timeoutSeconds": 10, "failureThreshold": 6},
        "readinessProbe": {**ready, "periodSeconds": period, "timeoutSeconds": 5, "failureThreshold": 2},
    }
