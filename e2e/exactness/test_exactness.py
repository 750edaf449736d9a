"""Every answer equals "task module over the prompt, frozen decoder afterwards", on the real cluster with real engines.

float32 and greedy, so equality is token for token; the table counts near-ties of the reference (support.exact).
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from sunfleet_api import names
from support.client import Answer
from support.judge import Judge
from support.metrics import PromptTokens
from support.prompts import Prompts
from support.running import RunningFleet

BLOCK = 32  # spec.engine.blockSize of the sample
LENGTHS = [blocks * BLOCK + offset for blocks in range(1, 5) for offset in (-1, 0, 1)]
COLD, CACHED, TURNS, MIXED, SHAPED = "1 cold", "2 cached", "2 chat turns", "3 mixed batch", "7 shaped"
TASKS = ("arith", "toolcall")
OUTPUT = 12  # tokens; from every length near a block border the answer crosses that border


class Ledger:
    """Asks, compares, and keeps count of the prompts that reached a decoder."""

    def __init__(self, fleet: RunningFleet, judge: Judge) -> None:
        self.fleet = fleet
        self._judge = judge
        self.before = {role: fleet.prompt_tokens(fleet.pods(role)) for role in (names.ROLE_PREFILL, names.ROLE_DECODE)}
        self.answers: list[Answer] = []

    def ask(self, task: str, prompt: list[int], *, stream: bool = False, **options: Any) -> Answer:
        """One question over token ids; the answer is counted and not yet compared."""
        answer = self.fleet.client.complete(task, prompt, stream=stream, **options)
        self.answers.append(answer)
        return answer

    def compare(self, line: str, task: str, prompt: list[int], answer: Answer, **sampling: Any) -> None:
        """Of a line of the contract; raises :class:`AssertionError` unless it is exact."""
        self._judge.check(line, answer, self.fleet.score(task, prompt, answer, **sampling))

    def counted(self, role: str) -> PromptTokens:
        """Prompt tokens by source over all pods of a role, since the ledger was opened."""
        return self.fleet.counted_since(self.before[role], self.prompts(role))

    def prompts(self, role: str) -> int:
        """Tokens of the prompts that a role was asked; a first token that is the whole answer needs no decoder."""
        asked = [answer for answer in self.answers if role == names.ROLE_PREFILL or answer.decode_pod]
        return sum(len(answer.prompt_token_ids) for answer in asked)


@pytest.fixture(scope="module")
def ledger(fleet: RunningFleet, judge: Judge) -> Ledger:
    return Ledger(fleet, judge)


@pytest.fixture(scope="module")
def prompts(fleet: RunningFleet, seed: int) -> Prompts:
    return Prompts.of(fleet.reference, seed)


@pytest.mark.parametrize("length", LENGTHS)
@pytest.mark.parametrize("task", TASKS)
def test_cold_and_repeated_at_every_side_of_a_block_border(
    ledger: Ledger, prompts: Prompts, task: str, length: int
) -> None:
    prompt = prompts.new(length)
    options: dict[str, Any] = {"max_tokens": OUTPUT, "extra_body": {"ignore_eos": True}}
    for line, stream in ((COLD, False), (CACHED, True)):
        answer = ledger.ask(task, prompt, stream=stream, **options)
        ledger.compare(line, task, prompt, answer, max_tokens=OUTPUT, ignore_eos=True)


@pytest.mark.parametrize("length", [1, 2])
def test_the_shortest_prompts(ledger: Ledger, prompts: Prompts, length: int) -> None:
    prompt = prompts.new(length)
    for task in TASKS:
        ledger.compare(COLD, task, prompt, ledger.ask(task, prompt, max_tokens=OUTPUT), max_tokens=OUTPUT)


def test_one_prompt_from_two_tasks_in_turn(ledger: Ledger, prompts: Prompts) -> None:
    prompt = prompt_that_tells_tasks_apart(ledger, prompts)
    for task in (*TASKS, *TASKS):
        ledger.compare(CACHED, task, prompt, ledger.ask(task, prompt, max_tokens=OUTPUT), max_tokens=OUTPUT)


def prompt_that_tells_tasks_apart(ledger: Ledger, prompts: Prompts) -> list[int]:
    """One to which the reference answers differently for each task; two small modules often agree."""
    for _ in range(20):
        prompt = prompts.new(3 * BLOCK + 5)
        expected = [ledger.fleet.expected(task, prompt, max_tokens=OUTPUT) for task in TASKS]
        if len({tuple(answer.token_ids) for answer in expected}) == len(TASKS):
            return prompt
    raise AssertionError("20 prompts told no tasks apart: are the modules different?")


def test_a_second_turn_reads_the_first_answer_as_prompt(ledger: Ledger, prompts: Prompts) -> None:
    """Its KV must come from the prefill module: what the decoder computed while it answered is no prompt KV."""
    for task in TASKS:
        options: dict[str, Any] = {"max_tokens": BLOCK + 3, "extra_body": {"ignore_eos": True}}
        first_prompt = prompts.new(BLOCK + 7)
        first = ledger.ask(task, first_prompt, **options)
        second_prompt = [*first_prompt, *first.token_ids, *prompts.new(9)]
        second = ledger.ask(task, second_prompt, **options)
        ledger.compare(TURNS, task, second_prompt, second, max_tokens=BLOCK + 3, ignore_eos=True)


def test_eight_mixed_requests_share_one_decode_pod_at_once(ledger: Ledger, prompts: Prompts) -> None:
    output = 112  # long enough that the first is not done before the last has begun, on a busy machine too
    asked = [(TASKS[i % 2], prompts.new(20 + 17 * i)) for i in range(8)]
    for task, prompt in asked:  # once prefilled, all eight reach the decode pod together
        ledger.ask(task, prompt, max_tokens=1)
    options: dict[str, Any] = {"max_tokens": output, "extra_body": {"ignore_eos": True}}
    with ThreadPoolExecutor(len(asked)) as pool:
        futures = [pool.submit(ledger.ask, task, prompt, stream=True, **options) for task, prompt in asked]
        answers = [future.result() for future in futures]
    for (task, prompt), answer in zip(asked, answers, strict=True):
        ledger.compare(MIXED, task, prompt, answer, max_tokens=output, ignore_eos=True)
    assert len({answer.decode_pod for answer in answers}) == 1
    assert most_at_once(answers) == len(asked), "the requests did not overlap"


def most_at_once(answers: list[Answer]) -> int:
    """The most answers that were streaming at one moment."""
    return max(sum(other.first_token_at <= one.first_token_at < other.ended_at for other in answers) for one in answers)


@pytest.mark.parametrize(
    "options",
    [
        {"extra_body": {"repetition_penalty": 1.3}},
        {"presence_penalty": 1.5, "frequency_penalty": 0.7},
        {"extra_body": {"min_tokens": 10}},
    ],
    ids=["repetition", "presence-and-frequency", "min-tokens"],
)
def test_penalties_and_minimum_count_the_first_token_as_output(
    ledger: Ledger, prompts: Prompts, options: dict[str, Any]
) -> None:
    sampling = {**options, **options.get("extra_body", {})}
    sampling.pop("extra_body", None)
    for task in TASKS:
        prompt = prompts.new(BLOCK + 11)
        answer = ledger.ask(task, prompt, max_tokens=20, **options)
        ledger.compare(SHAPED, task, prompt, answer, max_tokens=20, **sampling)


def test_a_single_token_needs_no_decoder(ledger: Ledger, prompts: Prompts) -> None:
    prompt = prompts.new(BLOCK)
    answer = ledger.ask("arith", prompt, max_tokens=1)
    ledger.compare(COLD, "arith", prompt, answer, max_tokens=1)
    assert answer.decode_pod == ""


def test_decoders_computed_no_prompt_and_every_token_is_explained(ledger: Ledger) -> None:
    """Of all prompts above. Last in this file."""
    counted = ledger.counted(names.ROLE_DECODE)
    assert counted.local_compute == 0
    assert counted.total == ledger.prompts(names.ROLE_DECODE)
    prefill = ledger.counted(names.ROLE_PREFILL)
    assert prefill.transferred == 0
    assert prefill.total == ledger.prompts(names.ROLE_PREFILL)
