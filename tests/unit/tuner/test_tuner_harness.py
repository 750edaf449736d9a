"""lm-eval's questions, put to pairs and fleets. ``make e2e-packages`` has the real one; here is what we use of it."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
import torch

from openai_stand_in import Asked as Fleet
from openai_stand_in import openai_stand_in
from sunfleet_tuner.__main__ import main
from sunfleet_tuner.errors import TuningError
from sunfleet_tuner.evaluate import Pair, Question, client_of
from sunfleet_tuner.harness import options_of
from sunfleet_tuner.packages import LM_EVAL
from sunfleet_tuner.reference import Modules, ModuleSpec
from sunfleet_tuner.respondents import FleetRespondent, PairRespondent
from tiny_models import PAD, tiny_adapter, tiny_checkpoint, tiny_llama

TURNS = [{"role": "user", "content": "w7 w8"}]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("pair")
    tiny_checkpoint(root / "decoder")
    tiny_adapter(root / "adapter", 1)
    return root


@pytest.fixture(scope="module")
def modules(folder: Path) -> Modules:
    return Modules(folder / "decoder")


@pytest.fixture
def fleet() -> Iterator[Fleet]:
    with openai_stand_in() as running:
        yield running


def test_questions_are_answered_by_the_pair(folder: Path, modules: Modules) -> None:
    spec = ModuleSpec(adapter=str(folder / "adapter"))
    respondent = PairRespondent(modules, spec)
    whole = respondent.generate("w7 w8", {"max_gen_toks": 6})
    assert whole == Pair(modules, spec, longest=6)(Question("w7 w8", "")).text
    stop = whole.split()[2]
    assert respondent.generate("w7 w8", {"max_tokens": 6, "until": ["", stop]}) == whole.partition(stop)[0]


def test_a_chat_goes_through_the_template_once(folder: Path, modules: Modules) -> None:
    spec = ModuleSpec(adapter=str(folder / "adapter"))
    respondent = PairRespondent(modules, spec, chat=True)
    opened = respondent.render(TURNS, opened=True)
    assert modules.tokenizer.encode(opened, add_special_tokens=False) == modules.prompt_ids(TURNS)
    asked = Question(tuple(TURNS), "")
    assert respondent.generate(opened, {"max_gen_toks": 6}) == Pair(modules, spec, longest=6)(asked).text
    begun = respondent.render([*TURNS, {"role": "assistant", "content": "w9"}], opened=False)
    assert modules.tokenizer.encode(begun, add_special_tokens=False) == [*modules.prompt_ids(TURNS), 9]


def test_texts_of_a_chat_get_no_special_tokens_a_second_time(modules: Modules) -> None:
    encoded = []

    def encode(text: str, add_special_tokens: bool = True) -> list[int]:
        encoded.append(add_special_tokens)
        return [7]

    stub = SimpleNamespace(encode=encode, eos_token_id=PAD, bos_token_id=1)
    asked: Any = SimpleNamespace(tokenizer=stub, answer=modules.answer, text=modules.text)
    for chat in (False, True):
        PairRespondent(asked, ModuleSpec(), chat=chat).generate("w7", {"max_gen_toks": 1})
    assert encoded == [True, False]


def test_the_log_likelihood_of_a_continuation_is_the_pairs(modules: Modules) -> None:
    respondent = PairRespondent(modules, ModuleSpec())
    model = tiny_llama().float()
    with torch.no_grad():
        logprobs = model(input_ids=torch.tensor([[7, 8, 30, 31]])).logits.log_softmax(-1)[0]
    expected = float(logprobs[1, 30] + logprobs[2, 31])
    found, greedy = respondent.loglikelihood("w7 w8", "w30 w31")
    assert found == pytest.approx(expected, rel=1e-4)
    assert greedy is False
    best = int(logprobs[1].argmax())
    assert respondent.loglikelihood("w7 w8", f"w{best}")[1] is True
    with torch.no_grad():
        first = model(input_ids=torch.tensor([[PAD]])).logits.log_softmax(-1)[0, 0, 30]
    assert respondent.loglikelihood("", "w30")[0] == pytest.approx(float(first), rel=1e-4)


@pytest.mark.parametrize(
    ("options", "limit", "stops"),
    [
        ({}, 256, []),
        ({"max_gen_toks": 5, "max_tokens": 9, "until": "a"}, 5, ["a"]),
        ({"max_new_tokens": 7, "until": ["", "b"]}, 7, ["b"]),
        ({"do_sample": False, "temperature": 0.7}, 256, []),
    ],
)
def test_options_are_read_as_lm_eval_reads_them(options: dict[str, Any], limit: int, stops: list[str]) -> None:
    assert options_of(options) == (limit, stops)


@pytest.mark.parametrize("options", [{"do_sample": True}, {"temperature": 0.7}])
def test_a_task_that_samples_is_refused(options: dict[str, Any]) -> None:
    with pytest.raises(TuningError, match="asks for sampling"):
        options_of(options)


def test_a_fleet_is_asked_for_texts_and_for_chats(fleet: Fleet) -> None:
    options = {"max_gen_toks": 6, "until": ["\n", ""], "do_sample": False}
    client = client_of(fleet.url)
    assert FleetRespondent(client, "maths").generate("four", options) == "4"
    chats = FleetRespondent(client, "maths", chat=True)
    assert chats.generate(chats.render(TURNS, opened=True), options) == "1"
    begun = [*TURNS, {"role": "assistant", "content": "w9"}]
    assert chats.generate(chats.render(begun, opened=False), {}) == "2"
    (text_path, text), (chat_path, chat), (_, goes_on) = fleet.requests
    assert (text_path, chat_path) == ("/v1/completions", "/v1/chat/completions")
    greedy = {"model": "maths", "temperature": 0, "max_tokens": 6, "stop": ["\n"]}
    assert text == {**greedy, "prompt": "four"}
    assert chat == {**greedy, "messages": TURNS}
    assert goes_on.items() >= {"add_generation_prompt": False, "continue_final_message": True}.items()
    with pytest.raises(TuningError, match=r"did not answer for model none.*does not exist"):
        FleetRespondent(client, "none").generate("four", {})
    with pytest.raises(TuningError, match="which no fleet tells"):
        chats.loglikelihood("a", "b")


class LM:
    """lm-eval's base class, as far as it is used."""


