"""TensorBoard and Weights & Biases, real and offline: what a run logged is read back and is what it noted."""

from __future__ import annotations

import json
import signal
from pathlib import Path
from typing import Any

import pytest
from tests.packages.environments import Python, succeeds, write_lines

STEPS = 3
FIELDS = ("loss", "learning_rate", "gradient_norm", "tokens", "tokens_per_second", "seconds")
TENSORBOARD = """
import json, sys
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
events = EventAccumulator(sys.argv[1])
events.Reload()
print(json.dumps({tag: [[one.step, one.value] for one in events.Scalars(tag)] for tag in events.Tags()["scalars"]}))
"""
# An offline run is a log of protobuf records in LevelDB's framing: blocks of 32 KiB, each record in one or more pieces.
WANDB = """
import json, struct, sys
from wandb.proto import wandb_internal_pb2
found = {"id": "", "rows": [], "config": {}}
data, place, pieces = open(sys.argv[1], "rb").read(), 7, b""
while place + 7 <= len(data):
    left = 32768 - place % 32768
    if left < 7:
        place += left
        continue
    length, kind = struct.unpack_from("<HB", data, place + 4)
    pieces += data[place + 7 : place + 7 + length]
    place += 7 + length
    if kind not in (1, 4):
        continue
    record = wandb_internal_pb2.Record()
    record.ParseFromString(pieces)
    pieces = b""
    kind = record.WhichOneof("record_type")
    if kind == "history":
        row = {one.key or ".".join(one.nested_key): json.loads(one.value_json) for one in record.history.item}
        found["rows"].append({"_step": record.history.step.num, **row})
    elif kind == "run":
        found["id"], found["name"], found["project"] = record.run.run_id, record.run.display_name, record.run.project
    updated = record.config.update if kind == "config" else record.run.config.update if kind == "run" else ()
    found["config"].update({one.key: json.loads(one.value_json) for one in updated})
print(json.dumps(found))
"""


# The command's own entry point, whose process ends as a lost pod does: behind the checkpoint of the second step.
LOST = """
import os, sys
from sunfleet_tuner.__main__ import main
from sunfleet_tuner.state import Checkpoints
save = Checkpoints.save
def saved(self, training, record):
    save(self, training, record)
    if record.step == 2:
        os.kill(os.getpid(), 9)
Checkpoints.save = saved
main(sys.argv[1:])
"""


@pytest.fixture(scope="module")
def run(tuner: Python, tiny: Path) -> Path:
    """A run of three steps with both trackers; the folder of its module."""
    rows = [{"prompt": f"w{30 + number} w8", "completion": "w7 w9"} for number in range(20)]
    data = write_lines(tuner.folder / "tracked.jsonl", rows)
    output = tuner.folder / "tracked"
    words = ["tune", "--decoder", tiny, "--data", data, "--output", output, "--max-steps", str(STEPS), "--rank", "4"]
    told = [
        *words,
        "--precision",
        "fp32",
        "--golden-prompts",
        "0",
        "--trackers",
        "tensorboard,wandb",
        "--eval-steps",
        "2",
    ]
    succeeds(tuner.command(told))
    return output


def noted(run: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]


def test_tensorboard_shows_every_step_after_the_run(tuner: Python, run: Path) -> None:
    found = tuner.ask(TENSORBOARD, run.with_name("tracked.runs") / "sunfleet")
    for field in FIELDS:
        expected = [(note["step"], note[field]) for note in noted(run) if field in note]
        assert len(expected) == STEPS
        assert [step for step, _ in found[field]] == [step for step, _ in expected]
        assert [value for _, value in found[field]] == pytest.approx([value for _, value in expected], rel=1e-5), field
    validated = [(note["step"], note["validation_loss"]) for note in noted(run) if "validation_loss" in note]
    assert [step for step, _ in found["validation_loss"]] == [step for step, _ in validated] == [0, 2, 3]


def test_weights_and_biases_has_the_same_figures_and_settings(tuner: Python, run: Path) -> None:
    (file,) = tuner.folder.glob("wandb/offline-run-*/run-*.wandb")
    found = tuner.ask(WANDB, file)
    assert (found["project"], found["name"]) == ("sunfleet", "tracked")
    steps = {row["_step"]: row for row in found["rows"]}
    for note in noted(run):
        if "loss" in note:
            assert [steps[note["step"]][field] for field in FIELDS] == pytest.approx([note[field] for field in FIELDS])
    assert found["config"].items() >= {"rank": 4, "learning_rate": 2e-4, "method": "lora"}.items()


def test_a_run_that_goes_on_is_one_run_at_weights_and_biases(tuner: Python, tiny: Path, run: Path) -> None:
    words = ["tune", "--decoder", tiny, "--data", tuner.folder / "tracked.jsonl", "--output", tuner.folder / "lost"]
    steps = ["--max-steps", "4", "--save-steps", "1", "--precision", "fp32", "--golden-prompts", "0"]
    told = [*words, *steps, "--trackers", "wandb"]
    before = set(tuner.folder.glob("wandb/offline-run-*/run-*.wandb"))
    assert tuner.script(LOST, told).returncode == -signal.SIGKILL
    succeeds(tuner.command(told))
    files = sorted(set(tuner.folder.glob("wandb/offline-run-*/run-*.wandb")) - before)
    first, second = files  # what the lost process had not written yet is lost with it, where no server is told
    assert first.name == second.name
    found = tuner.ask(WANDB, second)
    assert second.name == f"run-{found['id']}.wandb"
    assert [row["_step"] for row in found["rows"]] == [3, 4]


def test_a_second_run_to_the_same_place_replaces_the_first_ones_curve(tuner: Python, tiny: Path, run: Path) -> None:
    before = tuner.ask(TENSORBOARD, run.with_name("tracked.runs") / "sunfleet")["loss"]
    words = ["tune", "--decoder", tiny, "--data", tuner.folder / "tracked.jsonl", "--output", run, "--max-steps", "2"]
    told = [*words, "--rank", "2", "--precision", "fp32", "--golden-prompts", "0", "--trackers", "tensorboard"]
    succeeds(tuner.command(told))
    after = tuner.ask(TENSORBOARD, run.with_name("tracked.runs") / "sunfleet")["loss"]
    assert (len(before), len(after)) == (STEPS, 2)
