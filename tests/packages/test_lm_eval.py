"""The real lm-eval on tasks of local files: along the reference path, through the router, and by its own command."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.packages.environments import Python, succeeds, sums, write_lines

from sunfleet_cluster.state import StateFolder
from sunfleet_router_harness import Engines, Router

QUESTIONS = 12
COMMON = {
    "test_split": "test", "doc_to_text": "{{question}}", "doc_to_target": "{{answer}}",
    "dataset_path": "json", "metadata": {"version": 1},
}  # fmt: skip
GENERATES = {
    "output_type": "generate_until",
    "generation_kwargs": {"until": ["\n"], "do_sample": False, "max_gen_toks": 12},
    "metric_list": [{"metric": "exact_match", "aggregation": "mean", "higher_is_better": True}],
}
CHOOSES = {
    "output_type": "multiple_choice", "target_delimiter": "",
    "doc_to_choice": "{{['0', answer, '100000']}}", "doc_to_target": 1,
    "metric_list": [{"metric": "acc", "aggregation": "mean", "higher_is_better": True}],
}  # fmt: skip
ROLLS = {
    "output_type": "loglikelihood_rolling",
    "doc_to_target": "{{question}}",
    "metric_list": [{"metric": "word_perplexity"}],
}


@pytest.fixture(scope="module")
def chats(tuner: Python) -> Path:
    return write_lines(tuner.folder / "chats.jsonl", sums(QUESTIONS, 7))


@pytest.fixture(scope="module")
def tasks(tuner: Python, chats: Path) -> dict[str, Path]:
    """YAML files of tasks over the same questions."""
    turns = [json.loads(line)["messages"] for line in chats.read_text().splitlines()]
    rows = [{"question": asked["content"], "answer": right["content"]} for asked, right in turns]
    source = {"dataset_kwargs": {"data_files": {"test": str(write_lines(tuner.folder / "questions.jsonl", rows))}}}
    made = {}
    for name, kind in (("sums_generate", GENERATES), ("sums_choose", CHOOSES), ("sums_roll", ROLLS)):
        made[name] = tuner.folder / f"{name}.yaml"
        made[name].write_text(yaml.safe_dump({**COMMON, **source, **kind, "task": name}))
    return made


def results(tuner: Python, *words: object) -> dict[str, Any]:
    """What ``sunfleet eval`` keeps."""
    out = tuner.folder / "result.json"
    succeeds(tuner.command(["eval", *words, "--rows", "0", "--output", out]))
    return dict(json.loads(out.read_text()))


def test_a_pair_is_as_good_by_lm_eval_as_by_our_own_count(
    tuner: Python, state: StateFolder, base: Path, tasks: dict[str, Path], chats: Path
) -> None:
    pair = ["--decoder", base, "--adapter", state.models / "adapters/arith"]
    own = results(tuner, *pair, "--data", chats, "--max-tokens", "12")
    theirs = results(tuner, *pair, "--lm-eval", tasks["sums_generate"], "--chat")
    assert own["total"] == QUESTIONS
    assert own["correct"] > 0
    assert theirs["lm_eval"]["sums_generate"]["exact_match,none"] == pytest.approx(own["correct"] / QUESTIONS)
    rows = {row["doc_id"]: row["exact_match"] == 1 for row in theirs["samples"]["sums_generate"]}
    assert [rows[number] for number in range(QUESTIONS)] == own["right"]


def test_a_pair_judges_given_answers_and_whole_texts(
    tuner: Python, state: StateFolder, base: Path, tasks: dict[str, Path]
) -> None:
    pair = ["--decoder", base, "--adapter", state.models / "adapters/arith"]
    named = f"{tasks['sums_choose']},{tasks['sums_roll']}"
    found = results(tuner, *pair, "--lm-eval", named, "--shots", "0", "--chat")["lm_eval"]
    assert found["sums_choose"]["acc,none"] > 1 / 2, "of the pair that was tuned for it, asked as it was tuned"
    assert 1 < found["sums_roll"]["word_perplexity,none"] < 1e6


@pytest.mark.parametrize("flags", [(), ("--chat",)], ids=["texts", "chats"])
async def test_a_task_of_a_fleet_is_measured_through_the_router(
    tuner: Python, router: Router, engines: Engines, tasks: dict[str, Path], flags: tuple[str, ...]
) -> None:
    before = len(engines.prefill_requests())
    words = ["--url", router.url, "--model", "acme/maths", "--lm-eval", tasks["sums_generate"], *flags]
    found = await asyncio.to_thread(results, tuner, *words)
    assert found["lm_eval"]["sums_generate"]["sample_len"] == QUESTIONS
    assert len(engines.prefill_requests()) - before == QUESTIONS
    assert all(row["resps"][0][0] for row in found["samples"]["sums_generate"])


async def test_a_fleet_cannot_judge_given_answers_and_says_so(
    tuner: Python, router: Router, tasks: dict[str, Path]
) -> None:
    words = ["eval", "--url", router.url, "--model", "acme/maths", "--lm-eval", tasks["sums_choose"]]
    done = await asyncio.to_thread(tuner.command, words)
    assert done.returncode == 1
    assert "which no fleet tells" in done.stderr
    assert "Traceback" not in done.stderr


async def test_lm_evals_own_command_goes_through_the_router(
    tuner: Python, router: Router, base: Path, tasks: dict[str, Path]
) -> None:
    out = tuner.folder / "by-lm-eval"
    where = f"model=acme/maths,base_url={router.url}/v1/completions,tokenizer={base}"
    words = ["run", "--model", "local-completions", "--tasks", tasks["sums_generate"], "--model_args", where]
    succeeds(await asyncio.to_thread(tuner.module, "lm_eval", [*words, "--output_path", out]))
    (kept,) = out.rglob("results_*.json")
    assert json.loads(kept.read_text())["n-samples"]["sums_generate"]["effective"] == QUESTIONS


@pytest.mark.parametrize(
    ("task", "part"), [("gsm8", "there is gsm8k"), ("gsm8k", "openai/gsm8k")], ids=["no such task", "out of reach"]
)
def test_a_task_that_cannot_be_had_is_told_in_a_line(tuner: Python, tiny: Path, task: str, part: str) -> None:
    done = tuner.command(["eval", "--decoder", tiny, "--lm-eval", task])
    assert done.returncode == 1
    assert part in done.stderr.splitlines()[-1]
