"""Settings from file and flags, and what is told about a run."""

from __future__ import annotations

import json
from io import StringIO
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from rich.console import Console

from sunfleet_tuner.card import card
from sunfleet_tuner.checkpoint import Accuracy, CheckpointMeta, DataMeta
from sunfleet_tuner.config import TuneConfig
from sunfleet_tuner.configure import from_arguments
from sunfleet_tuner.errors import TuningError
from sunfleet_tuner.intervals import paired, share, wilson
from sunfleet_tuner.monitor import METRICS_FILE, Monitor
from sunfleet_tuner.processes import start
from sunfleet_tuner.train import Progress

NEEDED = ["--decoder", "base", "--output", "out", "--data", "data.jsonl"]


def test_flags_win_over_the_file_and_every_value_names_its_source(tmp_path: Path) -> None:
    file = tmp_path / "run.yaml"
    file.write_text("decoder: base\noutput: out\ndata: data.jsonl\nrank: 4\nseed: 7\ntrackers: tensorboard\n")
    configured = from_arguments(["--config", str(file), "--seed", "8", "--gradient-checkpointing"])
    config = configured.config
    assert (config.rank, config.seed, config.gradient_checkpointing, config.epochs) == (4, 8, True, 1)
    assert config.trackers == ("tensorboard",)
    lines = {line.split()[0]: line for line in configured.shown().splitlines()}
    assert lines.keys() == TuneConfig.model_fields.keys()
    assert lines["rank"].endswith(f"4  ({file})")
    assert lines["seed"].endswith("8  (flag)")
    assert lines["epochs"].endswith("1  (default)")


@pytest.mark.parametrize(
    ("content", "flags", "part"),
    [
        ("", NEEDED[2:], r"flags, or fields of .*run.yaml(.|\n)*decoder: is missing: add it"),
        ("learning-rate: 1", NEEDED, "learning-rate: is no field here: did you mean learning_rate"),
        ("- 1", NEEDED, "has to be a list of settings"),
        ("a: [", NEEDED, "cannot be read"),
        ("", [*NEEDED, "--rank", "0"], "rank: must be greater than or equal to 1, not '0'"),
        ("", [*NEEDED, "--train-embeddings"], "train_embeddings needs method: full"),
        ("", [*NEEDED, "--patience", "1", "--validation-percent", "0"], "patience needs validation data"),
    ],
)
def test_a_wrong_setting_is_named(tmp_path: Path, content: str, flags: list[str], part: str) -> None:
    file = tmp_path / "run.yaml"
    file.write_text(content or "{}")
    with pytest.raises(TuningError, match=part):
        from_arguments(["--config", str(file), *flags])


def test_the_learning_rate_follows_the_method_unless_it_is_set() -> None:
    assert from_arguments(NEEDED).config.rate == 2e-4
    assert from_arguments([*NEEDED, "--method", "full"]).config.rate == 1e-5
    assert from_arguments([*NEEDED, "--learning-rate", "3e-4"]).config.rate == 3e-4


def test_targets_are_all_layers_or_a_list() -> None:
    assert from_arguments(NEEDED).config.lora_targets == "all-linear"
    assert from_arguments([*NEEDED, "--targets", "q_proj, v_proj"]).config.lora_targets == ["q_proj", "v_proj"]


def test_a_tracker_that_is_not_installed_is_named_before_anything_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from sunfleet_tuner import processes

    monkeypatch.setitem(processes._TRACKERS, "wandb", lambda: False)
    with pytest.raises(TuningError, match="wandb is not installed: pip install wandb"):
        start("fp32", ["wandb"], tmp_path)


@pytest.mark.parametrize(
    ("flags", "expected"),
    [
        (["--validation", "org/rows@v1"], "main"),
        (["--validation", "org/other"], ""),
        (["--validation", "org/other", "--validation-subset", "plain"], "plain"),
        (["--validation", "org/rows", "--validation-subset", "socratic"], "socratic"),
    ],
)
def test_validation_is_of_the_datas_subset_where_both_are_one_dataset(flags: list[str], expected: str) -> None:
    given = ["--decoder", "base", "--output", "out", "--data", "org/rows", "--subset", "main", *flags]
    assert from_arguments(given).config.subset_of_validation == expected


def test_a_subset_decides_the_result_and_a_run_from_before_there_were_any_goes_on() -> None:
    assert from_arguments([*NEEDED, "--subset", "main"]).config.decisive()["subset"] == "main"
    assert not {"subset", "validation_subset"} & from_arguments(NEEDED).config.decisive().keys()


class Watched:
    """A monitor with a clock that stands, and what it wrote."""

    def __init__(
        self, folder: Path, *, main: bool = True, after: int = 0, wandb_run: str = "", **settings: Any
    ) -> None:
        self.now = 0.0
        self.out = StringIO()
        self.logged: list[tuple[dict[str, float], int]] = []
        self.options: dict[str, Any] = {}

        def init_trackers(_: str, *, config: dict[str, str], init_kwargs: dict[str, Any]) -> None:
            self.options.update(init_kwargs, config=config)

        accelerator = SimpleNamespace(
            is_main_process=main,
            init_trackers=init_trackers,
            end_training=lambda: None,
            log=lambda values, step: self.logged.append((values, step)),
            get_tracker=lambda _, unwrap=False: unwrap and SimpleNamespace(id=self.options["wandb"].get("id", "fresh")),
        )
        config = TuneConfig(decoder="base", output=folder / "out", data="d.jsonl", **settings)
        console = Console(file=self.out, width=200)
        self.monitor = Monitor(
            accelerator, config, 100, console, after=after, wandb_run=wandb_run, clock=lambda: self.now
        )
        self.metrics = config.work_folder / METRICS_FILE


