"""From a role and settings to the engine's command line and environment. Pure: no files, no environment, no engine."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from sunfleet_api import names, wire
from sunfleet_api.worker import WorkerSettings
from sunfleet_worker.errors import StartupError
from sunfleet_worker.extra_args import engine_flags
from sunfleet_worker.flavour import Flavour
from sunfleet_worker.lease import LEASE_SECONDS

SCHEDULER: Final = "sunfleet_worker.hooks.scheduler.SunScheduler"
ASYNC_SCHEDULER: Final = "sunfleet_worker.hooks.scheduler.SunAsyncScheduler"
CONNECTOR: Final = "SunConnector"
CONNECTOR_MODULE: Final = "sunfleet_worker.hooks.connector"

# KV pool of a CPU pod unless extraArgs size it. CPU pods serve demos and tests: 1 GiB is 23,000 tokens of a 135M model.
CPU_KV_CACHE_BYTES: Final = 1 << 30
# The CPU kernels work on tiles of 32 tokens.
CPU_BLOCK_MULTIPLE: Final = 32

W4A16_BITS: Final = 4

_LORA_RANKS: Final = (1, 8, 16, 32, 64, 128, 256, 320, 512)  # what the engine allocates for

# Both legs sample with the same parameters, so the checkpoints' own sampling defaults, which differ between a task and
# its decoder, must not count; their end-of-sequence ids still do.
_NEUTRAL_SAMPLING: Final = {
    "temperature": 1.0,
    "top_p": 1.0,
    "top_k": 0,
    "min_p": 0.0,
    "repetition_penalty": 1.0,
}


@dataclass(frozen=True)
class EnginePlan:
    """What to start: ``args`` is the engine's command line, ``env`` must hold, ``env_defaults`` only where unset."""

    args: tuple[str, ...]
    env: Mapping[str, str]
    env_defaults: Mapping[str, str]


def plan_engine(
    settings: WorkerSettings,
    flavour: Flavour,
    *,
    cpu_limit: int | None = None,
    adapter_rank: int | None = None,
    weight_bits: int | None = None,
) -> EnginePlan:
    """The engine of one pod.

    Args:
        settings: what the operator asked for.
        flavour: the device that the installed engine is built for.
        cpu_limit: whole CPUs of the container's limit, ``None`` without one.
        adapter_rank: rank of the adapter at ``settings.adapter_path``, ``None`` without one.
        weight_bits: of the quantised weights at ``settings.model_path``, ``None`` when they are not quantised.

    Raises:
        StartupError: the settings contradict each other or the flavour.
    """
    _check(settings, adapter_rank)
    if flavour == "cpu":
        _check_cpu(settings, weight_bits)
    extra = engine_flags(settings.extra_args)
    args = (
        *_contract_args(settings, flavour), *_module_args(settings, adapter_rank), *_scheduler_args(settings, flavour),
        *_device_args(settings, flavour), *extra,
    )  # fmt: skip
    return EnginePlan(args, _env(settings), _env_defaults(settings, flavour, cpu_limit))


def _check(settings: WorkerSettings, rank: int | None) -> None:
    if settings.adapter_path and settings.role == names.ROLE_DECODE:
        raise StartupError("A decode pod serves the frozen decoder: unset SUNFLEET_WORKER_ADAPTER_PATH.")
    if settings.adapters_path and (settings.adapter_path or settings.role == names.ROLE_DECODE):
        raise StartupError(
            "Adapters that come and go are for prefill pods without one of their own: unset one of both."
        )
    if settings.adapters_path and settings.max_lora_rank > _LORA_RANKS[-1]:
        raise StartupError(f"The engine takes adapters up to rank {_LORA_RANKS[-1]}: lower spec.lora.maxRank.")
    if rank is not None and rank > min(settings.max_lora_rank, _LORA_RANKS[-1]):
        raise StartupError(
            f"The adapter has rank {rank}, but this fleet takes adapters up to rank "
            f"{min(settings.max_lora_rank, _LORA_RANKS[-1])}: tune it with a smaller rank."
        )


def _check_cpu(settings: WorkerSettings, weight_bits: int | None) -> None:
    if settings.block_size % CPU_BLOCK_MULTIPLE:
        raise StartupError(
            f"Block size {settings.block_size} does not fit the CPU engine: "
            f"set spec.engine.blockSize to a multiple of {CPU_BLOCK_MULTIPLE}."
        )
    if weight_bits == W4A16_BITS and settings.dtype == "float32":
        # It would start, and die of its first request.
        raise StartupError(
            "The weights are quantised to 4 bits, which the CPU engine does not compute in float32: "
            "set spec.engine.dtype to float16 or bfloat16."
        )


def _contract_args(settings: WorkerSettings, flavour: Flavour) -> tuple[str, ...]:
    """Everything that prefill and decode must agree on, and the hooks that keep the contract."""
    return (
        "--model", settings.model_path,
        "--host", "0.0.0.0",  # noqa: S104 - the pod's own network namespace; policy decides who may come in
        "--port", str(settings.port),
        "--dtype", settings.dtype,
        "--kv-cache-dtype", settings.kv_cache_dtype,
        "--block-size", str(settings.block_size),
        "--max-model-len", str(settings.max_model_len),
        "--tensor-parallel-size", str(settings.tensor_parallel_size),
        "--kv-transfer-config", json.dumps(kv_transfer_config(settings, flavour), sort_keys=True),
        "--override-generation-config", json.dumps(_NEUTRAL_SAMPLING),
        "--enable-prefix-caching",
        "--enable-prompt-tokens-details",
        "--disable-fastapi-docs",
        "--disable-uvicorn-access-log",
        *_tls(settings.tls_path),
    )  # fmt: skip


