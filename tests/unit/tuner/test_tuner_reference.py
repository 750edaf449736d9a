"""The reference against plain ``generate``, and what it adds to it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from peft import PeftModel
from transformers import AutoModelForCausalLM

from sunfleet_tuner.reference import Modules, ModuleSpec, Sampling, generate
from sunfleet_tuner.reference.protocol import respond
from tiny_models import PAD, tiny_adapter, tiny_checkpoint, tiny_llama

PROMPT = [5, 17, 33, 80, 9, 41]


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A decoder, two adapters over it, and full weights of another seed."""
    root = tmp_path_factory.mktemp("fleet")
    return {
        "decoder": tiny_checkpoint(root / "decoder"),
        "one": tiny_adapter(root / "one.v1", seed=1),
        "two": tiny_adapter(root / "two", seed=2),
        "full": tiny_checkpoint(root / "full", seed=7),
    }


@pytest.fixture(scope="module")
def modules(fleet: dict[str, Path]) -> Modules:
    return Modules(fleet["decoder"])


def plain(model: Any, tokens: int, **options: Any) -> list[int]:
    """What transformers' own greedy generation gives."""
    output = model.generate(
        torch.tensor([PROMPT]),
        max_new_tokens=tokens,
        do_sample=False,
        pad_token_id=PAD,
        attention_mask=torch.ones(1, 6),
        **options,
    )
    return [int(token) for token in output[0, len(PROMPT) :]]


def load(folder: Path) -> Any:
    return AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()


@pytest.mark.parametrize("options", [{}, {"repetition_penalty": 1.7}, {"min_new_tokens": 9}])
def test_with_one_module_in_both_phases_it_is_plain_generation(
    modules: Modules, fleet: dict[str, Path], options: dict[str, Any]
) -> None:
    names = {"min_new_tokens": "min_tokens"}
    sampling = Sampling(max_tokens=20, **{names.get(key, key): value for key, value in options.items()})
    assert modules.answer(ModuleSpec(), PROMPT, sampling).token_ids == plain(load(fleet["decoder"]), 20, **options)


def test_two_modules_are_the_cache_of_one_read_by_the_other(modules: Modules, fleet: dict[str, Path]) -> None:
    answers = {}
    for name in ("one", "two", "one"):
        prefill = PeftModel.from_pretrained(load(fleet["decoder"]), str(fleet[name])).eval()
        expected = _hand_made(prefill, load(fleet["decoder"]), 12)
        answers[name] = modules.answer(
            ModuleSpec(adapter=str(fleet[name])), PROMPT, Sampling(max_tokens=12, ignore_eos=True)
        ).token_ids
        assert answers[name] == expected
    full = modules.answer(
        ModuleSpec(weights=str(fleet["full"])), PROMPT, Sampling(max_tokens=12, ignore_eos=True)
    ).token_ids
    assert full == _hand_made(load(fleet["full"]), load(fleet["decoder"]), 12)
    base = modules.answer(ModuleSpec(), PROMPT, Sampling(max_tokens=12, ignore_eos=True)).token_ids
    assert len({tuple(tokens) for tokens in (*answers.values(), full, base)}) == 4, (
        "the modules should answer differently"
    )


def test_an_adapter_may_be_over_other_weights_than_the_decoders(modules: Modules, fleet: dict[str, Path]) -> None:
    """As in QSUN: the adapter is over the 16-bit base, and the decoder is the quantised one."""
    spec = ModuleSpec(adapter=str(fleet["one"]), base=str(fleet["full"]))
    prefill = PeftModel.from_pretrained(load(fleet["full"]), str(fleet["one"])).eval()
    expected = _hand_made(prefill, load(fleet["decoder"]), 12)
    sampling = Sampling(max_tokens=12, ignore_eos=True)
    assert modules.answer(spec, PROMPT, sampling).token_ids == expected
    own = ModuleSpec(adapter=str(fleet["one"]), base=str(fleet["decoder"]))
    over_decoder = modules.answer(ModuleSpec(adapter=str(fleet["one"])), PROMPT, sampling).token_ids
    assert modules.answer(own, PROMPT, sampling).token_ids == over_decoder != expected


def _hand_made(prefill: Any, decoder: Any, count: int) -> list[int]:
    with torch.no_grad():
        output = prefill(input_ids=torch.tensor([PROMPT]), use_cache=True)
        tokens = [int(output.logits[0, -1].argmax())]
        while len(tokens) < count:
            output = decoder(
                input_ids=torch.tensor([tokens[-1:]]), past_key_values=output.past_key_values, use_cache=True
            )
            tokens.append(int(output.logits[0, -1].argmax()))
    return tokens


def test_a_stop_token_ends_the_answer_and_belongs_to_it(modules: Modules) -> None:
    free = modules.answer(ModuleSpec(), PROMPT, Sampling(max_tokens=8, ignore_eos=True)).token_ids
    stop = free[3]
    first = free.index(stop)
    answer = modules.answer(ModuleSpec(), PROMPT, Sampling(max_tokens=8, ignore_eos=True, stop_token_ids=(stop,)))
    assert answer.token_ids == free[: first + 1]
    assert answer.finish_reason == "stop"


