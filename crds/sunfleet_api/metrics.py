"""Metrics that one part of the project exports and another one reads: the names, once.

Tests scrape the exporters and fail when a name here is not among what they export.
"""

from __future__ import annotations

from typing import Final

# Of the router. Label ``task`` is the OpenAI model name, ``decoder`` is "namespace/name".
IN_FLIGHT: Final = "sunfleet_router_in_flight_requests"
QUEUE_DEPTH: Final = "sunfleet_router_queue_depth"
REQUESTS_ENDED: Final = "sunfleet_router_request_duration_seconds_count"
PROMPT_TOKENS: Final = "sunfleet_router_prompt_tokens_total"
# Each prompt's length times itself: with the sum and the count, how much lengths vary.
PROMPT_TOKENS_SQUARED: Final = "sunfleet_router_prompt_tokens_squared_total"
PREFILL_BACKLOG: Final = "sunfleet_router_prefill_backlog_tokens"
PREFILL_OLDEST: Final = "sunfleet_router_prefill_oldest_seconds"
PREFILLS: Final = "sunfleet_router_prefill_duration_seconds_count"
PREFILL_SECONDS: Final = "sunfleet_router_prefill_duration_seconds_sum"
OUTPUT_TOKENS: Final = "sunfleet_router_output_tokens_total"
TTFT_COUNT: Final = "sunfleet_router_time_to_first_token_seconds_count"
TTFT_SECONDS: Final = "sunfleet_router_time_to_first_token_seconds_sum"
PREFILL_ENDPOINTS: Final = "sunfleet_router_prefill_endpoints"
DECODE_ENDPOINTS: Final = "sunfleet_router_decode_endpoints"
KV_CAPACITY: Final = "sunfleet_router_decode_kv_capacity_tokens"
KV_RESERVED: Final = "sunfleet_router_decode_kv_reserved_tokens"
KV_QUEUED: Final = "sunfleet_router_decode_queued_tokens"
SYNCED: Final = "sunfleet_router_synced"
# Also by ``revision``; requests by ``outcome`` too: "ok", or "failed" by an engine of that revision.
REVISION_REQUESTS: Final = "sunfleet_router_revision_requests_total"
REVISION_SECONDS: Final = "sunfleet_router_revision_seconds_total"
REVISION_TOKENS: Final = "sunfleet_router_revision_output_tokens_total"

# Of the engine.
RUNNING: Final = "vllm:num_requests_running"
WAITING: Final = "vllm:num_requests_waiting"

# Of Prometheus itself.
UP: Final = "up"

OF_REVISIONS: Final = frozenset({REVISION_REQUESTS, REVISION_SECONDS, REVISION_TOKENS})
OF_ROUTER: Final = frozenset(
    {
        IN_FLIGHT, QUEUE_DEPTH, REQUESTS_ENDED, PROMPT_TOKENS, PROMPT_TOKENS_SQUARED, PREFILL_BACKLOG, PREFILL_OLDEST,
        PREFILLS,
        PREFILL_SECONDS, OUTPUT_TOKENS, TTFT_COUNT, TTFT_SECONDS, PREFILL_ENDPOINTS, DECODE_ENDPOINTS,
        KV_CAPACITY, KV_RESERVED, KV_QUEUED, SYNCED, *OF_REVISIONS,
    }
)  # fmt: skip
OF_ENGINE: Final = frozenset({RUNNING, WAITING})
KNOWN: Final = OF_ROUTER | OF_ENGINE | {UP}
