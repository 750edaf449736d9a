"""The two kinds of tasks that local suites serve: a LoRA prefill module and one of full weights, from the samples."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from sunfleet_cluster.state import StateFolder
from support.engines import Engine
from support.local_fleet import LocalTask

TASKS = ("lora", "full")
# 5,800 tokens in float32. The demo's engines may stand beside a suite's, and all together must fit into 24 GiB.
SMALL_POOL = {"kv-cache-memory-bytes": str(256 << 20)}


def lora_and_full(state: StateFolder, root: Path, **options: Any) -> list[LocalTask]:
    """Engines that are not started yet, in folders below ``root``; ``options``: as :class:`Engine` takes them."""
    python, base, adapter = state.engine / "bin/python", state.models / "base", state.models / "adapters/toolcall"
    weights = state.models / "arith-full"
    lora = Engine("lora", "prefill", base, root / "lora", python, adapter, SMALL_POOL, **options)
    full = Engine("full", "prefill", weights, root / "full", python, extra_args=SMALL_POOL, **options)
    return [
        # The adapter's base is named, since a decoder may be another one.
        LocalTask("lora", lora, {"adapter": str(adapter), "base": str(base)}),
        LocalTask("full", full, {"weights": str(weights)}),
    ]


def decoder(state: StateFolder, root: Path, name: str, weights: Path | None = None, **options: Any) -> Engine:
    """A decode engine that is not started yet; ``weights``: by default the sample base's."""
    given = {"extra_args": SMALL_POOL, **options}
    return Engine(name, "decode", weights or state.models / "base", root / name, state.engine / "bin/python", **given)
