"""From a job to the command that does it, and back from a failure to its error; and the quantiser's marker."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from sunfleet_api.files import META_FILE
from sunfleet_api.tuning import QuantizeJob, TuneJob
from sunfleet_tuner import errors
from sunfleet_tuner.config import TuneConfig
from sunfleet_tuner.failure import Failure
from sunfleet_tuner.files import folder_digest

# Checkpoints are the way back after a lost pod; a whole epoch between two of them may be hours.
_SAVE_STEPS: Final = "100"
_COMPRESSOR: Final = Path("/opt/sunfleet/compressor/bin/python")  # llmcompressor's own environment in the image


def tune(job: TuneJob, config: Path, failure: Path, index: int) -> list[str]:
    """One process, or torchrun's where there are several."""
    work = ["-m", "sunfleet_tuner", "--failure", str(failure), "tune", "--config", str(config)]
    if job.processes * job.nodes == 1:
        return [sys.executable, *work]
    where = ["--standalone"]
    if job.nodes > 1:
        host, _, port = job.main_address.rpartition(":")
        where = ["--node-rank", str(index), "--master-addr", host, "--master-port", port]
    run = ["--nnodes", str(job.nodes), "--nproc-per-node", str(job.processes), *where]
    return [sys.executable, "-m", "torch.distributed.run", *run, *work]


def typed(settings: Mapping[str, str]) -> dict[str, Any]:
    """Settings as a YAML file holds them; what the tuner does not know it refuses by name itself."""
    given = {"save_steps": _SAVE_STEPS, **settings}
    flags = {name for name, field in TuneConfig.model_fields.items() if field.annotation is bool}
    return {name: value.lower() == "true" if name in flags else value for name, value in given.items()}


def quantize(job: QuantizeJob, calibration: str, failure: Path) -> list[str]:
    """Rounding to nearest, or GPTQ where there is something to calibrate on."""
    grid = ["--bits", str(job.bits), "--group-size", str(job.group_size)]
    rows = ["--method", "gptq", "--calibration", calibration, "--samples", str(job.samples)] if calibration else []
    rows += ["--subset", job.subset] if job.subset else []
    python = ["--python", str(_COMPRESSOR)] if calibration else []
    folders = [job.base_path, job.output_path]
    return [
        sys.executable, "-m", "sunfleet_tuner", "--failure", str(failure), "quantize", *folders, *grid, *rows, *python,
    ]  # fmt: skip


def is_quantised(output: Path, base: Path, job: QuantizeJob) -> bool:
    """Whether an earlier run of the same job has finished: the weights may be in use."""
    try:
        known = json.loads((output / META_FILE).read_text())
    except (OSError, ValueError):
        return False
    return bool(known == _quantised_meta(base, job))


def note_quantised(output: Path, base: Path, job: QuantizeJob) -> None:
    """Leave word of what it was made from."""
    (output / META_FILE).write_text(json.dumps(_quantised_meta(base, job), indent=2) + "\n")


def _quantised_meta(base: Path, job: QuantizeJob) -> dict[str, Any]:
    of_job = job.model_dump(include={"bits", "group_size", "data", "samples"})
    subset = {"subset": job.subset} if job.subset else {}
    return {"quantized_from": folder_digest(base), **of_job, **subset}


def as_error(failure: Failure) -> errors.TuningError:
    """The error that a process wrote down."""
    kinds = {kind.__name__: kind for kind in errors.TuningError.__subclasses__()}
    return kinds.get(failure.reason, errors.TuningError)(failure.message)
