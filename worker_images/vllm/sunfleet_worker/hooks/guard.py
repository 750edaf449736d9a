"""The hand-over guard: the one place where a decode pod makes sure that it never computes a prompt.

Whatever the cause (fields missing, KV lost or late, preemption, a request that bypasses the prefix cache, a change in
the engine), a request that would compute prompt positions must first be given KV slots for them. So the guard stands at
slot allocation: a request that is not yet running and would start below its prompt's length gets none and is ended.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from vllm.logger import init_logger
from vllm.v1.core.kv_cache_manager import KVCacheManager
from vllm.v1.request import Request, RequestStatus

logger = init_logger(f"vllm.{__name__}")  # the engine configures the loggers below this name


def install_guard(manager: KVCacheManager, on_violation: Callable[[Request], None]) -> None:
    """Wrap ``manager.allocate_slots``; ``on_violation`` is told the request, which the scheduler then must end."""
    allocate = manager.allocate_slots

    def guarded(request: Request, num_new_tokens: int, num_new_computed_tokens: int = 0, **rest: Any) -> Any:
        external = rest.get("num_external_computed_tokens", 0)
        start = request.num_computed_tokens + num_new_computed_tokens + external
        if request.status is not RequestStatus.RUNNING and start < request.num_prompt_tokens:
            logger.error(
                "Hand-over guard: request %s has KV for %d of its %d prompt tokens; ending it.",
                request.request_id, start, request.num_prompt_tokens,
            )  # fmt: skip
            on_violation(request)
            return None
        return allocate(request, num_new_tokens, num_new_computed_tokens=num_new_computed_tokens, **rest)

    manager.allocate_slots = guarded
