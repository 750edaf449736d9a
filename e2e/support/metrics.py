"""Engine metrics that prove what a pod computed."""

from __future__ import annotations

import re
from dataclasses import dataclass

from sunfleet_api import names
from support.kubectl import Kubectl

_SAMPLE = re.compile(r"^([a-zA-Z_:][a-zA-Z0-9_:]*)(?:\{(.*)\})? (\S+)$", re.MULTILINE)
_LABEL = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')


@dataclass(frozen=True)
class PromptTokens:
    """Prompt tokens of one engine since its start, by where their KV came from."""

    local_compute: int = 0  # run through this engine's own weights
    local_cache: int = 0  # found in its prefix cache
    transferred: int = 0  # read from a prefill pod

    def __add__(self, other: PromptTokens) -> PromptTokens:
        return PromptTokens(
            self.local_compute + other.local_compute,
            self.local_cache + other.local_cache,
            self.transferred + other.transferred,
        )

    def __sub__(self, earlier: PromptTokens) -> PromptTokens:
        return PromptTokens(
            self.local_compute - earlier.local_compute,
            self.local_cache - earlier.local_cache,
            self.transferred - earlier.transferred,
        )

    @property
    def total(self) -> int:
        return self.local_compute + self.local_cache + self.transferred


def samples(text: str, name: str) -> list[tuple[dict[str, str], float]]:
    """Labels and value of every sample of ``name`` in a Prometheus exposition."""
    return [
        (dict(_LABEL.findall(labels or "")), float(value))
        for found, labels, value in _SAMPLE.findall(text)
        if found == name
    ]


def prompt_tokens(text: str) -> PromptTokens:
    """From an engine's ``/metrics``."""
    by_source: dict[str, int] = {}
    for labels, value in samples(text, "vllm:prompt_tokens_by_source_total"):
        by_source[labels["source"]] = by_source.get(labels["source"], 0) + int(value)
    return PromptTokens(
        by_source.get("local_compute", 0), by_source.get("local_cache_hit", 0), by_source.get("external_kv_transfer", 0)
    )


def pod_prompt_tokens(kubectl: Kubectl, namespace: str, pod: str) -> PromptTokens:
    """Of a live pod, through the API server."""
    return prompt_tokens(kubectl.pod_get(namespace, pod, names.ENGINE_PORT, "/metrics"))
