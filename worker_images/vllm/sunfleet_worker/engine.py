"""Starts the engine's processes: from parsed arguments to a client of a loaded engine."""

from __future__ import annotations

import os
from argparse import Namespace
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from vllm.config import VllmConfig
from vllm.engine.arg_utils import AsyncEngineArgs
from vllm.platforms import current_platform
from vllm.usage.usage_lib import UsageContext
from vllm.v1.engine.async_llm import AsyncLLM

from sunfleet_worker.hooks.shm_wait import shorten_spinning

_METHOD: Final = "VLLM_WORKER_MULTIPROC_METHOD"


@contextmanager
def running_engine(args: Namespace) -> Iterator[AsyncLLM]:
    """A loaded engine; stopped, with its processes, on leaving.

    Enter before any event loop or thread exists: on a CPU the engine's processes are forks of this one. A spawned one
    imports the engine again, which is 9 seconds of CPU and 0.6 GB each for two processes; a fork of a process that runs
    an event loop would share the loop's signal pipe.
    """
    engine_args = AsyncEngineArgs.from_cli_args(args)
    config = engine_args.create_engine_config(usage_context=UsageContext.OPENAI_API_SERVER)
    if current_platform.is_cpu():
        # Making the config has just chosen "spawn".
        os.environ[_METHOD] = "fork"
        shorten_spinning()
    engine = _engine(engine_args, config)
    try:
        yield engine
    finally:
        engine.shutdown(timeout=config.shutdown_timeout)


def _engine(engine_args: AsyncEngineArgs, config: VllmConfig) -> AsyncLLM:
    return AsyncLLM.from_vllm_config(
        vllm_config=config,
        usage_context=UsageContext.OPENAI_API_SERVER,
        enable_log_requests=engine_args.enable_log_requests,
        aggregate_engine_logging=engine_args.aggregate_engine_logging,
        disable_log_stats=engine_args.disable_log_stats,
    )
