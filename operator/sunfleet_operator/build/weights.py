"""How a checkpoint gets to a fixed path in a pod: a read-only claim, or a download by an init container. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from sunfleet_api import names
from sunfleet_api.weights import parse_uri
from sunfleet_operator.build.security import CONTAINER_SECURITY
from sunfleet_operator.types import Manifest

# Where downloads keep their own files; the root file system is read-only.
_SCRATCH = {"name": "tmp", "mountPath": "/tmp"}  # noqa: S108 - a path in the pod, on a volume of its own
MOUNTED_SCHEMES = ("pvc",)
FETCHED_SCHEMES = ("hf",)


@dataclass(frozen=True)
class Weights:
    """One checkpoint in a pod: what, at which path, and the Secret of the pod's namespace that opens it."""

    uri: str  # resolved: it names one set of files
    path: str  # names.WEIGHTS_PATH or names.ADAPTER_PATH
    volume: str  # name of the volume
    secret: str = ""


@dataclass(frozen=True)
class Fetcher:
    """The image that resolves and downloads, and what it needs to reach a hub."""

    image: str
    pull_policy: str = ""
    hf_endpoint: str = ""


@dataclass(frozen=True)
class Placement:
    """Parts of a pod that make one checkpoint appear."""

    volume: Manifest
    mount: Manifest
    init_container: Manifest | None = None


def place(weights: Weights, fetcher: Fetcher) -> Placement:
    """Mount a claim, or download into an ``emptyDir`` before the engine starts."""
    uri = parse_uri(weights.uri)
    if uri.scheme in MOUNTED_SCHEMES:
        return Placement(volume=claim_volume(weights.volume, uri.location), mount=claim_mount(weights))
    mount = {"name": weights.volume, "mountPath": weights.path}
    return Placement(
        volume={"name": weights.volume, "emptyDir": {}},
        mount={**mount, "readOnly": True},
        init_container=container(
            f"fetch-{weights.volume}", fetcher, ["fetch", weights.uri, "--to", weights.path], weights.secret, [mount]
        ),
    )


def claim_volume(volume: str, claim: str) -> Manifest:
    return {"name": volume, "persistentVolumeClaim": {"claimName": claim, "readOnly": True}}


def claim_mount(weights: Weights) -> Manifest:
    """Only the path inside the claim becomes visible."""
    path = parse_uri(weights.uri).path
    where = {"subPath": path} if path else {}
    return {"name": weights.volume, "mountPath": weights.path, "readOnly": True, **where}


def container(name: str, fetcher: Fetcher, arguments: list[str], secret: str, mounts: list[Manifest]) -> Manifest:
    """A container of the weights image; credentials are its environment and nobody else's."""
    env = [{"name": "HF_ENDPOINT", "value": fetcher.hf_endpoint}] if fetcher.hf_endpoint else []
    return {
        "name": name,
        "image": fetcher.image,
        **({"imagePullPolicy": fetcher.pull_policy} if fetcher.pull_policy else {}),
        "args": arguments,
        "env": env,
        **({"envFrom": [{"secretRef": {"name": secret}}]} if secret else {}),
        "securityContext": CONTAINER_SECURITY,
        "resources": {"requests": {"cpu": "100m", "memory": "128Mi"}},
        "volumeMounts": [*mounts, _SCRATCH],
        # Without a message of its own the last log lines tell what happened.
        "terminationMessagePolicy": "FallbackToLogsOnError",
    }


def model_weights(uri: str, secret: str) -> Weights:
    return Weights(uri=uri, path=names.WEIGHTS_PATH, volume="weights", secret=secret)


def adapter_weights(uri: str, secret: str) -> Weights:
    return Weights(uri=uri, path=names.ADAPTER_PATH, volume="adapter", secret=secret)
