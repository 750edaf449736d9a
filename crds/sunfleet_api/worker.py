"""What the operator tells an engine container, as environment variables, and what pods report back.

The operator writes :meth:`WorkerSettings.to_env`; the worker, and the fake engine of the tests, read the same class.
"""

from __future__ import annotations

import json
import re
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, SecretStr
from pydantic_settings import BaseSettings, SettingsConfigDict

from sunfleet_api import names
from sunfleet_api.engine import ExtraArg

ENV_PREFIX = "SUNFLEET_WORKER_"
_OF_POOL = {"adapters_path", "max_loras", "max_loaded_loras", "lora_target_modules", "admin_port"}


class WorkerSettings(BaseSettings):
    """Settings of one engine container. ``pod_ip`` comes from the downward API; the other pods read KV from it."""

    model_config = SettingsConfigDict(env_prefix=ENV_PREFIX, frozen=True)

    role: Literal["prefill", "decode"]
    model_path: str = names.WEIGHTS_PATH
    adapter_path: str = ""  # empty: the pod serves full weights
    dtype: str = "bfloat16"
    kv_cache_dtype: str = "auto"
    block_size: int = 16
    max_model_len: int = 8192
    tensor_parallel_size: int = 1
    max_lora_rank: int = 64
    adapters_path: str = ""  # set on the pods of a PrefillPool: adapters come and go at run time (sunfleet_api.pooling)
    max_loras: int = 1  # of a pool's pod: adapters in one batch
    max_loaded_loras: int = 1  # likewise: adapters that it holds
    lora_target_modules: tuple[str, ...] = ()  # likewise: modules that adapters may change; empty: any
    admin_port: int = names.ADMIN_PORT
    extra_args: tuple[ExtraArg, ...] = ()
    port: int = names.ENGINE_PORT
    metrics_port: int = 0  # where /metrics alone is served besides; 0: nowhere
    side_channel_port: int = names.SIDE_CHANNEL_PORT
    kv_port_first: int = names.KV_PORT_FIRST
    kv_port_last: int = names.KV_PORT_LAST
    pod_ip: str = "127.0.0.1"
    pod_name: str = ""
    drain_timeout_seconds: int = Field(default=300, ge=0)  # in-flight streams get this long after SIGTERM
    kv_fingerprint: str = ""
    api_key: SecretStr = SecretStr("")  # what callers must show; from a Secret, never in `to_env`
    tls_path: str = ""  # folder of a kubernetes.io/tls Secret: the API speaks TLS and nothing else; metrics stay plain
    self_check: bool = True  # False: ready as soon as the engine answers, proven or not
    overlap_steps: bool = True  # on GPUs: a step is scheduled while the one before it runs; False: one after the other

    def to_env(self) -> dict[str, str]:
        """The variables that make this very object again; ``pod_ip`` and ``pod_name`` are left to the downward API,
        ``api_key`` to a Secret, and ``self_check`` and ``overlap_steps`` to whoever switches them off. Those of a
        pool's pods and of TLS are only on these.
        """
        given = {"pod_ip", "pod_name", "api_key"}
        left = given | {name for name in ("self_check", "overlap_steps") if getattr(self, name)}
        left |= set() if self.adapters_path else _OF_POOL
        left |= set() if self.tls_path else {"tls_path"}
        values: dict[str, Any] = self.model_dump(mode="json", exclude=left)
        return {
            ENV_PREFIX + key.upper(): json.dumps(value) if isinstance(value, list) else str(value)
            for key, value in values.items()
        }


_PROGRESS = re.compile(r"^(\w+) [\d.]+ of ([\d.]+) GB \((\d+) %\)", re.MULTILINE)


def progress_line(verb: str, done: int, total: int) -> str:
    """How a download tells in its log how far it is, in bytes; :func:`progress_of` reads it again."""
    share = 100 * done // total if total else 100
    return f"{verb} {done / 1e9:.1f} of {total / 1e9:.1f} GB ({share} %)"


def progress_of(log: str) -> str:
    """The last progress in a log, in steps of ten percent: ``fetched 40 % of 16.1 GB``. Empty when there is none."""
    found = _PROGRESS.findall(log)
    if not found:
        return ""
    verb, total, share = found[-1]
    return f"{verb} {int(share) // 10 * 10} % of {total} GB"


class ResolverReport(BaseModel):
    """The resolver Job's termination message (JSON, at most 4 KiB): what a weights URI turned out to be.

    ``config`` holds only what the KV fingerprint needs, so that the operator computes it without reading files.
    """

    model_config = ConfigDict(frozen=True, extra="ignore")
    resolved_uri: str = ""
    digest: str = ""  # sha256:<hex> over the files
    config: dict[str, Any] = Field(default_factory=dict)
    tokenizer_hash: str = ""
    tuned_against: str = ""  # decoder digest from sunfleet.json, empty when unknown
    size_bytes: int = 0
    folder: str = ""  # oci: where the files lie in the image, empty for its top
    error_reason: str = ""  # CamelCase, becomes the condition's reason
    error_message: str = ""


class VerificationReport(BaseModel):
    """The verifier Job's termination message (JSON, at most 4 KiB): how the golden prompts were answered.

    With an ``error_reason`` nothing was found out, and the counts mean nothing.
    """

    model_config = ConfigDict(frozen=True, extra="ignore")
    passed: int = 0  # answered exactly
    total: int = 0
    first_mismatch: str = ""  # which prompt, which token, on which pods
    error_reason: str = ""  # CamelCase, becomes the condition's reason
    error_message: str = ""