def done(step: int) -> Progress:
    return Progress(step, 100, 1.5, 1e-3, 0.5, tokens=600, seconds=2.0)


def test_without_a_terminal_a_line_now_and_then_says_how_far_the_run_is(tmp_path: Path) -> None:
    watched = Watched(tmp_path)
    with watched.monitor as monitor:
        for step in (1, 2, 3):
            monitor.step(done(step))
            watched.now += 6
        monitor.step(done(100))
    lines = watched.out.getvalue().splitlines()
    assert [line.split()[1] for line in lines] == ["1/100", "3/100", "100/100"]
    assert "loss 1.500  300 tokens/s  3 min 18 s left" in lines[0]


def test_every_step_is_noted_and_a_resumed_run_takes_back_what_it_does_again(tmp_path: Path) -> None:
    watched = Watched(tmp_path)
    watched.monitor.validated(0, 0.5, best=False)
    for step in (1, 2, 3):
        watched.monitor.step(done(step))
    watched.monitor.validated(3, 0.25, best=True)
    with Watched(tmp_path, after=2).monitor:
        notes = [json.loads(line) for line in watched.metrics.read_text().splitlines()]
    assert [note["step"] for note in notes] == [0, 1, 2]
    assert notes[1]["loss"] == 1.5
    assert notes[1]["tokens_per_second"] == 300
    with Watched(tmp_path).monitor:  # killed before its first checkpoint: it begins again, with a validation
        assert watched.metrics.read_text() == ""


def test_other_processes_than_the_main_one_are_silent(tmp_path: Path) -> None:
    watched = Watched(tmp_path, main=False)
    watched.monitor.step(done(1))
    watched.monitor.validated(1, 0.5, best=False)
    watched.monitor.say("anything")
    assert watched.out.getvalue() == ""
    assert not watched.metrics.exists()


def test_a_supervisor_reads_progress_in_the_words_of_the_resource(tmp_path: Path) -> None:
    file = tmp_path / "progress.json"
    watched = Watched(tmp_path, progress=file)
    watched.monitor.step(done(7))
    content = json.loads(file.read_text())
    assert content.pop("updateTime").endswith("Z")
    assert content == {"step": 7, "totalSteps": 100, "loss": "1.5000", "tokensPerSecond": 300}
    assert list(tmp_path.glob(".progress*")) == []


def test_trackers_get_the_figures_of_each_step(tmp_path: Path) -> None:
    watched = Watched(tmp_path, trackers="tensorboard", after=3, name="maths", rank=4)
    with watched.monitor as monitor:
        monitor.step(done(4))
        monitor.validated(4, 0.5, best=True)
    assert watched.logged[0][0].items() >= {"loss": 1.5, "learning_rate": 1e-3}.items()
    assert watched.logged[1] == ({"validation_loss": 0.5}, 4)
    assert watched.options["config"].items() >= {"rank": 4, "learning_rate": 2e-4, "train_embeddings": False}.items()
    assert watched.options["tensorboard"] == {"purge_step": 4}, (
        "what an earlier process logged of step 4 counts no more"
    )
    assert watched.options["wandb"] == {"name": "maths"}


def test_a_resumed_run_goes_on_at_weights_and_biases_as_the_run_it_was(tmp_path: Path) -> None:
    begun = Watched(tmp_path, trackers="wandb")
    with begun.monitor as monitor:
        assert monitor.wandb_run == "fresh"
    resumed = Watched(tmp_path, trackers="wandb", after=3, wandb_run="fresh")
    with resumed.monitor as monitor:
        assert monitor.wandb_run == "fresh"
    assert resumed.options["wandb"] == {"name": "out", "id": "fresh", "resume": "allow"}
    other = Watched(tmp_path, main=False, trackers="wandb")
    with other.monitor as monitor:
        assert monitor.wandb_run == "", "only the main process tells anything"


def test_intervals_hold_at_the_ends_and_are_wilsons() -> None:
    assert wilson(0, 128) == pytest.approx((0.0, 0.0291), abs=1e-4)
    assert wilson(128, 128) == pytest.approx((0.9709, 1.0), abs=1e-4)
    assert wilson(30, 40) == pytest.approx((0.598, 0.858), abs=1e-3)
    assert share(30, 40) == "30 of 40 (75 %, 95 %: 60-86)"
    with pytest.raises(ValueError, match="3 of 2"):
        wilson(3, 2)


def test_pairs_differ_when_chance_would_rarely_split_them_so() -> None:
    assert paired(0, 0) == 1.0
    assert paired(7, 11) == pytest.approx(0.4807, abs=1e-4)
    assert paired(38, 0) < 1e-10


def test_the_card_tells_what_was_left_out_and_how_good_the_module_is() -> None:
    meta = CheckpointMeta(
        name="Arith_1", data=DataMeta(name="d", training_rows=5, dropped={"longer than 9 tokens": 2}),
        accuracy=[Accuracy(prefill="tuned", decode="base", correct=30, total=40)],
    )  # fmt: skip
    text = card(meta)
    assert "d: 5 rows, 0 to validate, 2 left out (longer than 9 tokens)" in text
    assert "| tuned -> base | 30 of 40 (75 %, 95 %: 60-86) |" in text
    assert "metadata: { name: arith-1 }" in text
