"""Checkpoints that suites make of the sample models, in the engine's environment, where torch is."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

from sunfleet_cluster.state import StateFolder
from support.engines import ROOT

# Merging rounds to the checkpoint's type; here both sides read the merged weights, so float32 keeps them whole.
_MERGE = """
import sys, torch
from pathlib import Path
from sunfleet_tuner.merge import merge
merge(Path(sys.argv[1]), Path(sys.argv[2]), Path(sys.argv[3]), torch.float32)
"""


def merge_adapter(state: StateFolder, task: str, target: Path) -> None:
    """A sample task's adapter merged into the base: a prefill module of full float32 weights."""
    _run(state, "-c", _MERGE, state.models / "base", state.models / "adapters" / task, target)


def quantize_base(state: StateFolder, packed: Path, dequantized: Path) -> None:
    """The base as a W4A16 decoder, and the same values as ordinary weights."""
    _run(state, "-m", "sunfleet_tuner.quantize", state.models / "base", packed, "--dequantized", dequantized)


def _run(state: StateFolder, *arguments: str | Path) -> None:
    rooms = os.pathsep.join(str(ROOT / room) for room in ("crds", "worker_images/tuner"))
    command = [str(state.engine / "bin/python"), *map(str, arguments)]
    subprocess.run(command, check=True, env={**os.environ, "PYTHONPATH": rooms}, capture_output=True)
