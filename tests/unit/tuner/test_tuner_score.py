"""A served answer judged by the reference: the same judgement as comparing it with the reference's own answer."""

from __future__ import annotations

import json
from contextlib import nullcontext
from typing import Any

import pytest

from sunfleet_tuner.reference import Modules, ModuleSpec, Sampling, generate, score
from sunfleet_tuner.reference.protocol import respond
from tiny_models import tiny_adapter, tiny_checkpoint, tiny_llama

PROMPT = [5, 17, 33, 80, 9, 41]
FREE = Sampling(max_tokens=12, ignore_eos=True)


@pytest.fixture(scope="module")
def modules(tmp_path_factory: pytest.TempPathFactory) -> tuple[Modules, list[ModuleSpec]]:
    """A decoder, and it, an adapter and other full weights as prefill modules."""
    root = tmp_path_factory.mktemp("fleet")
    adapter, full = tiny_adapter(root / "one.v1", seed=1), tiny_checkpoint(root / "full", seed=7)
    decoder = Modules(tiny_checkpoint(root / "decoder"))
    return decoder, [ModuleSpec(), ModuleSpec(adapter=str(adapter)), ModuleSpec(weights=str(full))]


@pytest.mark.parametrize("kind", [0, 1, 2], ids=["decoder", "adapter", "full"])
@pytest.mark.parametrize(
    "sampling",
    [
        FREE,
        Sampling(max_tokens=1, ignore_eos=True),
        Sampling(max_tokens=12, repetition_penalty=1.5),
        Sampling(max_tokens=12, presence_penalty=0.9, frequency_penalty=0.4),
        Sampling(max_tokens=12, min_tokens=9, stop_token_ids=(3, 8, 20)),
    ],
    ids=["free", "one token", "repetition", "presence", "minimum"],
)
def test_the_references_own_answer_is_right_everywhere(
    modules: tuple[Modules, list[ModuleSpec]], kind: int, sampling: Sampling
) -> None:
    decoder, specs = modules
    answer = decoder.answer(specs[kind], PROMPT, sampling)
    scores = decoder.score(specs[kind], PROMPT, answer.token_ids, sampling)
    assert scores.token_ids == answer.token_ids
    assert scores.gaps == [0.0] * len(answer.token_ids)
    assert scores.logprobs == pytest.approx(answer.logprobs, abs=1e-5)
    assert scores.finish_reason == answer.finish_reason


def same(model: Any) -> tuple[Any, Any]:
    return (lambda: nullcontext(model)), (lambda: nullcontext(model))


def test_a_wrong_token_is_told_by_how_much_and_judging_goes_on_after_it() -> None:
    both = same(tiny_llama())
    answer = generate(*both, PROMPT, FREE, eos=())
    served = [*answer.token_ids[:4], answer.runners_up[4]]
    served += generate(*both, [*PROMPT, *served], Sampling(max_tokens=7, ignore_eos=True), eos=()).token_ids
    scores = score(*both, PROMPT, served, FREE, eos=())
    assert scores.gaps[4] == pytest.approx(answer.margins[4], abs=1e-4)
    assert scores.token_ids[4] == answer.token_ids[4]
    assert [gap for position, gap in enumerate(scores.gaps) if position != 4] == [0.0] * 11


def test_the_prefill_module_alone_is_not_taken_for_the_pair(modules: tuple[Modules, list[ModuleSpec]]) -> None:
    decoder, (base, adapter, full) = modules
    for spec in (adapter, full):
        served = decoder.answer(base, PROMPT, FREE).token_ids
        assert max(decoder.score(spec, PROMPT, served, FREE).gaps) > 0.01


@pytest.mark.parametrize(
    ("served", "max_tokens", "finish"),
    [
        ([4, 6, 9], 3, "length"),
        ([4, 6, 2], 3, "stop"),
        ([4, 2], 3, "stop"),
        ([4, 6], 3, ""),  # ended for no reason
        ([4, 2, 6], 3, ""),  # went on after its end
        ([4, 6, 9, 7], 3, ""),
    ],
)
def test_the_end_is_judged_too(served: list[int], max_tokens: int, finish: str) -> None:
    sampling = Sampling(max_tokens=max_tokens, stop_token_ids=(2,))
    assert score(*same(tiny_llama()), PROMPT, served, sampling, eos=()).finish_reason == finish


def test_a_forbidden_token_is_infinitely_wrong_also_on_the_wire(modules: tuple[Modules, list[ModuleSpec]]) -> None:
    sampling = {"max_tokens": 3, "min_tokens": 2, "stop_token_ids": [4]}
    line = json.dumps({"prompt_token_ids": PROMPT, "served": [4, 6, 9], "sampling": sampling})
    answer = json.loads(respond(modules[0], line).model_dump_json())
    assert answer["gaps"][0] == float("inf")
    assert answer["finish_reason"] == ""
    assert answer["text"]


def test_nothing_served_is_an_error(modules: tuple[Modules, list[ModuleSpec]]) -> None:
    assert "no tokens" in respond(modules[0], json.dumps({"prompt_token_ids": PROMPT, "served": []})).error
