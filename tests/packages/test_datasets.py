"""Hugging Face datasets: one set of rows in every form it comes in is one training set."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tests.packages.environments import Python, succeeds, write_lines


def row(number: int) -> dict[str, Any]:
    """A chat; every other one calls a tool, so that the others get nulls where a column holds the calls."""
    call = {"type": "function", "function": {"name": "w5", "arguments": json.dumps({"a": number})}}
    answer = {"role": "assistant", "content": "w9", **({"tool_calls": [call]} if number % 2 else {})}
    return {"messages": [{"role": "user", "content": f"w{30 + number} w8"}, answer]}


# Of JSON lines every other form, by the real package.
MAKE = """
import json, sys
from pathlib import Path
from datasets import Dataset, DatasetDict
root = Path(sys.argv[1])
rows = [json.loads(line) for line in (root / "rows.jsonl").read_text().splitlines()]
whole, tail = Dataset.from_list(rows), Dataset.from_list(rows[:4])
whole.to_parquet(str(root / "rows.parquet"))
whole.to_json(str(root / "rows.json"))
(root / "folder").mkdir()
whole.to_parquet(str(root / "folder" / "train-00000-of-00001.parquet"))
tail.to_parquet(str(root / "folder" / "test-00000-of-00001.parquet"))
files = {"main": {"train": "rows.jsonl", "test": "tail.jsonl"}, "tail": {"train": "tail.jsonl"}}
several = root / "several"
several.mkdir()
for name, some in (("rows", rows), ("tail", rows[:4])):
    (several / (name + ".jsonl")).write_text("".join(json.dumps(row) + "\n" for row in some))
configs = [
    {"config_name": name, "data_files": [{"split": split, "path": path} for split, path in of.items()]}
    for name, of in files.items()
]
(several / "README.md").write_text("---\n" + json.dumps({"configs": configs}) + "\n---\n")
DatasetDict(train=whole, test=tail).save_to_disk(str(root / "saved"))
whole.save_to_disk(str(root / "one"))
print(1)
"""


@pytest.fixture(scope="module")
def data(tuner: Python) -> Path:
    folder = tuner.folder / "data"
    folder.mkdir()
    write_lines(folder / "rows.jsonl", [row(number) for number in range(20)])
    tuner.ask(MAKE, folder)
    (folder / "broken.parquet").write_text("no Parquet")
    return folder


def tuned(tuner: Python, tiny: Path, name: str, data: Path, *flags: str) -> dict[str, Any]:
    """``data`` of the artifact of a run of one step."""
    output = tuner.folder / f"out-{name}"
    words = ["tune", "--decoder", tiny, "--data", data, "--output", output, "--max-steps", "1", "--precision", "fp32"]
    succeeds(tuner.command([*words, "--golden-prompts", "0", *flags]))
    return dict(json.loads((output / "sunfleet.json").read_text())["data"])


def test_every_form_of_the_same_rows_is_the_same_training_set(tuner: Python, tiny: Path, data: Path) -> None:
    expected = tuned(tuner, tiny, "lines", data / "rows.jsonl")
    assert expected["training_rows"] == 19
    for name in ("rows.parquet", "rows.json", "folder", "saved", "one"):
        found = tuned(tuner, tiny, name, data / name)
        assert {**found, "name": ""} == {**expected, "name": ""}, name


def test_validation_is_read_from_the_split_that_is_there(tuner: Python, tiny: Path, data: Path) -> None:
    for name in ("folder", "saved"):
        found = tuned(tuner, tiny, f"validated-{name}", data / "rows.jsonl", "--validation", str(data / name))
        assert (found["training_rows"], found["validation_rows"]) == (20, 4), name


def test_a_dataset_of_several_configurations_is_read_in_the_one_that_is_named(
    tuner: Python, tiny: Path, data: Path
) -> None:
    expected = tuned(tuner, tiny, "lines-again", data / "rows.jsonl")
    several = data / "several"
    assert {**tuned(tuner, tiny, "main", several, "--subset", "main"), "name": ""} == {**expected, "name": ""}
    held_out = tuned(tuner, tiny, "held-out", several, "--subset", "main", "--validation", str(several))
    assert (held_out["training_rows"], held_out["validation_rows"]) == (20, 4)
    for flags, part in (
        ((), "it has several configurations: name one in subset, ['main', 'tail']"),
        (("--subset", "none"), "subset none, split train cannot be loaded: BuilderConfig 'none' not found"),
    ):
        done = tuner.command(["tune", "--decoder", tiny, "--data", several, "--output", tuner.folder / "none", *flags])
        assert done.returncode == 1
        assert part in done.stderr.splitlines()[-1]


@pytest.mark.parametrize(
    ("name", "part"),
    [
        ("broken.parquet", "broken.parquet, split train cannot be loaded"),
        ("none.parquet", "none.parquet, split train cannot be loaded"),
        ("org/none", "org/none, split train cannot be loaded"),
    ],
)
def test_what_cannot_be_loaded_is_told_in_a_line(tuner: Python, tiny: Path, data: Path, name: str, part: str) -> None:
    given = name if "/" in name else str(data / name)
    done = tuner.command(["tune", "--decoder", tiny, "--data", given, "--output", tuner.folder / "none"])
    assert done.returncode == 1
    assert part in done.stderr
    assert "Traceback" not in done.stderr