class LmEval:
    """All that is used of lm-eval, by its names."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.asked: dict[str, Any] = {}
        top, api, model, tasks = (
            ModuleType(name) for name in ("lm_eval", "lm_eval.api", "lm_eval.api.model", "lm_eval.tasks")
        )
        vars(top)["simple_evaluate"] = self.simple_evaluate
        vars(model)["LM"] = LM
        vars(tasks)["TaskManager"] = lambda: SimpleNamespace(all_tasks=["gsm8k", "humaneval"])
        for module in (top, api, model, tasks):
            monkeypatch.setitem(sys.modules, module.__name__, module)

    def simple_evaluate(
        self, *, model: Any, tasks: list[str], limit: int | None, num_fewshot: int | None, apply_chat_template: bool,
        fewshot_as_multiturn: bool, task_manager: Any, confirm_run_unsafe_code: bool,
    ) -> dict[str, Any]:  # fmt: skip
        assert LM in type(model).__mro__
        if "humaneval" in tasks and not confirm_run_unsafe_code:
            raise ValueError("Attempted to run task: humaneval which is marked as unsafe.")
        if "needy" in tasks[0]:
            raise ImportError("No module named 'math_verify'")
        if "broken" in tasks[0]:
            raise ValueError("another fault")
        self.asked = {"tasks": tasks, "limit": limit, "shots": num_fewshot, "multiturn": fewshot_as_multiturn}
        context = model.apply_chat_template(TURNS, add_generation_prompt=True) if apply_chat_template else "four"
        requests: Sequence[Any] = [SimpleNamespace(args=(context, {"until": []}))] * 3
        return {"results": {tasks[0]: {"answers": model.generate_until(requests)}}, "samples": {tasks[0]: []}}


@pytest.fixture
def lm_eval(monkeypatch: pytest.MonkeyPatch) -> LmEval:
    return LmEval(monkeypatch)


def evaluate(fleet: Fleet, tmp_path: Path, *flags: str) -> dict[str, Any]:
    out = tmp_path / "result.json"
    assert main(["eval", "--url", fleet.url, "--model", "maths", "--output", str(out), *flags]) == 0
    return dict(json.loads(out.read_text()))


def test_the_command_runs_tasks_by_name_or_file_through_a_fleet(lm_eval: LmEval, fleet: Fleet, tmp_path: Path) -> None:
    found = evaluate(fleet, tmp_path, "--lm-eval", "gsm8k")
    assert found == {"lm_eval": {"gsm8k": {"answers": ["4"] * 3}}, "samples": {"gsm8k": []}}
    assert lm_eval.asked == {"tasks": ["gsm8k"], "limit": 128, "shots": None, "multiturn": False}
    own = tmp_path / "own.yaml"
    own.touch()
    found = evaluate(fleet, tmp_path, "--lm-eval", f"gsm8k,{own}", "--rows", "0", "--shots", "0", "--chat")
    assert found["lm_eval"]["gsm8k"]["answers"] == ["1"] * 3
    assert lm_eval.asked == {"tasks": ["gsm8k", str(own)], "limit": None, "shots": 0, "multiturn": True}


def test_tasks_that_cannot_be_run_are_explained(
    lm_eval: LmEval, fleet: Fleet, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    given = ["eval", "--url", fleet.url, "--model", "maths", "--lm-eval"]
    assert main([*given, "gsm8"]) == 1
    assert "lm-eval knows no task gsm8, and there is no such YAML file; there is gsm8k" in capsys.readouterr().err
    assert main([*given, "humaneval"]) == 1
    assert "allow it with --run-code" in capsys.readouterr().err
    assert evaluate(fleet, tmp_path, "--lm-eval", "humaneval", "--run-code")["lm_eval"].keys() == {"humaneval"}
    broken, needy = tmp_path / "broken.yaml", tmp_path / "needy.yaml"
    broken.touch()
    needy.touch()
    assert main([*given, str(needy)]) == 1
    assert "needs a package that is not installed here: No module named 'math_verify'" in capsys.readouterr().err
    with pytest.raises(ValueError, match="another fault"):
        main([*given, str(broken)])


def test_without_lm_eval_the_version_that_is_known_to_work_is_named(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "lm_eval", None)
    assert main(["eval", "--url", "http://127.0.0.1:1", "--model", "a", "--lm-eval", "gsm8k"]) == 1
    assert f"pip install '{LM_EVAL}'" in capsys.readouterr().err
