"""The Job that asks golden prompts of engine pods before clients do. Pure.

It runs the weights image on a CPU, needs no right on the cluster, and tries once: the pods that it is told may be gone
the next time, so whoever asks again names those of then.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from sunfleet_api import names
from sunfleet_api.weights import parse_uri
from sunfleet_operator.build import labels
from sunfleet_operator.build.security import POD_SECURITY, engine_key, tls_mount, tls_volume
from sunfleet_operator.build.weights import MOUNTED_SCHEMES, Fetcher, Weights, container, mounted, support_volumes
from sunfleet_operator.types import Json, Key, Manifest

GOLDEN_PATH: Final = "/golden"
GOLDEN_VOLUME: Final = "golden"
_KEY: Final = "SUNFLEET_WEIGHTS_ENGINE_KEY"
_AUTHORITY: Final = {"name": "SUNFLEET_WEIGHTS_ENGINE_CA_FILE", "value": f"{names.TLS_PATH}/ca.crt"}
# Some hundred prompts on a busy pod; beyond that something hangs.
_DEADLINE_SECONDS: Final = 1800


@dataclass(frozen=True)
class Prompts:
    """Where golden prompts lie: ``weights`` is their folder as it stands in the pod, or a ConfigMap holds them, whose
    golden.json has this SHA-256 (hex). ``id`` changes with what they are.
    """

    id: str
    weights: Weights
    config_map: str = ""
    sha256: str = ""


@dataclass(frozen=True)
class Pods:
    """Addresses of engine pods that answer, and the digest of their decoder. ``adapter``: the module's name on the pods
    of a PrefillPool."""

    prefill: Sequence[str]
    decode: Sequence[str]
    decoder_digest: str
    adapter: str = ""


def verifier_job(
    owner: Json,
    key: Key,
    check: str,
    prompts: Prompts,
    engines: Pods,
    fetcher: Fetcher,
    pod: Mapping[str, Any],
) -> Manifest:
    """``check`` is the hash of what is compared; it is part of the name and the revision label. ``pod`` holds more
    fields of the pod."""
    volume, mount = _mounted(prompts)
    own_labels = {
        **labels.child_labels(key, names.ROLE_VERIFIER),
        names.LABEL_ROLE: names.ROLE_VERIFIER,
        names.LABEL_REVISION: check,
    }
    tls = fetcher.engine_tls
    scheme = "https" if tls else "http"
    arguments = [
        "verify", prompts.weights.uri, "--to", prompts.weights.path, "--salt", f"verify-{check}",
        *(["--decoder", engines.decoder_digest] if engines.decoder_digest else []),
        *(["--expect", prompts.sha256] if prompts.sha256 else []),
        *(["--module", engines.adapter] if engines.adapter else []),
        *(word for ip in engines.prefill for word in ("--prefill", _url(scheme, ip))),
        *(word for ip in engines.decode for word in ("--decode", _url(scheme, ip))),
    ]  # fmt: skip
    mounts = [*([mount] if mount else []), *tls_mount(tls)]
    asking = container(names.ROLE_VERIFIER, fetcher, arguments, prompts.weights, mounts)
    extra = [*engine_key(_KEY, fetcher.engine_key), *([_AUTHORITY] if tls else [])]
    spec = {
        **pod,
        "restartPolicy": "Never",
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "securityContext": POD_SECURITY,
        "containers": [{**asking, "env": [*asking["env"], *extra]}],
        "volumes": [
            *([volume] if volume else []),
            *tls_volume(tls, key=False),
            *support_volumes(prompts.weights, fetcher),
            {"name": "tmp", "emptyDir": {}},
        ],
    }
    return labels.child(
        "batch/v1",
        "Job",
        name=labels.verification_name(key, check),
        owner=owner,
        labels=own_labels,
        spec={
            "backoffLimit": 0,
            "activeDeadlineSeconds": _DEADLINE_SECONDS,
            "template": {"metadata": {"labels": own_labels}, "spec": spec},
        },
    )


def _mounted(prompts: Prompts) -> tuple[Manifest | None, Manifest | None]:
    if prompts.config_map:
        volume = {"name": GOLDEN_VOLUME, "configMap": {"name": prompts.config_map}}
        return volume, {"name": GOLDEN_VOLUME, "mountPath": GOLDEN_PATH, "readOnly": True}
    return mounted(prompts.weights) if parse_uri(prompts.weights.uri).scheme in MOUNTED_SCHEMES else (None, None)


def _url(scheme: str, ip: str) -> str:
    return f"{scheme}://[{ip}]:{names.ENGINE_PORT}" if ":" in ip else f"{scheme}://{ip}:{names.ENGINE_PORT}"
