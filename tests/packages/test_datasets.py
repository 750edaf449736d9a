"""Hugging Face datasets: one set of rows in every form it comes in is one training set."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tests.packages.environments import Python, write_lines


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
    (several / (name + ".jsonl")).write_text("".join(json.dumps(row) + "\\n" for row in some))
configs = [
    {"config_name": name, "data_files": [{"split": split, "path": path} for split, path in of.items()]}
    for name, of in files.items()
]
(several / "README.md").write_text("---\\n" + json.dumps({"configs": configs}) + "\\n---\\n")
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


# The command, once for each run, in one process: a minute of a busy machine is spent on importing torch.
RUNS = """
import contextlib, io, json, sys
from sunfleet_tuner.__main__ import main
told = {}
for name, words in json.loads(sys.argv[1]).items():
    said = io.StringIO()
    with contextlib.redirect_stderr(said), contextlib.redirect_stdout(io.StringIO()):
        code = main(words)
    told[name] = [code, said.getvalue()]
print(json.dumps(told))
"""
FORMS = ("rows.jsonl", "rows.parquet", "rows.json", "folder", "saved", "one")
VALIDATED = (
    "rows.jsonl --validation folder", "rows.jsonl --validation saved", "several --subset main --validation several",
)  # fmt: skip
REFUSED = {
    "broken.parquet": "broken.parquet, split train cannot be loaded",
    "none.parquet": "none.parquet, split train cannot be loaded",
    "org/none": "org/none, split train cannot be loaded",
    "several": "several, split train cannot be loaded: it has several configurations: name one in subset, ['main', 't",
    "several --subset none": "subset none, split train cannot be loaded: BuilderConfig 'none' not found",
    "rows.jsonl --subset main": "rows.jsonl is a file, which has no subset main",
    "saved --subset main": "what save_to_disk wrote is one subset already",
}


@pytest.fixture(scope="module")
def runs(tuner: Python, tiny: Path, data: Path) -> dict[str, tuple[int, str]]:
    """Exit code and errors of runs of one step, by what they are given as data."""
    commands = {}
    for given in (*FORMS, *REFUSED, *VALIDATED, "several --subset main"):
        # Whatever lies in the folder stands for its path.
        source, *flags = [str(data / word) if (data / word).exists() else word for word in given.split()]
        words = ["tune", "--decoder", str(tiny), "--data", source, "--output", str(place(tuner, given)), *flags]
        commands[given] = [*words, "--max-steps", "1", "--precision", "fp32", "--golden-prompts", "0"]
    told = tuner.ask(RUNS, json.dumps(commands))
    return {given: (code, said) for given, (code, said) in told.items()}


def place(tuner: Python, given: str) -> Path:
    return tuner.folder / ("out " + given).replace("/", "-").replace(" ", "-")


def made(tuner: Python, runs: dict[str, tuple[int, str]], given: str) -> dict[str, Any]:
    """``data`` of the artifact, apart from its name."""
    assert runs[given] == (0, runs[given][1])
    return {**json.loads((place(tuner, given) / "sunfleet.json").read_text())["data"], "name": ""}


def test_every_form_of_the_same_rows_is_the_same_training_set(tuner: Python, runs: dict[str, tuple[int, str]]) -> None:
    expected = made(tuner, runs, "rows.jsonl")
    assert expected["training_rows"] == 19
    for given in (*FORMS, "several --subset main"):
        assert made(tuner, runs, given) == expected, given


@pytest.mark.parametrize("given", VALIDATED)
def test_validation_is_read_from_the_split_that_is_there(
    tuner: Python, runs: dict[str, tuple[int, str]], given: str
) -> None:
    found = made(tuner, runs, given)
    assert (found["training_rows"], found["validation_rows"]) == (20, 4)


@pytest.mark.parametrize("given", REFUSED)
def test_what_cannot_be_loaded_is_told_in_a_line(runs: dict[str, tuple[int, str]], given: str) -> None:
    code, said = runs[given]
    assert code == 1
    assert REFUSED[given] in said.splitlines()[-1]
