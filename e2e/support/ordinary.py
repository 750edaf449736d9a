"""What must not be taken for SUN's answer: the decoder after an ordinary hand-over, and the decoder alone.

In vLLM's own prefill/decode flow the decoder gets the KV of the prompt, then computes its last position again with
weights of its own, and samples the first token itself.
"""

from __future__ import annotations

import json
import urllib.request
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from sunfleet_api import wire

Json = dict[str, Any]
TIMEOUT_SECONDS = 120


@dataclass(frozen=True)
class Completed:
    """Tokens of a greedy completion, and their log-probabilities."""

    token_ids: list[int]
    logprobs: list[float]


def handed_over(prefill_url: str, decode_url: str, prompt: Sequence[int], max_tokens: int, salt: str) -> Completed:
    """The ordinary flow, from any prefill engine to a stock decoder."""
    params = {"do_remote_decode": True, "do_remote_prefill": False}
    first = _post(prefill_url, {**_body(prompt, 1, salt), "kv_transfer_params": params})
    transfer = {**first["kv_transfer_params"], "do_remote_prefill": True, "do_remote_decode": False}
    return _completed(_post(decode_url, {**_body(prompt, max_tokens, salt), "kv_transfer_params": transfer}))


def alone(url: str, prompt: Sequence[int], max_tokens: int, salt: str) -> Completed:
    """One stock engine for prompt and answer."""
    return _completed(_post(url, _body(prompt, max_tokens, salt)))


def _body(prompt: Sequence[int], max_tokens: int, salt: str) -> Json:
    return {
        "model": wire.ENGINE_MODEL, "prompt": list(prompt), "max_tokens": max_tokens, "temperature": 0,
        "ignore_eos": True, "return_token_ids": True, "logprobs": 0, "cache_salt": salt,
    }  # fmt: skip


def _completed(answer: Json) -> Completed:
    (choice,) = answer["choices"]
    return Completed(choice["token_ids"], choice["logprobs"]["token_logprobs"])


def _post(url: str, body: Json) -> Json:
    request = urllib.request.Request(
        f"{url}/v1/completions", json.dumps(body).encode(), {"content-type": "application/json"}
    )
    with urllib.request.urlopen(request, timeout=TIMEOUT_SECONDS) as answer:
        parsed: Json = json.loads(answer.read())
        return parsed
