"""Tunes the sample adapters: a prefill module per task of :mod:`sunfleet_tuner.samples.tasks`, minutes each."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

from rich.console import Console

from sunfleet_tuner.card import card
from sunfleet_tuner.checkpoint import read_meta, write_meta
from sunfleet_tuner.config import TuneConfig
from sunfleet_tuner.reference import Modules
from sunfleet_tuner.samples.evaluate import measure
from sunfleet_tuner.samples.tasks import TASKS, Example, split
from sunfleet_tuner.tune import tune

TRAINING_ROWS = 2000
DATA_SEED = 0

# What differs from the configuration's defaults. The steps are few: the samples show the way, not the limit.
_COMMON: Final[dict[str, Any]] = {
    "rank": 8, "alpha": 16, "learning_rate": 2e-3, "schedule": "constant_with_warmup", "warmup_percent": 10,
    "precision": "fp32",
}  # fmt: skip
RECIPES: Final[dict[str, dict[str, Any]]] = {
    "arith": {"max_steps": 60, "batch_rows": 16},
    "sorting": {"max_steps": 60, "batch_rows": 16},
    "toolcall": {"max_steps": 40, "batch_rows": 8},
}
HELD_OUT_ROWS: Final = {"arith": 128, "sorting": 128, "toolcall": 64}


def make_adapter(name: str, base: Path, target: Path, say: Callable[[str], None]) -> None:
    """Tune the adapter of task ``name`` against the checkpoint in ``base`` and write it to ``target``."""
    with tempfile.TemporaryDirectory() as folder:
        data = write_jsonl(Path(folder) / f"{name}.jsonl", _examples(name)[0])
        config = TuneConfig(
            decoder=str(base), data=str(data), output=target, name=name, task=TASKS[name].summary, **_COMMON,
            **RECIPES[name],
        )  # fmt: skip
        outcome = tune(config, Console(soft_wrap=True))
    say(f"{'made' if outcome.made else 'kept'} {target}")


def measure_adapter(name: str, base: Path, adapter: Path, say: Callable[[str], None]) -> None:
    """Accuracy on held-out rows, written into the adapter's ``sunfleet.json`` and card.

    Measured as it will be served: read back from disk, rounded to bfloat16.
    """
    accuracy = measure(Modules(base), adapter, TASKS[name], _examples(name)[1], say)
    meta = read_meta(adapter).model_copy(update={"accuracy": accuracy})
    write_meta(adapter, meta)
    (adapter / "README.md").write_text(card(meta))


def write_jsonl(path: Path, examples: Sequence[Example]) -> Path:
    """The examples as a chat dataset."""
    lines = [
        json.dumps({"messages": [*example.messages, {"role": "assistant", "content": example.answer}]})
        for example in examples
    ]
    path.write_text("".join(f"{line}\n" for line in lines))
    return path


def _examples(name: str) -> tuple[list[Example], list[Example]]:
    return split(TASKS[name], TRAINING_ROWS, HELD_OUT_ROWS[name], DATA_SEED)
