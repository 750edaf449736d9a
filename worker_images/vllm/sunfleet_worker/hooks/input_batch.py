"""Model runner V1 (CPU): a *new* request that already has output tokens.

The runner's batch takes output tokens only from requests that it ran before; a new one starts with an empty list. The
scheduler has already counted the seed, so the batch must hold it too. Model runner V2 is given all tokens and needs
nothing.
"""

from __future__ import annotations

from functools import wraps

from vllm.v1.worker.gpu_input_batch import CachedRequestState, InputBatch

from sunfleet_worker.handover import seed_of


def patch_input_batch() -> None:
    """Make ``InputBatch.add_request`` plant the seed. Idempotent: a process may build several connectors."""
    stock = InputBatch.add_request
    if hasattr(stock, "__wrapped__"):
        return

    @wraps(stock)
    def add_request(self: InputBatch, request: CachedRequestState) -> int:
        if not request.output_token_ids:
            arguments = getattr(request.sampling_params, "extra_args", None) or {}
            request.output_token_ids.extend(seed_of(arguments.get("kv_transfer_params")))
        index: int = stock(self, request)
        return index

    InputBatch.add_request = add_request
