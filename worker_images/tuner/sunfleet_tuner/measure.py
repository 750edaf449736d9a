"""``sunfleet eval``: which pair or fleet, which questions, and how the result is told and kept."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import Progress

from sunfleet_tuner.errors import TuningError
from sunfleet_tuner.evaluate import Answerer, Fleet, Pair, Question, Score, client_of, evaluate, questions_of
from sunfleet_tuner.harness import Asked, Respondent, run_harness
from sunfleet_tuner.intervals import wilson
from sunfleet_tuner.judges import JUDGES, Judge
from sunfleet_tuner.reference import Modules, ModuleSpec
from sunfleet_tuner.respondents import FleetRespondent, PairRespondent
from sunfleet_tuner.samples.evaluate import questions
from sunfleet_tuner.samples.tasks import TASKS, split
from sunfleet_tuner.sources import records
from sunfleet_tuner.weights import local_folder

_DATA_SEED = 0  # the samples' adapters were tuned on the other side of this split
_TRAINING_ROWS = 2000


def run(args: argparse.Namespace) -> int:
    """Measure and tell; raises :class:`.errors.TuningError`."""
    console = Console(soft_wrap=True)
    if args.lm_eval:
        asked_of_harness = Asked(args.lm_eval.split(","), args.rows or None, args.shots, args.chat, args.run_code)
        found = run_harness(_respondent(args), asked_of_harness)
        _keep(args.output, {"lm_eval": found["results"], "samples": found["samples"]})
        console.print_json(data=found["results"], default=str)
        return 0
    asked, judge = _questions(args)
    score = _ask(args, asked, judge, console)
    low, high = wilson(score.correct, len(asked))
    _keep(
        args.output,
        {"correct": score.correct, "total": len(asked), "interval": [low, high], "right": list(score.right)},
    )
    console.print(f"{args.task or args.data}: {score} right", highlight=False, markup=False)
    return 0


def _ask(args: argparse.Namespace, asked: list[Question], judge: Judge, console: Console) -> Score:
    answerer, parallel = _answerer(args)
    with Progress(console=console, disable=not console.is_terminal) as bar:
        task = bar.add_task("answers", total=len(asked))
        return evaluate(answerer, asked, judge, parallel=parallel, on_answer=lambda: bar.advance(task))


def _answerer(args: argparse.Namespace) -> tuple[Answerer, int]:
    if args.decoder:
        return Pair(*_pair(args), args.max_tokens), 1  # one model in memory answers one question at a time
    return Fleet(_client(args), args.model, args.max_tokens), args.parallel


def _respondent(args: argparse.Namespace) -> Respondent:
    if args.decoder:
        return PairRespondent(*_pair(args), chat=args.chat)
    return FleetRespondent(_client(args), args.model, chat=args.chat, parallel=args.parallel)


def _client(args: argparse.Namespace) -> Any:
    if not args.model:
        raise TuningError("--url needs --model, the task's name")
    return client_of(args.url, args.api_key)


def _pair(args: argparse.Namespace) -> tuple[Modules, ModuleSpec]:
    try:
        spec = ModuleSpec(adapter=args.adapter, base=args.base, weights=args.weights)
        return Modules(local_folder(args.decoder)), spec
    except ValueError as error:  # an adapter and weights; a kind of quantisation that is not known
        raise TuningError(str(error)) from error


def _questions(args: argparse.Namespace) -> tuple[list[Question], Judge]:
    if args.task:
        task = TASKS[args.task]
        if not args.rows:
            raise TuningError("a built-in task makes as many questions as are asked for: give --rows")
        try:
            return questions(split(task, _TRAINING_ROWS, args.rows, _DATA_SEED)[1]), task.correct
        except ValueError as error:  # more than there are
            raise TuningError(f"--rows {args.rows}: {error}") from error
    asked = questions_of(records(args.data, args.split, subset=args.subset), args.data)[: args.rows or None]
    if not asked:
        raise TuningError(f"{args.data} holds no question")
    return asked, JUDGES[args.judge]


def _keep(path: Path | None, result: dict[str, Any]) -> None:
    if path is not None:
        path.write_text(json.dumps(result, indent=1, default=str) + "\n")
