"""What a pod counts beside the engine's own metrics; all of it comes with ``/metrics``.

The engine's ``vllm:prompt_tokens_by_source_total`` has no label for a pod's role, and computing prompts is what prefill
pods do. A counter that only decode pods export can be alerted on by its name alone.
"""

from __future__ import annotations

from prometheus_client import REGISTRY, CollectorRegistry, Counter, Gauge

from sunfleet_api import names


class PodMetrics:
    """The metrics of one pod. One instance per process and registry."""

    def __init__(self, role: str, registry: CollectorRegistry = REGISTRY) -> None:
        self._computed = None
        self.computed_prompt_tokens = 0
        if role == names.ROLE_DECODE:
            self._computed = Counter(
                "sunfleet_decode_computed_prompt_tokens",
                "Prompt tokens that this decode pod computed itself, with the wrong weights. Must be 0.",
                registry=registry,
            )
        self.ended = Counter(
            "sunfleet_worker_ended_requests",
            "Requests that the engine ended by itself, by the code that their clients see.",
            ["code"],
            registry=registry,
        )
        self.resumed = Counter(
            "sunfleet_worker_resumed_streams", "Streams that began on another decode pod.", registry=registry
        )
        self.released = Counter(
            "sunfleet_worker_released_prompts", "Prompts whose KV was given back unread.", registry=registry
        )
        self.self_check = Gauge(
            "sunfleet_worker_self_check",
            "The checks before this pod was ready: 1 passed, 0 failed. One that fails keeps the pod from being ready.",
            ["check"],
            registry=registry,
        )

    def count_computed_prompt(self, tokens: int) -> None:
        """Count prompt tokens computed on this pod; on a prefill pod that is its work, and not counted here."""
        if self._computed is not None:
            self.computed_prompt_tokens += tokens
            self._computed.inc(tokens)
