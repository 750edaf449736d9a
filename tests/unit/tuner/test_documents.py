"""What the documents tell people to type is what the tuner takes: commands, settings, data, versions."""

from __future__ import annotations

import argparse
import json
import re
import shlex
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import yaml

from sunfleet_tuner import packages
from sunfleet_tuner.__main__ import _parser
from sunfleet_tuner.config import TuneConfig
from sunfleet_tuner.served import messages_of, tools_of

ROOT = Path(__file__).resolve().parents[3]
DOCUMENTS = [ROOT / "docs/tuning.md", ROOT / "docs/recipes/README.md", ROOT / "docs/cli.md", ROOT / "docs/weights.md"]
RECIPES = (ROOT / "docs/recipes/README.md").read_text()
VERBS = ("tune", "eval", "quantize")
# Of other programs, which stand beside ours.
FOREIGN_FLAGS = {"--nproc-per-node", "--model", "--to"}


def blocks(text: str, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", text, re.MULTILINE | re.DOTALL)


def commands() -> list[list[str]]:
    """Words behind ``sunfleet`` of every whole command in a shell block."""
    found = []
    for document in DOCUMENTS:
        for line in "\n".join(blocks(document.read_text(), "sh")).splitlines():
            words = shlex.split(line, comments=True)
            while words and "=" in words[0]:
                words.pop(0)  # variables
            if len(words) > 1 and words[0] == "sunfleet" and words[1] in VERBS:
                found.append(words[1:])
    return found


def options(parser: argparse.ArgumentParser) -> set[str]:
    """Flags of the commands."""
    (subparsers,) = (action for action in parser._actions if isinstance(action, argparse._SubParsersAction))
    each = [parser, *subparsers.choices.values()]
    return {flag for one in each for action in one._actions for flag in action.option_strings}


def test_the_documents_hold_commands_of_every_kind() -> None:
    assert {words[0] for words in commands()} == set(VERBS)
    assert len(commands()) > 10


@pytest.mark.parametrize("words", commands(), ids=" ".join)
def test_a_command_is_one_that_the_tuner_takes(words: list[str]) -> None:
    assert callable(_parser("sunfleet").parse_args(words).run)


@pytest.mark.parametrize(
    "document", [ROOT / "docs/tuning.md", ROOT / "docs/recipes/README.md"], ids=lambda path: path.name
)
def test_a_flag_that_is_named_exists(document: Path) -> None:
    named = set(
        re.findall(r"(?<![\w-])--[a-z][a-z-]+", re.sub(r"^lm_eval .*$", "", document.read_text(), flags=re.MULTILINE))
    )
    assert named - FOREIGN_FLAGS <= options(_parser("sunfleet"))


def test_a_configuration_is_one_that_the_tuner_takes() -> None:
    (written,) = [block for block in blocks(RECIPES, "yaml") if "decoder:" in block]
    config = TuneConfig.model_validate(yaml.safe_load(written))
    assert config.method == "lora"
    assert config.data == "gsm8k.jsonl"


def test_a_table_of_settings_names_settings() -> None:
    first_columns = re.findall(
        r"^\| ([^|]*`[^|]*) \|", RECIPES.partition("## Settings")[2].partition("## GPUs")[0], re.MULTILINE
    )
    named = {name for column in first_columns for name in re.findall(r"`([a-z_]+)`", column)}
    assert {"rank", "learning_rate", "micro_tokens"} <= named
    assert named <= TuneConfig.model_fields.keys()


GSM8K = {"question": "2 + 2?", "answer": "2 + 2 = 4\n#### 4"}
XLAM = {
    "query": "The weather in Oslo?",
    "tools": json.dumps(
        [{
            "name": "weather", "description": "Of a city",
            "parameters": {
                "city": {"type": "str", "description": "Its name"},
                "days": {"type": "List[int], optional", "description": "Which", "default": ""},
            },
        }]
    ),
    "answers": json.dumps([{"name": "weather", "arguments": {"city": "Oslo"}}]),
}  # fmt: skip


def test_the_scripts_that_make_data_make_rows_that_the_tuner_takes(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def load_dataset(name: str, *config: str, split: str) -> list[dict[str, Any]]:
        assert split in {"train", "test"}
        return [XLAM if "xlam" in name else GSM8K] * 2

    stub = ModuleType("datasets")
    vars(stub)["load_dataset"] = load_dataset
    monkeypatch.setitem(sys.modules, "datasets", stub)
    monkeypatch.chdir(tmp_path)
    scope: dict[str, Any] = {}
    for script in blocks(RECIPES, "python"):
        exec(script, scope)  # noqa: S102 - the document's own words
    assert sorted(path.name for path in tmp_path.iterdir()) == ["bfcl.jsonl", "gsm8k-test.jsonl", "gsm8k.jsonl"]
    sums, calls = (
        [json.loads(line) for line in (tmp_path / name).read_text().splitlines()]
        for name in ("gsm8k.jsonl", "bfcl.jsonl")
    )
    assert [turn["content"] for turn in messages_of(sums[0]["messages"])] == [GSM8K["question"], GSM8K["answer"]]
    call = messages_of(calls[0]["messages"])[1]["tool_calls"][0]["function"]
    assert call == {"name": "weather", "arguments": {"city": "Oslo"}}
    (tool,) = tools_of(calls[0]["tools"]) or []
    assert tool["function"]["parameters"] == {
        "type": "object",
        "properties": {
            "city": {"type": "string", "description": "Its name"}, "days": {"type": "array", "description": "Which"}
        },
        "required": ["city"],
    }  # fmt: skip


def test_one_version_of_a_package_is_named_everywhere() -> None:
    places = [*DOCUMENTS, ROOT / "docs/install.md", ROOT / "worker_images/tuner/Dockerfile"]
    text = "\n".join(path.read_text() for path in places)
    for requirement in (packages.COMPRESSOR, packages.LM_EVAL, packages.WANDB):
        name = re.split(r"\W", requirement.replace("-", "_"))[0].replace("_", "-")
        assert set(re.findall(rf"{name}(?:\[\w+\])?==[\w.]*\w", text)) == {requirement}
        assert not re.search(rf"pip install [^\n`]*{name}(?![\w\[=])", text), f"{name} of any version"
