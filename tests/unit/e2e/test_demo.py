"""The demo's claims, and that its samples are what the API accepts."""

from __future__ import annotations

import io
from dataclasses import replace
from typing import Any

import pytest
from rich.console import Console

from sunfleet_api.shared_decoder import SharedDecoder
from sunfleet_api.sun_model import SunModel
from sunfleet_demo.proof import claims
from sunfleet_demo.questions import Asked, Known, Question, questions
from sunfleet_demo.screen import Screen
from support.client import Answer
from support.fleet import Line, Snapshot
from support.metrics import PromptTokens
from support.reference import Expected
from support.samples import SAMPLES, documents, prefill_uri, sample_request

TASKS = ("arith", "toolcall")


def expected(*tokens: int) -> Expected:
    n = len(tokens)
    return Expected(
        prompt_token_ids=[1, 2, 3], token_ids=list(tokens), text="text", finish_reason="stop", logprobs=[0.0] * n,
        margins=[9.0] * n, runners_up=[0] * n,
    )  # fmt: skip


def seen() -> tuple[list[Asked], dict[str, Known], dict[str, PromptTokens]]:
    """Two tasks asked twice, all as it should be."""
    asked = [
        Asked(
            Question(task, ({"role": "user", "content": "?"},), 9, "pvc://m/a"),
            streamed,
            Answer(task, "text", [5, 2], [1, 2, 3], "stop", prefill_pod=f"{task}-0", decode_pod="decode-0"),
        )
        for task in TASKS
        for streamed in (False, True)
    ]
    known = {task: Known(expected(5, 2), expected(6, 7)) for task in TASKS}
    return asked, known, {"decode-0": PromptTokens(0, 4, 8)}


def failed(asked: list[Asked], known: dict[str, Known], decoder: dict[str, PromptTokens]) -> list[str]:
    return [claim.sentence for claim in claims(asked, known, decoder) if not claim.holds]


def test_every_claim_holds_of_an_exact_fleet() -> None:
    assert failed(*seen()) == []


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"token_ids": [5, 3]}, "every token equals the transformers reference"),
        ({"decode_pod": "decode-1"}, "one decode pod served every task"),
        ({"decode_pod": ""}, "one decode pod served every task"),
        ({"prefill_pod": "toolcall-0"}, "each task's prompts went to its own prefill pods"),
    ],
)
def test_one_wrong_answer_fails_its_claim(change: dict[str, Any], sentence: str) -> None:
    asked, known, decoder = seen()
    asked[0] = replace(asked[0], answer=replace(asked[0].answer, **change))
    assert failed(asked, known, decoder) == [sentence]


def test_a_prompt_that_the_decoder_computed_fails_the_proof() -> None:
    asked, known, _ = seen()
    assert failed(asked, known, {"decode-0": PromptTokens(1, 4, 7)}) == [
        "the decoder computed no prompt token itself",
        "every prompt token of the decoder is accounted for",
    ]


def test_an_answer_that_the_base_would_give_too_shows_nothing() -> None:
    asked, known, decoder = seen()
    known["arith"] = Known(expected(5, 2), expected(5, 2))
    assert failed(asked, known, decoder) == ["the base model alone would have answered otherwise"]


def test_there_is_a_request_for_every_sample_model() -> None:
    assert [question.task for question in questions()] == list(TASKS)
    assert all(sample_request(task)["model"] == task for task in TASKS)


@pytest.mark.parametrize("flavour", ["embedded", "gpu"])
def test_samples_are_complete_resources(flavour: str) -> None:
    (decoder,) = documents(SAMPLES / flavour / "decoder.yaml")
    assert SharedDecoder.model_validate(decoder).metadata.name
    models = documents(SAMPLES / flavour / "models.yaml")
    assert len({prefill_uri(model) for model in models}) == len(models) == 2
    for model in models:
        assert SunModel.model_validate(model).spec.decoder_ref.name == decoder["metadata"]["name"]


def test_the_embedded_samples_use_the_shipped_adapters() -> None:
    for model in documents(SAMPLES / "embedded/models.yaml"):
        folder = SAMPLES / "adapters" / prefill_uri(model).rpartition("/")[2]
        assert (folder / "adapter_model.safetensors").is_file()


def test_a_pipe_sees_each_state_once() -> None:
    out = io.StringIO()
    screen = Screen(Console(file=out, force_terminal=False, width=200))
    waiting = Snapshot((), (Line("decode", "pod-0", "Starting", "the engine loads", ready=False),))
    ready = Snapshot((), (Line("decode", "pod-0", "Ready", "", ready=True, seconds=60),))
    with screen.watching() as show:
        for snapshot in (waiting, waiting, ready, ready):
            show(snapshot)
    lines = out.getvalue().splitlines()
    assert [line.strip() for line in lines] == [
        "0 s  decode pod-0: Starting (the engine loads)",
        "60 s  decode pod-0: Ready",
    ]


def test_an_answer_is_shown_with_its_pods_and_times() -> None:
    out = io.StringIO()
    asked, known, decoder = seen()
    screen = Screen(Console(file=out, width=200))
    screen.answer(asked[1], known["arith"])
    screen.claims(claims(asked, known, decoder))
    text = out.getvalue()
    assert "prefill arith-0, decode decode-0" in text
    assert "first token after" in text
    assert text.count("✓") == 6