def kv_transfer_config(settings: WorkerSettings, flavour: Flavour) -> dict[str, Any]:
    """The engine's ``--kv-transfer-config``: who gives KV, who takes it, and what happens when that fails."""
    return {
        "kv_buffer_device": flavour,
        "kv_connector": CONNECTOR,
        "kv_connector_module_path": CONNECTOR_MODULE,
        "kv_role": "kv_consumer" if settings.role == names.ROLE_DECODE else "kv_producer",
        "kv_load_failure_policy": "fail",
        "kv_connector_extra_config": {
            "enforce_handshake_compat": True,
            "kv_lease_duration": LEASE_SECONDS,
        },
    }


def _module_args(settings: WorkerSettings, rank: int | None) -> tuple[str, ...]:
    """Which module answers to the one name that the router asks for."""
    if settings.adapters_path:
        return _pool_args(settings)
    if not settings.adapter_path:
        return ("--served-model-name", wire.ENGINE_MODEL)
    allocated = _allocated(rank or settings.max_lora_rank)
    return (
        "--served-model-name", wire.ENGINE_BASE_MODEL,
        "--enable-lora",
        "--max-loras", "1",
        "--max-lora-rank", str(allocated),
        "--lora-modules", f"{wire.ENGINE_MODEL}={settings.adapter_path}",
    )  # fmt: skip


def _allocated(rank: int) -> int:
    return next(size for size in _LORA_RANKS if size >= rank)


def _pool_args(settings: WorkerSettings) -> tuple[str, ...]:
    """No adapter yet, and room for many; each will answer to a name of its own, the base to one that nobody uses."""
    modules = ("--lora-target-modules", *settings.lora_target_modules) if settings.lora_target_modules else ()
    return (
        "--served-model-name", wire.ENGINE_BASE_MODEL,
        "--enable-lora",
        "--max-loras", str(settings.max_loras),
        "--max-cpu-loras", str(max(settings.max_loras, settings.max_loaded_loras)),
        "--max-lora-rank", str(_allocated(settings.max_lora_rank)),
        *modules,
    )  # fmt: skip


def _scheduler_args(settings: WorkerSettings, flavour: Flavour) -> tuple[str, ...]:
    """The scheduler must fit the engine's stepping: on GPUs steps overlap, on CPUs the engine does not let them."""
    if flavour == "cpu":
        return ("--scheduler-cls", SCHEDULER)
    if not settings.overlap_steps:
        return ("--scheduler-cls", SCHEDULER, "--no-async-scheduling")
    return ("--scheduler-cls", ASYNC_SCHEDULER, "--async-scheduling")


def _device_args(settings: WorkerSettings, flavour: Flavour) -> tuple[str, ...]:
    if flavour == "cuda":
        return ()
    given = {argument.name for argument in settings.extra_args}
    # Compiling a small model takes longer than it ever saves on a CPU.
    eager = () if "enforce-eager" in given else ("--enforce-eager",)
    pool = () if "kv-cache-memory-bytes" in given else ("--kv-cache-memory-bytes", str(CPU_KV_CACHE_BYTES))
    return (*eager, *pool)


def _env(settings: WorkerSettings) -> dict[str, str]:
    return {
        "VLLM_NIXL_SIDE_CHANNEL_HOST": settings.pod_ip,
        "VLLM_NIXL_SIDE_CHANNEL_PORT": str(settings.side_channel_port),
        "UCX_TCP_PORT_RANGE": f"{settings.kv_port_first}-{settings.kv_port_last}",
        "VLLM_SERVER_DEV_MODE": "0",
        "VLLM_ALLOW_RUNTIME_LORA_UPDATING": "0",
        "VLLM_PLUGINS": "",  # nothing but our own code extends this engine
    }


def _env_defaults(settings: WorkerSettings, flavour: Flavour, cpu_limit: int | None) -> dict[str, str]:
    common = {
        "HF_HUB_OFFLINE": "1",
        "TRANSFORMERS_OFFLINE": "1",
        "VLLM_NO_USAGE_STATS": "1",
        "DO_NOT_TRACK": "1",
        "VLLM_LOGGING_COLOR": "0",
        "TOKENIZERS_PARALLELISM": "false",
    }
    if flavour == "cuda":
        return common
    threads = str(max(1, (cpu_limit or 1) // settings.tensor_parallel_size))
    # Without a limit one thread: several engines share a small machine, and spinning OpenMP threads starve each other.
    return common | {
        "OMP_NUM_THREADS": threads,
        "OMP_WAIT_POLICY": "PASSIVE",
        "VLLM_CPU_OMP_THREADS_BIND": "nobind",
        "UCX_TLS": "tcp,shm,self",
        # On processors with AMX the engine would compute a W4A16 decoder in bfloat16 with activations of 8 bits.
        "VLLM_CPU_INT4_W4A8": "0",
        # The sampler would compile a few lines for log-probabilities at their first request: with g++, which the image
        # does not have, and the engine would die of it.
        "TORCHDYNAMO_DISABLE": "1",
    }


def _tls(folder: str) -> list[str]:
    """For the files of a ``kubernetes.io/tls`` Secret."""
    return ["--ssl-certfile", f"{folder}/tls.crt", "--ssl-keyfile", f"{folder}/tls.key"] if folder else []
