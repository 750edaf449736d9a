"""``/metrics`` in the Prometheus text format, under vLLM's names, of one fake engine."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from sunfleet_api import wire
from sunfleet_fakes.engine.state import Engine

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
_LABELS = f'engine="0",model_name="{wire.ENGINE_MODEL}"'
_SOURCES = ("local_compute", "local_cache_hit", "external_kv_transfer")
_FINISH_REASONS = ("stop", "length", "abort", "error")


def render(engine: Engine) -> str:
    """All series, every label value present from the start."""
    ledger, counters = engine.ledger, engine.counters
    lines = [
        *_series("vllm:num_requests_running", engine.running),
        *_series("vllm:num_requests_waiting", engine.waiting),
        *_series("vllm:kv_cache_usage_perc", ledger.used / ledger.capacity),
        *_series("vllm:num_preemptions_total", counters.preemptions),
        *_series("vllm:prompt_tokens_total", sum(counters.prompt_tokens_by_source.values())),
        *_series("vllm:generation_tokens_total", counters.generation_tokens),
        *_family(
            "vllm:prompt_tokens_by_source_total", "source",
            {source: counters.prompt_tokens_by_source[source] for source in _SOURCES},
        ),
        *_family(
            "vllm:request_success_total", "finished_reason",
            {reason: counters.success[reason] for reason in _FINISH_REASONS},
        ),
        *_series("fake:kv_blocks_used", ledger.used),
        *_series("fake:kv_leases", ledger.leases),
        *_series("fake:kv_leases_expired_total", ledger.expired_total),
        *_series("fake:kv_releases_total", counters.releases),
    ]  # fmt: skip
    return "\n".join(lines) + "\n"


def _series(name: str, value: float) -> Iterator[str]:
    yield f"# TYPE {name} {_kind(name)}"
    yield f"{name}{{{_LABELS}}} {value}"


def _family(name: str, label: str, values: Mapping[str, float]) -> Iterator[str]:
    yield f"# TYPE {name} {_kind(name)}"
    for key, value in values.items():
        yield f'{name}{{{_LABELS},{label}="{key}"}} {value}'


def _kind(name: str) -> str:
    """A counter's series end in ``_total``."""
    return "counter" if name.endswith("_total") else "gauge"
