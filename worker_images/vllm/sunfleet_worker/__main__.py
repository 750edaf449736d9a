"""``python -m sunfleet_worker``: one engine pod. Settings come from the environment (``sunfleet_api.worker``)."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

from sunfleet_api.settings import UnusableSettings, read
from sunfleet_api.worker import WorkerSettings
from sunfleet_worker.adapter import adapter_rank
from sunfleet_worker.checkpoint import weight_bits
from sunfleet_worker.errors import StartupError
from sunfleet_worker.flavour import cpu_limit, installed_engine
from sunfleet_worker.plan import EnginePlan, plan_engine
from sunfleet_worker.vllm_contract import check_version

EXIT_BAD_SETTINGS = 2


def main() -> int:
    """Start the engine and serve until SIGTERM; the exit code."""
    # The kernel drops a signal to process 1 that has no handler, and importing the engine takes a while: without this a
    # pod that is deleted meanwhile would start in full and live until the end of its grace period.
    signal.signal(signal.SIGTERM, _exit_at_once)
    try:
        settings = read(WorkerSettings)
        flavour, version = installed_engine()
        check_version(version)
        rank = adapter_rank(Path(settings.adapter_path)) if settings.adapter_path else None
        bits = weight_bits(Path(settings.model_path))
        plan = plan_engine(settings, flavour, cpu_limit=cpu_limit(), adapter_rank=rank, weight_bits=bits)
    except UnusableSettings as error:
        sys.stderr.write(f"sunfleet_worker: the settings are wrong:\n{error}\n")
        return EXIT_BAD_SETTINGS
    except StartupError as error:
        sys.stderr.write(f"sunfleet_worker: {error}\n")
        return EXIT_BAD_SETTINGS
    _apply_environment(plan)
    # Only now: importing the engine takes seconds and reads the environment.
    from sunfleet_worker.launch import run  # noqa: PLC0415

    return run(plan.args, settings)


def _exit_at_once(signum: int, _: object) -> None:
    """Nothing is served yet: there is nothing to drain."""
    raise SystemExit(128 + signum)


def _apply_environment(plan: EnginePlan) -> None:
    """The engine is configured by variables; its processes inherit ours."""
    for name, value in plan.env_defaults.items():
        os.environ.setdefault(name, value)
    os.environ.update(plan.env)


if __name__ == "__main__":
    sys.exit(main())
