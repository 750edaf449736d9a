"""Accuracy of pairs and fleets: who is asked what, and when an answer is right."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from openai_stand_in import Asked, openai_stand_in
from sunfleet_tuner.__main__ import main
from sunfleet_tuner.errors import TuningError
from sunfleet_tuner.evaluate import Fleet, Given, Pair, Question, client_of, evaluate, questions_of
from sunfleet_tuner.judges import last_number, same_json, same_text
from sunfleet_tuner.reference import Modules, ModuleSpec, Sampling
from tiny_models import tiny_adapter, tiny_checkpoint

ASK = Question(({"role": "user", "content": "w7 w8"},), "w9")
TOOL = {"type": "function", "function": {"name": "f"}}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("pair")
    tiny_checkpoint(root / "decoder")
    tiny_adapter(root / "adapter", 1)
    return root


@pytest.fixture(scope="module")
def modules(folder: Path) -> Modules:
    return Modules(folder / "decoder")


def test_a_pair_answers_along_the_reference_path_and_within_the_limit(folder: Path, modules: Modules) -> None:
    spec = ModuleSpec(adapter=str(folder / "adapter"))
    given = Pair(modules, spec, longest=5)(ASK)
    expected = modules.answer(spec, [1, 7, 8, 3, 4], Sampling(max_tokens=5))
    assert given == Given(modules.text(expected.token_ids), expected.finish_reason == "stop")
    told = Pair(modules, spec, longest=5)(Question(ASK.prompt, "w9", [TOOL]))
    assert told.text == modules.text(modules.answer(spec, [6, 0, 1, 7, 8, 3, 4], Sampling(max_tokens=5)).token_ids)
    text = Pair(modules, ModuleSpec(), longest=3)(Question("w7 w8", "w9"))
    assert text.text == modules.text(modules.answer(ModuleSpec(), [7, 8], Sampling(max_tokens=3)).token_ids)


def test_an_answer_that_did_not_end_is_wrong_and_rights_keep_the_order_of_the_questions() -> None:
    asked = [Question(str(number), str(number)) for number in range(6)]

    def answer(question: Question) -> Given:
        return Given(question.answer if question.answer != "2" else "?", question.answer != "4")

    for parallel in (1, 4):
        score = evaluate(answer, asked, same_text, parallel=parallel)
        assert score.right == (True, True, False, True, False, True)
        assert str(score).startswith("4 of 6 (67 %")


@pytest.mark.parametrize(
    ("judge", "given", "right", "verdict"),
    [
        (same_text, " 12\n", "12", True),
        (same_text, "The answer is 12", "12", False),
        (same_json, '{"arguments": {"a": 1}, "name": "f"}', '{"name": "f", "arguments": {"a": 1}}', True),
        (same_json, '{"name": "f"', '{"name": "f"}', False),
        (same_json, "not json", "neither", False),
        (last_number, "6 * 7 = 42, so #### 42", "#### 42", True),
        (last_number, "it costs 1,234.50", "1234.5", True),
        (last_number, "42 or 43", "42", False),
        (last_number, "no idea", "42", False),
        (last_number, "", "", False),
    ],
)
def test_judges_are_strict_about_what_a_client_would_parse(judge: Any, given: str, right: str, verdict: bool) -> None:
    assert judge(given, right) is verdict


def test_the_last_assistant_turn_of_a_chat_is_the_answer() -> None:
    turns = [{"role": role, "content": text} for role, text in (("user", "a"), ("assistant", "b"), ("user", "c"))]
    chat = {"messages": [*turns, {"role": "assistant", "content": "d"}]}
    text = {"prompt": "a", "completion": "b"}
    messages = {"prompt": turns[:1], "completion": turns[1:2]}
    assert questions_of([chat, text, messages], "data") == [
        Question(turns, "d"), Question("a", "b"), Question(turns[:1], "b")
    ]  # fmt: skip
    tool = {"type": "function", "function": {"name": "f", "description": None, "parameters": None}}
    assert questions_of([{**chat, "tools": json.dumps([tool])}], "data")[0].tools == [tool]
    with pytest.raises(TuningError, match="data, record 0: tools have to be"):
        questions_of([{**chat, "tools": [{"name": "f"}]}], "data")
    for wrong in ({"messages": turns[:1]}, {"prompt": "a"}, {"prompt": "a", "completion": []}):
        with pytest.raises(TuningError, match="data, record 1 holds no prompt with an answer"):
            questions_of([text, wrong], "data")


@pytest.fixture
def fleet() -> Iterator[Asked]:
    with openai_stand_in() as running:
        yield running


def test_a_fleet_is_asked_greedily_over_the_openai_api(fleet: Asked) -> None:
    ask = Fleet(client_of(fleet.url), "maths")
    assert ask(ASK) == Given("1", ended=True)
    assert Fleet(client_of(f"{fleet.url}/v1/"), "maths")(Question("four", "4")) == Given("4", ended=True)
    (chat_path, chat), (text_path, text) = fleet.requests
    assert (chat_path, text_path) == ("/v1/chat/completions", "/v1/completions")
    assert chat.items() >= {"model": "maths", "temperature": 0, "max_tokens": len("w9") + 8}.items()
    assert text["prompt"] == "four"
    assert "tools" not in chat
    ask(Question(ASK.prompt, "w9", [TOOL]))
    assert fleet.requests[-1][1].items() >= {"tools": [TOOL], "tool_choice": "none"}.items()
    with pytest.raises(TuningError, match=r"did not answer for model none.*does not exist"):
        Fleet(client_of(fleet.url), "none")(ASK)


def test_the_command_measures_a_fleet_and_keeps_every_row(fleet: Asked, tmp_path: Path) -> None:
    data = tmp_path / "data.jsonl"
    data.write_text('{"prompt": "ab", "completion": "2"}\n{"prompt": "abc", "completion": "4"}\n')
    out = tmp_path / "result.json"
    command = ["eval", "--url", fleet.url, "--model", "maths", "--data", str(data), "--output", str(out)]
    assert main(command) == 0
    result = json.loads(out.read_text())
    assert (result["correct"], result["total"], result["right"]) == (1, 2, [True, False])


@pytest.mark.parametrize(
    ("flags", "part"),
    [
        (["--url", "http://127.0.0.1:1", "--task", "arith", "--rows", "1"], "--url needs --model"),
        (["--url", "http://127.0.0.1:1", "--lm-eval", "gsm8k"], "--url needs --model"),
        (["--url", "http://127.0.0.1:1", "--model", "a", "--task", "arith", "--rows", "0"], "give --rows"),
        (["--url", "http://127.0.0.1:1", "--model", "a", "--task", "toolcall", "--rows", "100000"], "has only"),
        (["--decoder", "/none", "--task", "arith", "--rows", "1"], "no checkpoint"),
        (["--decoder", "/none", "--adapter", "a", "--weights", "b", "--task", "arith", "--rows", "1"], "not both"),
    ],
)
def test_a_measurement_that_cannot_be_made_says_why(
    flags: list[str], part: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["eval", *flags]) == 1
    assert part in capsys.readouterr().err
