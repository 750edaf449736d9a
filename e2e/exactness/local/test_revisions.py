"""A task's module changes under its own name: no answer comes from the KV of the one before. Contract line 2."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from sunfleet_cluster.state import StateFolder
from support.local_fleet import LocalFleet, LocalTask
from support.trial import Trial

LINE = "2 module changed under its name"
BLOCK = 32
LENGTHS = (2 * BLOCK, 3 * BLOCK + 1, 4 * BLOCK - 1)


@pytest.fixture
def other_module(local: LocalFleet) -> Iterator[LocalTask]:
    """The LoRA task with the content of another adapter at the same path and address; as it was, afterwards."""
    task = local.tasks["lora"]
    first = task.prefill.adapter
    assert first is not None
    adapter = StateFolder.from_env().models / "adapters/arith"
    yield replace(task, module={**task.module, "adapter": str(adapter)}, salt="another-revision")
    _serve(local, task, first)


def _serve(fleet: LocalFleet, task: LocalTask, adapter: Path) -> None:
    """Give the task's engine an adapter, and tell the router of the revision as the operator does: by its salt."""
    task.prefill.stop()
    task.prefill.adapter = adapter
    fleet.restart(task.prefill)
    fleet.tasks[task.name] = task
    fleet.router.stop()
    fleet.start_router()


def test_prompts_that_both_revisions_answered_are_each_revisions_own(trial: Trial, other_module: LocalTask) -> None:
    """The decode pods hold the first revision's KV of the very same prompts when the second one asks."""
    prompts = [trial.prompts.new(length) for length in LENGTHS]
    before = [trial.ask(LINE, "lora", prompt, max_tokens=12, ignore_eos=True) for prompt in prompts]
    held = trial.fleet.prompt_tokens().local_cache
    again = trial.ask(LINE, "lora", prompts[0], max_tokens=12, ignore_eos=True)
    assert again.decode_pod != before[0].decode_pod or trial.fleet.prompt_tokens().local_cache > held
    _serve(trial.fleet, other_module, Path(other_module.module["adapter"]))
    held = trial.fleet.prompt_tokens().local_cache
    after = [trial.ask(LINE, "lora", prompt, max_tokens=12, ignore_eos=True) for prompt in prompts]
    assert trial.fleet.prompt_tokens().local_cache == held
    assert [answer.token_ids for answer in before] != [answer.token_ids for answer in after]
