"""``python -m tuner.work``: one cell in a process of its own, from standard input; its peak memory is then its own."""

from __future__ import annotations

import argparse
import json
import resource
import sys
import time
from pathlib import Path
from typing import Any, Final

import torch
from transformers import AutoTokenizer
from transformers.utils import logging

from sunfleet_tuner.artifact import write_weights
from sunfleet_tuner.columns import Columns
from sunfleet_tuner.config import TuneConfig
from sunfleet_tuner.evaluate import Pair, evaluate
from sunfleet_tuner.files import whole_folder
from sunfleet_tuner.modules import Sources, find, load, padding
from sunfleet_tuner.one_pass import OnePass
from sunfleet_tuner.processes import start
from sunfleet_tuner.quantize import Grid, quantize
from sunfleet_tuner.reference import Modules, ModuleSpec
from sunfleet_tuner.rows import Tokens, make_rows
from sunfleet_tuner.samples.evaluate import questions
from sunfleet_tuner.samples.tasks import TASKS, Example, split
from sunfleet_tuner.state import module_state
from sunfleet_tuner.train import Training as Loop
from sunfleet_tuner.weights import load_model
from tuner.cells import BASE, Cell, Measurement, Training, from_json

_TRAINING_ROWS: Final = 2000
# What the measurements of docs/tuning.md took well; full weights learn at one rate whichever way they are tuned.
_RATES: Final = {"ft": 3e-4, "full": 3e-4, "lora": 2e-3, "q4": 3e-4, "q3": 3e-4}
_BITS: Final = {"q4": 4, "q3": 3}


class OrdinaryPass(OnePass):
    """The baseline: one module in both phases, as fine-tuning has always been."""

    def forward(
        self, input_ids: torch.Tensor, targets: torch.Tensor, prompt_columns: torch.Tensor | None, first: int
    ) -> torch.Tensor:
        """The loss of :class:`OnePass` with no column left to a decoder."""
        del prompt_columns
        return super().forward(input_ids, targets, None, first)


class Bench:
    """The folder of a bench: ``base``, and everything made of it."""

    def __init__(self, folder: Path, base: Path) -> None:
        self._folder, self._base = folder, base

    def do(self, cell: Cell) -> dict[str, Any]:
        """The cell's result."""
        return self._train(cell) if isinstance(cell, Training) else self._measure(cell)

    def _train(self, cell: Training) -> dict[str, Any]:
        config = self._config(cell)
        accelerator = start("fp32", (), self._folder)
        sources = find(config)
        tokenizer = AutoTokenizer.from_pretrained(self._base)
        rows = make_rows(_records(_examples(cell)[0]), Tokens(tokenizer), max_length=512).training
        before = _resident()
        one_pass = ordinary(sources) if cell.method == "ft" else load(sources, config)[0]
        loop = Loop(accelerator, one_pass, rows, [], config, padding(tokenizer))
        began, losses = time.process_time(), []
        for done in loop.run():
            losses.append(done.loss)
            sys.stderr.write(f"  step {done.step}/{done.steps}  loss {done.loss:.3f}\n")
        seconds = (time.process_time() - began) / len(losses)
        # What a process holds before it has a model, a GiB of libraries, is no matter of the method.
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 - before
        with whole_folder(self._folder / cell.name) as draft:
            write_weights(draft, sources, one_pass.model, module_state(loop), BASE)
        last = losses[-5:]
        return {
            "steps": len(losses), "cpu_seconds_per_step": seconds, "peak_gib": peak / 2**30,
            "loss": sum(last) / len(last), "weights_gib": sum(p.numel() for p in one_pass.parameters()) * 4 / 2**30,
        }  # fmt: skip

    def _measure(self, cell: Measurement) -> dict[str, Any]:
        decoder = self._weights(cell, cell.row.decode)
        prefill = cell.row.prefill
        if prefill == cell.row.decode:
            spec = ModuleSpec()
        elif prefill == "lora":
            spec = ModuleSpec(adapter=str(self._folder / f"{cell.task}-{cell.seed}-lora"))
        else:
            spec = ModuleSpec(weights=str(self._weights(cell, prefill)))
        asked = questions(_examples(cell)[1])
        score = evaluate(Pair(Modules(decoder), spec), asked, TASKS[cell.task].correct)
        return {"right": list(score.right)}

    def _config(self, cell: Training) -> TuneConfig:
        quantised = cell.method in _BITS
        return TuneConfig(
            decoder=str(self._quantised(self._base, _BITS[cell.method]) if quantised else self._base),
            init=str(self._base) if quantised else "", output=self._folder / cell.name, data="made here",
            method="lora" if cell.method == "lora" else "full", rank=16, alpha=32, max_steps=cell.recipe.steps,
            batch_rows=cell.recipe.batch_rows, micro_tokens=512, learning_rate=_RATES[cell.method],
            schedule="constant_with_warmup", warmup_percent=10, precision="fp32", seed=cell.seed,
        )  # fmt: skip

    def _weights(self, cell: Measurement, name: str) -> Path:
        """Folder of ``base``, ``base-q4``, a method's module, or that one quantised (``ft-q4``)."""
        plain, _, bits = name.partition("-")
        folder = self._base if plain == BASE else self._folder / f"{cell.task}-{cell.seed}-{plain}"
        return self._quantised(folder, _BITS[bits]) if bits else folder

    def _quantised(self, folder: Path, bits: int) -> Path:
        """Four bits packed, as served; fewer as plain weights, which no engine would load."""
        target = self._folder / f"{folder.name}-q{bits}"
        if not target.exists():
            packed, twin = (target, None) if bits == 4 else (None, target)
            quantize(folder, packed, twin, Grid(bits=bits))
        return target


def _resident() -> int:
    """Bytes of memory this process holds now."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()


def ordinary(sources: Sources) -> OnePass:
    """All weights of the base, embeddings and head as frozen as in prefill-only tuning."""
    model = load_model(sources.init, torch.float32).requires_grad_()
    for layer in (model.get_input_embeddings(), model.get_output_embeddings()):
        layer.requires_grad_(requires_grad=False)
    return OrdinaryPass(model, Columns())


def _examples(cell: Cell) -> tuple[list[Example], list[Example]]:
    return split(TASKS[cell.task], _TRAINING_ROWS, cell.recipe.held_out, seed=100 * cell.seed)


def _records(examples: list[Example]) -> list[dict[str, Any]]:
    return [{"messages": [*one.messages, {"role": "assistant", "content": one.answer}]} for one in examples]


def main() -> None:
    """Do the cell on standard input and print its result as JSON."""
    parser = argparse.ArgumentParser(prog="python -m tuner.work", description=__doc__)
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--base", type=Path, required=True)
    given = parser.parse_args()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    cell = from_json(json.load(sys.stdin))
    print(json.dumps(Bench(given.folder, given.base).do(cell)))


if __name__ == "__main__":
    main()
