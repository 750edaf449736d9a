"""How a checkpoint gets to a fixed path in a pod: a volume that holds it, or a download by an init container. Pure.

With a cache the download goes into a claim that pods share, the engine sees the one folder in it that has the
checkpoint's digest for a name, and a sidecar says for the pod's whole life that this folder is in use.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from sunfleet_api import names
from sunfleet_api.download import Cache, Download
from sunfleet_api.weights import parse_uri
from sunfleet_api.worker import ResolverReport
from sunfleet_operator.build.security import CONTAINER_SECURITY
from sunfleet_operator.build.volumes import GivenVolumes
from sunfleet_operator.types import Manifest

# Where downloads keep their own files; the root file system is read-only.
_SCRATCH = {"name": "tmp", "mountPath": "/tmp"}  # noqa: S108 - a path in the pod, on a volume of its own
MOUNTED_SCHEMES = ("pvc", "file")
FETCHED_SCHEMES = ("hf", "s3", "gs", "oci")
_CA_PATH = "/etc/sunfleet/ca"
_SECRET_PATH = "/etc/sunfleet/credentials"  # noqa: S105 - a path
_CACHE_PATH = "/cache"
FETCH_CONTAINER = "fetch-"  # and the volume


@dataclass(frozen=True)
class Weights:
    """One checkpoint in a pod: what, at which path, and the Secret of the pod's namespace that opens it.

    ``digest``, ``size`` (bytes) and ``folder`` (in an image) are known once it is resolved.
    """

    uri: str  # resolved: it names one set of files
    path: str  # names.WEIGHTS_PATH or names.ADAPTER_PATH
    volume: str  # name of the volume
    secret: str = ""
    digest: str = ""
    size: int = 0
    folder: str = ""
    given: GivenVolumes = field(default_factory=GivenVolumes)  # of spec.template, for file://


@dataclass(frozen=True)
class Fetcher:
    """The image that resolves and downloads, what it needs to reach a hub, and how it goes about it."""

    image: str
    pull_policy: str = ""
    hf_endpoint: str = ""
    download: Download = field(default_factory=Download)
    engine_key: str = ""  # Secret with the key that a verification shows to engines
    engine_tls: str = ""  # Secret with the authority that it trusts

    def told(self, download: Download | None) -> Fetcher:
        """As an object's own ``download`` says, which replaces the default as a whole."""
        chosen = download or self.download
        return replace(self, download=chosen, image=chosen.image or self.image)


@dataclass(frozen=True)
class Placement:
    """Parts of a pod that make one checkpoint appear."""

    volumes: tuple[Manifest, ...]
    mount: Manifest
    init_containers: tuple[Manifest, ...] = ()
    pull_secret: str = ""


def place(weights: Weights, fetcher: Fetcher) -> Placement:
    """Mount what holds it, or download it before the engine starts."""
    scheme = parse_uri(weights.uri).scheme
    if scheme in MOUNTED_SCHEMES:
        volume, mount = mounted(weights)
        return Placement((volume,), mount)
    if scheme == "oci" and fetcher.download.image_volume:
        return _image_volume(weights, fetcher)
    cache = fetcher.download.cache
    if cache is not None:
        return _cached(weights, fetcher, cache)
    mount = {"name": weights.volume, "mountPath": weights.path}
    arguments = ["fetch", weights.uri, "--to", weights.path, *_expected(weights)]
    fetch = container(f"{FETCH_CONTAINER}{weights.volume}", fetcher, arguments, weights, [mount])
    volumes = ({"name": weights.volume, "emptyDir": {}}, *support_volumes(weights, fetcher))
    return Placement(volumes, {**mount, "readOnly": True}, (fetch,))


def mounted(weights: Weights) -> tuple[Manifest, Manifest]:
    """Volume and read-only mount of a ``pvc://`` or ``file://``; only the path inside it becomes visible."""
    uri = parse_uri(weights.uri)
    if uri.scheme == "file":
        volume, path = weights.given.holding(uri.location)
        source = {**volume, "name": weights.volume}
    else:
        source, path = claim_volume(weights.volume, uri.location), uri.path
    where = {"subPath": path} if path else {}
    return source, {"name": weights.volume, "mountPath": weights.path, "readOnly": True, **where}


def claim_volume(volume: str, claim: str) -> Manifest:
    return {"name": volume, "persistentVolumeClaim": {"claimName": claim, "readOnly": True}}


def _image_volume(weights: Weights, fetcher: Fetcher) -> Placement:
    """The kubelet pulls it, once per node, with the pod's pull secrets."""
    pull = {"pullPolicy": fetcher.pull_policy} if fetcher.pull_policy else {}
    volume = {"name": weights.volume, "image": {"reference": weights.uri.removeprefix("oci://"), **pull}}
    where = {"subPath": weights.folder} if weights.folder else {}
    mount = {"name": weights.volume, "mountPath": weights.path, "readOnly": True, **where}
    return Placement((volume,), mount, pull_secret=weights.secret)


