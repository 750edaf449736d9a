"""What the first request of a pod would otherwise wait for: pages of libraries that nobody has read yet, the sampler's
less common parts, the grammar compiler, the chat template.

A part that a module lacks (a chat template) or cannot do (a grammar over its vocabulary) is its users' business: here
it is only noted.
"""

from __future__ import annotations

import logging
from typing import Any, Final

from sunfleet_api import wire
from sunfleet_worker.handover import KEY_OUTPUT_LOGPROBS, SeedLogprobs
from sunfleet_worker.selfcheck.pod import CHATS, COMPLETIONS, Pod, fresh_salt, request

logger = logging.getLogger(f"vllm.{__name__}")  # the engine configures the loggers below this name

_MAX_TOKENS: Final = 3
_SEED: Final = 7
_ALL_SORTS: Final = {
    "temperature": 0.7,
    "top_p": 0.9,
    "top_k": 20,
    "presence_penalty": 0.1,
    "frequency_penalty": 0.1,
    "repetition_penalty": 1.1,
    "structured_outputs": {"regex": r"[\s\S]*"},
}


async def warm_up_prefill(pod: Pod) -> None:
    """One chat and one completion, for which no KV is kept."""
    params = wire.prefill_params(1)
    chat = {
        "model": pod.module, "messages": [{"role": "user", "content": "Hello."}], "max_tokens": 1,
        "logprobs": True, "top_logprobs": 1, "cache_salt": fresh_salt(), "kv_transfer_params": params,
    }  # fmt: skip
    await _try(pod, CHATS, {**chat, **_ALL_SORTS})
    await _try(
        pod,
        COMPLETIONS,
        {**request(pod.prompt, fresh_salt(), max_tokens=1, kv_transfer_params=params), "model": pod.module},
    )


async def warm_up_decoding(pod: Pod, transfer: dict[str, Any]) -> None:
    """One stream that goes on from ``transfer``."""
    rows = SeedLogprobs([[_SEED, _SEED + 1]], [[-0.1, -2.0]], [1]).to_wire()
    params = wire.decode_params(transfer, pod.prompt, [_SEED], "self-check")
    params |= {wire.KEY_PROGRESS: True, KEY_OUTPUT_LOGPROBS: rows}
    body = request(pod.prompt, fresh_salt(), max_tokens=_MAX_TOKENS, logprobs=1, stream=True, kv_transfer_params=params)
    body.pop("return_token_ids")
    await _try(pod, COMPLETIONS, {**body, **_ALL_SORTS})


async def _try(pod: Pod, path: str, body: dict[str, Any]) -> None:
    answer = await pod.post(path, body)
    if answer.status != 200 or b'"error"' in answer.raw:
        logger.info("Warm-up: %s is not usable as asked: %s", path, answer.words)
