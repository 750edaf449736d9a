"""Engines and routers that go away under streams: one exact answer, or an explicit error. Contract line 5.

Long: killed engines are started again.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager

import pytest
from openai import APIError

from support.client import Answer
from support.engines import BLOCK, Engine, get_text
from support.kubectl import wait_until
from support.local_fleet import POOL, LocalFleet
from support.local_tasks import TASKS
from support.metrics import samples
from support.trial import Trial

pytestmark = pytest.mark.long

OUTPUT = 200
STREAMS = 6
WAIT_SECONDS = 60.0


class Streams:
    """Streams that run side by side; ``begun`` waits until each has told some tokens."""

    def __init__(self, trial: Trial, pool: ThreadPoolExecutor) -> None:
        self._trial = trial
        self.prompts = [trial.prompts.new(BLOCK + 5 * index) for index in range(STREAMS)]
        self._resumed = {task: trial.fleet.resumes(task=task) for task in TASKS}
        self.futures: list[Future[Answer]] = [pool.submit(self._ask, index) for index in range(STREAMS)]

    @staticmethod
    def task(index: int) -> str:
        return TASKS[index % len(TASKS)]

    def _ask(self, index: int) -> Answer:
        fleet, extra = self._trial.fleet, {"ignore_eos": True}
        return fleet.ask(self.task(index), self.prompts[index], stream=True, max_tokens=OUTPUT, extra_body=extra)

    def begun(self) -> None:
        """Wait until every decode engine has streams and all streams have tokens."""
        pool = self._trial.fleet.decoders[POOL]
        wait_until("all streams run", lambda: sum(map(running, pool)) >= STREAMS, WAIT_SECONDS, 0.1)
        time.sleep(1.0)

    def compare(self, line: str) -> None:
        """All of them, with the reference."""
        answers = [future.result(timeout=300) for future in self.futures]
        for index, answer in enumerate(answers):
            sampling = {"max_tokens": OUTPUT, "ignore_eos": True}
            self._trial.compare(line, self.task(index), self.prompts[index], answer, **sampling)

    def resumed(self, line: str) -> int:
        """How often one of them was resumed, up to now; counts it in the table."""
        resumed = {task: self._trial.fleet.resumes(task=task) - before for task, before in self._resumed.items()}
        for task, count in resumed.items():
            self._trial.note(line, task, resumes=count)
        return sum(resumed.values())


@contextmanager
def streams(trial: Trial) -> Iterator[Streams]:
    with ThreadPoolExecutor(STREAMS) as pool:
        running_streams = Streams(trial, pool)
        running_streams.begun()
        yield running_streams


def running(engine: Engine) -> int:
    return int(sum(value for _, value in samples(get_text(f"{engine.url}/metrics"), "vllm:num_requests_running")))


@pytest.fixture
def victim(local: LocalFleet) -> Iterator[Engine]:
    """A decode engine that a test may destroy; whole again afterwards."""
    engine = local.decoders[POOL][0]
    yield engine
    if engine.process is None or engine.process.poll() is not None:
        local.restart(engine)


def test_a_decode_pod_is_killed_under_streams(trial: Trial, victim: Engine) -> None:
    with streams(trial) as some:
        hit = running(victim)
        victim.kill()
        some.compare("5 decode pod killed")
        assert some.resumed("5 decode pod killed") >= hit > 0


def test_a_decode_pod_drains_for_less_time_than_its_streams_need(trial: Trial, victim: Engine) -> None:
    """Its drain of one second ends; what it could not finish goes on elsewhere."""
    with streams(trial) as some:
        victim.terminate()
        some.compare("5 decode pod drained")
        assert some.resumed("5 decode pod drained") > 0
        assert victim.process is not None
        assert victim.process.wait(timeout=30) == 0


def test_a_decode_pod_freezes_and_comes_back(trial: Trial, victim: Engine) -> None:
    """Its streams fall silent, go on elsewhere, and what it says later reaches nobody."""
    with streams(trial) as some:
        hit = running(victim)
        victim.freeze()
        try:
            some.compare("5 decode pod frozen")
            assert some.resumed("5 decode pod frozen") >= hit > 0
        finally:
            victim.thaw()
    wait_until("the thawed engine is idle", lambda: running(victim) == 0, WAIT_SECONDS, 0.1)


def test_a_prefill_pod_that_dies_after_the_hand_over_changes_nothing(trial: Trial) -> None:
    prefill = trial.fleet.tasks["lora"].prefill
    try:
        with streams(trial) as some:
            prefill.kill()
            some.compare("5 prefill pod killed")
            assert some.resumed("5 prefill pod killed") == 0
    finally:
        trial.fleet.restart(prefill)


def test_no_prefill_pod_at_a_resume_is_an_explicit_error(trial: Trial) -> None:
    """Never a stream that looks finished, and never an answer from the decoder alone."""
    fleet = trial.fleet
    prefill, prompt, cut = fleet.tasks["lora"].prefill, trial.prompts.new(BLOCK), fleet.lines.plan.done
    try:
        with ThreadPoolExecutor(1) as pool:
            future = pool.submit(
                fleet.ask, "lora", prompt, cuts=(OUTPUT - 40,), stream=True, max_tokens=OUTPUT,
                extra_body={"ignore_eos": True},
            )  # fmt: skip
            wait_until("the stream runs", lambda: any(map(running, fleet.decoders[POOL])), WAIT_SECONDS, 0.05)
            prefill.kill()
            with pytest.raises(APIError):
                future.result(timeout=300)
        assert fleet.lines.plan.done == cut + 1
    finally:
        fleet.restart(prefill)


def test_a_router_that_drains_finishes_its_streams(trial: Trial) -> None:
    with streams(trial) as some:
        router = trial.fleet.router
        assert router.process is not None
        router.process.terminate()
        some.compare("5 router drained")
        assert router.process.wait(timeout=60) == 0
    trial.fleet.start_router()


def test_decoders_computed_no_prompt(trial: Trial) -> None:
    """Of all streams above since the engines' last start. Last in this file."""
    assert trial.fleet.prompt_tokens().local_compute == 0
