"""GPTQ and AWQ, which look at activations: llmcompressor does it, in an environment of its own.

It and the engine pin different versions of compressed-tensors, so it never shares an environment with either the engine
or the tuner. This side turns the data into token ids and starts :mod:`.llmcompressor_job` there, which imports nothing
of Sunfleet.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from pathlib import Path
from typing import Any, Final

from transformers import AutoTokenizer

from sunfleet_tuner.errors import TuningError
from sunfleet_tuner.files import whole_folder
from sunfleet_tuner.packages import COMPRESSOR
from sunfleet_tuner.rows import Tokens, make_rows
from sunfleet_tuner.sources import records
from sunfleet_tuner.weights import quantization_of

_JOB: Final = Path(__file__).with_name("llmcompressor_job.py")


def quantize_with_calibration(base: Path, args: argparse.Namespace) -> None:
    """Write ``args.packed`` of ``base``; TuningError when data or environment are missing, or the job fails."""
    if args.calibration is None:
        raise TuningError(f"--method {args.method} needs --calibration, rows like those the fleet will answer")
    python = args.python or Path(sys.executable)
    if subprocess.run([python, "-I", "-c", "import llmcompressor"], capture_output=True, check=False).returncode:
        raise TuningError(
            f"{python} has no llmcompressor: make an environment for it (python -m venv compressor && "
            f"compressor/bin/pip install {COMPRESSOR}) and name its interpreter in --python"
        )
    with whole_folder(args.packed) as draft:
        job = {
            "base": str(base.resolve()), "target": str(draft), "method": args.method, "bits": args.bits,
            "group_size": args.group_size, "max_length": args.max_length, "rows": _rows(base, args),
        }  # fmt: skip
        # Standard input, not a file: the rows may be anybody's data. -I: neither this folder nor PYTHONPATH is that
        # environment's business.
        done = subprocess.run([python, "-I", _JOB], input=json.dumps(job), text=True, check=False)
        if done.returncode:
            raise TuningError(f"llmcompressor ended with exit code {done.returncode}; what it said is above")
        _check_format(draft)


def _check_format(draft: Path) -> None:
    """What came out is what engines and the tuner read: the environment may hold any version."""
    scheme = quantization_of(draft) or {}
    found = scheme.get("quant_method"), scheme.get("format")
    if found != ("compressed-tensors", "pack-quantized"):
        raise TuningError(
            f"llmcompressor wrote {' '.join(map(str, found))} where compressed-tensors pack-quantized was wanted: "
            f"its environment should hold {COMPRESSOR}"
        )


def _rows(base: Path, args: argparse.Namespace) -> list[list[int]]:
    """Token ids of prompts with their answers: what the decoder will read and write."""
    tokenizer: Any = AutoTokenizer.from_pretrained(base)
    data = records(str(args.calibration), "train", subset=args.subset)
    rows = make_rows(data, Tokens(tokenizer), max_length=args.max_length, name=str(args.calibration)).training
    if not rows:
        raise TuningError(f"{args.calibration} has no row of at most {args.max_length} tokens to calibrate with")
    return [[*row.prompt, *row.response] for row in rows[: args.samples]]
