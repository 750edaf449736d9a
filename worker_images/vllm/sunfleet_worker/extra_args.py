"""Which of ``spec.engine.extraArgs`` reach the engine: an allow-list, because most flags can change answers or open doors.

Allowed are flags that size or tune the engine without touching which module computes which token.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from sunfleet_api.worker import ExtraArg
from sunfleet_worker.errors import StartupError

# Flags that take a value.
VALUED: Final = frozenset(
    {
        "attention-backend",
        "chat-template",
        "chat-template-content-format",
        "compilation-config",
        "distributed-executor-backend",
        "gpu-memory-utilization",
        "kv-cache-memory-bytes",
        "load-format",
        "long-prefill-token-threshold",
        "max-logprobs",
        "max-num-batched-tokens",
        "max-num-seqs",
        "max-parallel-loading-workers",
        "quantization",
        "reasoning-parser",
        "safetensors-load-strategy",
        "seed",
        "stream-interval",
        "structured-outputs-config",
        "tokenizer-mode",
        "tool-call-parser",
        "uvicorn-log-level",
    }
)
# Flags without one.
SWITCHES: Final = frozenset(
    {
        "async-scheduling",
        "disable-cascade-attn",
        "enable-auto-tool-choice",
        "enable-chunked-prefill",
        "enable-expert-parallel",
        "enable-log-requests",
        "enforce-eager",
        "no-async-scheduling",
        "no-enable-chunked-prefill",
        "no-enable-prefix-caching",
    }
)

# Why the flags that people try first are not theirs to set.
_OWNED: Final = {
    "block-size": "set spec.engine.blockSize: it is part of the KV contract",
    "dtype": "set spec.engine.dtype: it is part of the KV contract",
    "enable-lora": "an adapter is served by spec.prefill.adapter",
    "kv-cache-dtype": "set spec.engine.kvCacheDtype: it is part of the KV contract",
    "kv-transfer-config": "it carries the hand-over between the two legs",
    "max-model-len": "set spec.engine.maxModelLen",
    "model": "weights are always at one fixed path",
    "port": "pods have fixed ports",
    "scheduler-cls": "the scheduler enforces that a decode pod never computes a prompt",
    "served-model-name": "the router addresses every pod by one fixed name",
    "tensor-parallel-size": "set spec.engine.tensorParallelSize",
    "trust-remote-code": "code from a checkpoint does not run in a pod that other tasks share",
}


def engine_flags(extra: Iterable[ExtraArg]) -> tuple[str, ...]:
    """``--name value`` words for the engine's command line.

    Raises:
        StartupError: a flag is not allowed, lacks its value, or has one that it does not take; names the flag and the mend.
    """
    words: list[str] = []
    for arg in extra:
        name = arg.name.lstrip("-").replace("_", "-")
        if name in SWITCHES:
            if arg.value:
                raise StartupError(f"extraArgs: --{name} takes no value, but {arg.value!r} was given; leave it empty.")
            words.append(f"--{name}")
        elif name in VALUED:
            if not arg.value:
                raise StartupError(f"extraArgs: --{name} needs a value.")
            words += [f"--{name}", arg.value]
        else:
            raise StartupError(_not_allowed(name))
    return tuple(words)


def _not_allowed(name: str) -> str:
    if name in _OWNED:
        return f"extraArgs: --{name} is not allowed: {_OWNED[name]}."
    return f"extraArgs: --{name} is not allowed. Allowed are: {', '.join(sorted(VALUED | SWITCHES))}."
