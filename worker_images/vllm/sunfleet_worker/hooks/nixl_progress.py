"""NIXL's progress thread: its Python API fixes the delay between polls at zero, so an idle engine burns half a core."""

from __future__ import annotations

import importlib
from typing import Any, Final

# Microseconds between two polls. Adds at most this much to each step of a transfer.
PROGRESS_DELAY_US: Final = 1000


def delay_progress_thread(delay_us: int = PROGRESS_DELAY_US) -> None:
    """Give agents that are created from now on a polling delay. Idempotent."""
    api = importlib.import_module("nixl._api")  # stands for the CUDA 12, CUDA 13 or ROCm build, whichever is loaded
    stock: Any = api.nixlBind.nixlAgentConfig
    if getattr(stock, "sunfleet_delay_us", None) is not None:
        return

    class DelayedAgentConfig(stock):
        sunfleet_delay_us = delay_us

        def __setattr__(self, name: str, value: Any) -> None:
            super().__setattr__(name, delay_us if name == "pthrDelay" else value)

    api.nixlBind.nixlAgentConfig = DelayedAgentConfig
