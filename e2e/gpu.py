"""The exactness suites on this machine's GPU, once for each way in which the engine can step.

    python e2e/gpu.py [-m EXPRESSION]

A CPU engine has one way: one step after the other, model runner V1. On a GPU steps overlap by default and model runner
V2 is the default for some models, so all four combinations are run, each as a run of pytest of its own, then the
hand-over benchmark. Ends with a table of them; 0 when all passed. Needs ``make engine-env models DEVICE=cuda``.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import time
from dataclasses import dataclass
from itertools import product
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
# The cluster's suite is left out: where the fleet's pods run is another question than what they compute.
SUITES = ("e2e/exactness", "--ignore", "e2e/exactness/test_exactness.py", "tests/engine")
EXIT_NO_GPU = 2


@dataclass(frozen=True)
class Stepping:
    """``overlap``: a step is scheduled while the one before it runs. ``runner``: the engine's model runner, 1 or 2."""

    overlap: bool
    runner: int

    @property
    def name(self) -> str:
        return f"{'overlapping' if self.overlap else 'one by one'}, runner V{self.runner}"

    @property
    def variables(self) -> dict[str, str]:
        """For pytest; its engines inherit them."""
        return {
            "SUNFLEET_E2E_DEVICE": "cuda",
            "SUNFLEET_WORKER_OVERLAP_STEPS": str(self.overlap),
            "VLLM_USE_V2_MODEL_RUNNER": str(self.runner - 1),
        }


STEPPINGS = tuple(Stepping(overlap, runner) for overlap, runner in product((True, False), (2, 1)))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "-m", metavar="EXPRESSION", dest="marks", help="only tests with these marks, as pytest takes it"
    )
    marks = parser.parse_args().marks
    if shutil.which("nvidia-smi") is None:
        sys.stderr.write("There is no GPU here that nvidia-smi knows; on a CPU run `make e2e-exactness-local`.\n")
        return EXIT_NO_GPU
    chosen = ("-m", marks) if marks else ()
    rows = [_timed(stepping.name, ["pytest", *SUITES, *chosen], stepping.variables) for stepping in STEPPINGS]
    rows.append(_timed("hand-over benchmark", ["handover"], STEPPINGS[0].variables))
    sys.stdout.write("\n" + "\n".join(f"{name:32}{code:>5}{seconds:8.0f} s" for name, code, seconds in rows) + "\n")
    return max(code for _, code, _ in rows)


def _timed(name: str, module: list[str], variables: dict[str, str]) -> tuple[str, int, float]:
    """Name, exit code and seconds of ``python -m MODULE``."""
    sys.stdout.write(f"\n==> {name}\n")
    sys.stdout.flush()
    rooms = os.pathsep.join(str(ROOT / room) for room in ("bench", "e2e", "e2e/cluster", "crds", "worker_images/vllm"))
    began = time.monotonic()
    environment = {**os.environ, "PYTHONPATH": rooms, **variables}
    code = subprocess.run([sys.executable, "-m", *module], cwd=ROOT, env=environment, check=False).returncode
    return name, code, time.monotonic() - began


if __name__ == "__main__":
    sys.exit(main())
