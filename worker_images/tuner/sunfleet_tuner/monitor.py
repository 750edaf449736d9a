"""What people and programs see of a run: a bar or lines, ``metrics.jsonl``, trackers, a picture of the loss."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

from accelerate import Accelerator
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.progress import Progress as Bar

from sunfleet_tuner.config import TuneConfig
from sunfleet_tuner.train import Progress

METRICS_FILE: Final = "metrics.jsonl"
PLOT_FILE: Final = "loss.png"
_QUIET_SECONDS: Final = 10.0  # between two lines where no terminal shows a bar, and between two progress files


class Monitor:
    """Tells about a run on its main process; on the others it is silent. Use it as a context manager.

    A run that goes on behind step ``after`` does later steps again: what was noted of them is taken back. ``wandb_run``
    is its id at Weights & Biases, empty for a new run; :attr:`wandb_run` has it from then on.
    """

    def __init__(
        self,
        accelerator: Accelerator,
        config: TuneConfig,
        steps: int,
        console: Console,
        *,
        after: int = 0,
        wandb_run: str = "",
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._main = accelerator.is_main_process
        self._accelerator, self._config = accelerator, config
        self.wandb_run = wandb_run
        self._begin = after + 1 if after else 0  # validation before the first step is step 0
        self._console, self._clock = console, clock
        self._metrics = config.work_folder / METRICS_FILE
        self._bar = Bar(
            TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TextColumn("{task.fields[news]}"),
            TimeElapsedColumn(), TextColumn("left"), TimeRemainingColumn(elapsed_when_finished=False),
            console=console, disable=not (self._main and console.is_terminal),
        )  # fmt: skip
        self._task = self._bar.add_task(config.title, total=steps, completed=after, news="")
        self._spoken = -_QUIET_SECONDS
        self._seconds: list[float] = []

    def __enter__(self) -> Self:
        if self._main and self._metrics.is_file():
            lines = self._metrics.read_text().splitlines()
            kept = [line for line in lines if json.loads(line)["step"] < self._begin]
            self._metrics.write_text("".join(f"{line}\n" for line in kept))
        if self._config.trackers:
            settings = {**self._config.decisive(), "learning_rate": self._config.rate}
            # Numbers stay numbers: runs are sorted by them.
            flat = {k: v if isinstance(v, bool | int | float | str) else str(v) for k, v in settings.items()}
            # There, steps that come a second time are left out, and they are the same to the last bit.
            going_on = {"id": self.wandb_run, "resume": "allow"} if self.wandb_run else {}
            # TensorBoard reads all of a folder: what this run will do again, or an earlier one did, counts no more.
            options = {"tensorboard": {"purge_step": self._begin}, "wandb": {"name": self._config.title, **going_on}}
            self._accelerator.init_trackers("sunfleet", config=flat, init_kwargs=options)
            if self._main and "wandb" in self._config.trackers:
                self.wandb_run = str(self._accelerator.get_tracker("wandb", unwrap=True).id)
        self._bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._bar.stop()
        if self._config.trackers:
            self._accelerator.end_training()

    def say(self, text: str) -> None:
        """One line, above the bar."""
        if self._main:
            self._console.print(text, highlight=False, markup=False, soft_wrap=True)

    def step(self, done: Progress) -> None:
        """Note a step."""
        self._seconds = [*self._seconds[-19:], done.seconds]
        rate = done.tokens / done.seconds if done.seconds else 0.0
        left = (done.steps - done.step) * sum(self._seconds) / len(self._seconds)
        self._note(
            step=done.step, loss=done.loss, learning_rate=done.learning_rate, gradient_norm=done.gradient_norm,
            tokens=done.tokens, tokens_per_second=round(rate, 1), seconds=round(done.seconds, 4),
        )  # fmt: skip
        if not self._main:
            return
        news = f"loss {done.loss:.3f}  {rate:.0f} tokens/s"
        self._bar.update(self._task, completed=done.step, news=news)
        if self._clock() - self._spoken >= _QUIET_SECONDS or done.step == done.steps:
            self._spoken = self._clock()
            self._write_progress(done, rate)
            if self._bar.disable:
                self.say(f"step {done.step}/{done.steps}  {news}  {_duration(left)} left")

    def validated(self, step: int, loss: float, *, best: bool) -> None:
        """Note a validation."""
        self._note(step=step, validation_loss=loss)
        self.say(f"step {step}: validation loss {loss:.4f}{', the best so far' if best else ''}")

    def _note(self, **values: Any) -> None:
        if self._config.trackers:
            self._accelerator.log({k: v for k, v in values.items() if k != "step"}, step=values["step"])
        if self._main:
            self._metrics.parent.mkdir(parents=True, exist_ok=True)
            with self._metrics.open("a") as lines:
                lines.write(json.dumps(values) + "\n")

    def _write_progress(self, done: Progress, rate: float) -> None:
        """For a supervisor: the fields of ``PrefillTuning.status.progress``."""
        if self._config.progress is None:
            return
        content = {
            "step": done.step, "totalSteps": done.steps, "loss": f"{done.loss:.4f}", "tokensPerSecond": round(rate),
            "updateTime": datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
        }  # fmt: skip
        draft = self._config.progress.with_name(f".{self._config.progress.name}.new")
        draft.write_text(json.dumps(content) + "\n")
        draft.rename(self._config.progress)


def plot(metrics: Path, target: Path, title: str) -> None:
    """A picture of the training and validation loss in ``metrics`` (:data:`METRICS_FILE`)."""
    from matplotlib.figure import Figure  # noqa: PLC0415 - a second to import, and only the end needs it

    notes = [json.loads(line) for line in metrics.read_text().splitlines()]
    figure = Figure(figsize=(7, 4), layout="constrained")
    axes = figure.subplots()
    for field, label, style in (("loss", "training", "-"), ("validation_loss", "validation", "o-")):
        points = [(note["step"], note[field]) for note in notes if field in note]
        if points:
            axes.plot(*zip(*points, strict=True), style, label=label, linewidth=1, markersize=4)
    axes.set(title=title, xlabel="step", ylabel="cross-entropy per response token, nats")
    axes.legend()
    axes.grid(alpha=0.3)
    figure.savefig(target, dpi=120)


def _duration(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min" if hours else f"{minutes} min {rest} s" if minutes else f"{rest} s"