def _cached(weights: Weights, fetcher: Fetcher, cache: Cache) -> Placement:
    """Download into the shared folder unless it is there, and say while the pod lives that it is used."""
    name, entry = f"{weights.volume}-cache", weights.digest.replace(":", "-")
    volume = {"name": name, "persistentVolumeClaim": {"claimName": cache.claim_name}}
    whole = {"name": name, "mountPath": _CACHE_PATH}
    arguments = [
        "fetch", weights.uri, "--cache", _CACHE_PATH, "--cache-limit", cache.size_limit,
        "--size", str(weights.size), "--kind", "adapter" if weights.path == names.ADAPTER_PATH else "model",
        *_expected(weights),
    ]  # fmt: skip
    fetch = container(f"{FETCH_CONTAINER}{weights.volume}", fetcher, arguments, weights, [whole])
    hold = {
        "name": f"hold-{weights.volume}",
        "image": fetcher.image,
        **({"imagePullPolicy": fetcher.pull_policy} if fetcher.pull_policy else {}),
        "restartPolicy": "Always",  # a sidecar: it starts before the engine and ends after it
        "command": ["python", "-m", "sunfleet_weights.hold", f"{_CACHE_PATH}/{entry}"],
        "securityContext": CONTAINER_SECURITY,
        "resources": {"requests": {"cpu": "5m", "memory": "16Mi"}, "limits": {"memory": "64Mi"}},
        "volumeMounts": [whole],
        "terminationMessagePolicy": "FallbackToLogsOnError",
    }
    mount = {"name": name, "mountPath": weights.path, "subPath": entry, "readOnly": True}
    return Placement((volume, *support_volumes(weights, fetcher)), mount, (fetch, hold))


def _expected(weights: Weights) -> list[str]:
    return ["--digest", weights.digest] if weights.digest else []


def container(name: str, fetcher: Fetcher, arguments: list[str], weights: Weights, mounts: list[Manifest]) -> Manifest:
    """A container of the weights image; credentials are its environment and nobody else's."""
    secret = weights.secret
    return {
        "name": name,
        "image": fetcher.image,
        **({"imagePullPolicy": fetcher.pull_policy} if fetcher.pull_policy else {}),
        "args": arguments,
        "env": _env(fetcher, weights),
        **({"envFrom": [{"secretRef": {"name": secret}}]} if secret else {}),
        "securityContext": CONTAINER_SECURITY,
        "resources": {"requests": {"cpu": "100m", "memory": "128Mi"}},
        "volumeMounts": [*mounts, *_support_mounts(fetcher, weights), _SCRATCH],
        # Without a message of its own the last log lines tell what happened.
        "terminationMessagePolicy": "FallbackToLogsOnError",
    }


def _env(fetcher: Fetcher, weights: Weights) -> list[Manifest]:
    """Later ones win, and all of them over the Secret's."""
    download, values = fetcher.download, dict[str, str]()
    if fetcher.hf_endpoint:
        values["HF_ENDPOINT"] = fetcher.hf_endpoint
    if "parallel" in download.model_fields_set:
        values["SUNFLEET_WEIGHTS_WORKERS"] = str(download.parallel)
    if download.proxy is not None:
        values |= {"HTTP_PROXY": download.proxy.url, "HTTPS_PROXY": download.proxy.url}
        values |= {"NO_PROXY": download.proxy.no_proxy} if download.proxy.no_proxy else {}
    if download.ca_bundle is not None:
        values["SUNFLEET_WEIGHTS_CA_FILE"] = f"{_CA_PATH}/{download.ca_bundle.key}"
    if _mounts_secret(weights):
        values["SUNFLEET_WEIGHTS_SECRET"] = _SECRET_PATH
    values |= {variable.name: variable.value for variable in download.env}
    return [{"name": key, "value": value} for key, value in values.items()]


def _mounts_secret(weights: Weights) -> bool:
    """A registry's login is a file: its key is no name of a variable."""
    return bool(weights.secret) and parse_uri(weights.uri).scheme == "oci"


def support_volumes(weights: Weights, fetcher: Fetcher) -> tuple[Manifest, ...]:
    """What resolver and download mount besides. Names differ between the downloads of one pod."""
    volumes: list[Manifest] = []
    bundle = fetcher.download.ca_bundle
    if bundle is not None:
        items = [{"key": bundle.key, "path": bundle.key}]
        volumes.append({"name": "ca-bundle", "configMap": {"name": bundle.config_map_ref.name, "items": items}})
    if _mounts_secret(weights):
        volumes.append({"name": f"{weights.volume}-login", "secret": {"secretName": weights.secret}})
    return tuple(volumes)


def _support_mounts(fetcher: Fetcher, weights: Weights) -> list[Manifest]:
    mounts: list[Manifest] = []
    if fetcher.download.ca_bundle is not None:
        mounts.append({"name": "ca-bundle", "mountPath": _CA_PATH, "readOnly": True})
    if _mounts_secret(weights):
        mounts.append({"name": f"{weights.volume}-login", "mountPath": _SECRET_PATH, "readOnly": True})
    return mounts


def model_weights(uri: str, secret: str, given: GivenVolumes) -> Weights:
    return Weights(uri=uri, path=names.WEIGHTS_PATH, volume="weights", secret=secret, given=given)


def adapter_weights(uri: str, secret: str, given: GivenVolumes) -> Weights:
    return Weights(uri=uri, path=names.ADAPTER_PATH, volume="adapter", secret=secret, given=given)


def resolved(weights: Weights, report: ResolverReport) -> Weights:
    """With what a resolver found out."""
    return replace(weights, uri=report.resolved_uri, digest=report.digest, size=report.size_bytes, folder=report.folder)