def test_a_first_token_that_ends_the_answer_leaves_the_decoder_alone() -> None:
    model = tiny_llama()
    first = generate(*_same(model), PROMPT, Sampling(max_tokens=1), eos=()).token_ids[0]

    def never() -> Any:
        raise AssertionError("the decoder was asked")

    answer = generate(_same(model)[0], lambda: _Guard(never), PROMPT, Sampling(max_tokens=5), eos=(first,))
    assert answer.token_ids == [first]
    assert answer.finish_reason == "stop"


class _Guard:
    """A module that may be entered but not called."""

    def __init__(self, never: Any) -> None:
        self.never = never

    def __enter__(self) -> Any:
        return self.never

    def __exit__(self, *_: object) -> None:
        return None


def _same(model: Any) -> tuple[Any, Any]:
    from contextlib import nullcontext

    return (lambda: nullcontext(model)), (lambda: nullcontext(model))


def test_penalties_follow_the_order_of_the_engine() -> None:
    model = tiny_llama()
    sampling = Sampling(
        max_tokens=10, ignore_eos=True, repetition_penalty=1.4, presence_penalty=0.6, frequency_penalty=0.3
    )
    answer = generate(*_same(model), PROMPT, sampling, eos=())
    tokens: list[int] = []
    for _ in range(10):
        with torch.no_grad():
            logits = model(input_ids=torch.tensor([PROMPT + tokens])).logits[0, -1].float().tolist()
        for token in {*PROMPT, *tokens}:
            logits[token] = logits[token] / 1.4 if logits[token] > 0 else logits[token] * 1.4
        for token in set(tokens):
            logits[token] -= 0.6 + 0.3 * tokens.count(token)
        tokens.append(max(range(len(logits)), key=logits.__getitem__))
    assert answer.token_ids == tokens


def test_every_step_says_how_sure_it_was() -> None:
    model = tiny_llama()
    answer = generate(*_same(model), PROMPT, Sampling(max_tokens=3, ignore_eos=True), eos=())
    with torch.no_grad():
        logits = model(input_ids=torch.tensor([PROMPT])).logits[0, -1].float()
    top = torch.topk(logits, 2)
    assert answer.runners_up[0] == int(top.indices[1])
    assert answer.margins[0] == pytest.approx(float(top.values[0] - top.values[1]), rel=1e-5)
    assert answer.logprobs[0] == pytest.approx(float(torch.log_softmax(logits, -1).max()), rel=1e-5)


def test_an_empty_prompt_is_refused() -> None:
    with pytest.raises(ValueError, match="no tokens"):
        generate(*_same(tiny_llama()), [], Sampling(), eos=())


@pytest.mark.parametrize(
    ("request_line", "part"),
    [
        ("{}", "exactly one of"),
        ('{"prompt": "w5", "prompt_token_ids": [5]}', "exactly one of"),
        ('{"prompt_token_ids": []}', "no tokens"),
        ('{"prompt": "w5", "module": {"adapter": "a", "weights": "b"}}', "not both"),
        ('{"prompt": "w5", "module": {"adapter": "/nowhere"}}', "no adapter"),
        ('{"prompt": "w5", "module": {"base": "/nowhere"}}', "no adapter is given"),
        ('{"prompt": "w5", "module": {"weights": "/nowhere"}}', "no checkpoint"),
        ("not json", "JSON"),
    ],
)
def test_a_wrong_request_is_answered_with_its_error(modules: Modules, request_line: str, part: str) -> None:
    assert part in respond(modules, request_line).error


def test_the_server_answers_a_line_with_a_line(fleet: dict[str, Path]) -> None:
    requests: list[dict[str, Any]] = [
        {"messages": [{"role": "user", "content": "w7 w8"}], "sampling": {"max_tokens": 4, "ignore_eos": True}},
        {
            "prompt": "w7 w8",
            "module": {"adapter": str(fleet["one"])},
            "sampling": {"max_tokens": 4, "ignore_eos": True},
        },
        {"prompt": 5},
    ]
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-m", "sunfleet_tuner.reference", "--decoder", str(fleet["decoder"])],
        input="\n".join(json.dumps(request) for request in requests),
        env={"PYTHONPATH": "crds:worker_images/tuner", "PATH": "/usr/bin:/bin"},
        cwd=Path(__file__).resolve().parents[3],
        capture_output=True,
        text=True,
        check=True,
    )
    chat, text, wrong = [json.loads(line) for line in done.stdout.splitlines()]
    assert chat["prompt_token_ids"] == [1, 7, 8, 3, 4]
    assert len(chat["token_ids"]) == 4
    assert text["prompt_token_ids"] == [7, 8]
    assert text["text"] == " ".join(f"w{token}" for token in text["token_ids"] if token != PAD)
    assert wrong["error"]
