"""What the decode side's scheduler adds to the engine's, with the engine's own part replaced by a recording."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from tests.unit.worker.test_handover import complete
from tests.unit.worker.test_hooks_engine import EOS, handed_over
from vllm.v1.core.sched.scheduler import Scheduler
from vllm.v1.engine import EngineCoreOutput, EngineCoreOutputs, FinishReason
from vllm.v1.request import Request, RequestStatus

from sunfleet_api import wire
from sunfleet_worker import errors
from sunfleet_worker.handover import KEY_RELEASE
from sunfleet_worker.hooks.scheduler import SunScheduler
from sunfleet_worker.lease import DEADLINE_SECONDS


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The scheduler's clock, in seconds; set its one element."""
    now = [0.0]
    monkeypatch.setattr("sunfleet_worker.hooks.scheduler.time.monotonic", lambda: now[0])
    return now


Step = Callable[..., dict[int, list[tuple[list[int], FinishReason | None, Any]]]]


@pytest.fixture
def scheduler(monkeypatch: pytest.MonkeyPatch) -> Any:
    """A decode pod's scheduler after its constructor, whose stock methods only keep books."""

    def add_request(self: Any, request: Request) -> None:
        self.requests[request.request_id] = request

    def finish_requests(self: Any, ids: Any, status: RequestStatus) -> list[Request]:
        ids = [ids] if isinstance(ids, str) else ids
        finished = [self.requests.pop(name) for name in ids if name in self.requests]
        for request in finished:
            request.status = status
        return finished

    def preempt(self: Any, request: Request, timestamp: float, drop_stale_output: bool = False) -> None:
        request.status = RequestStatus.PREEMPTED

    monkeypatch.setattr(Scheduler, "add_request", add_request)
    monkeypatch.setattr(Scheduler, "finish_requests", finish_requests)
    monkeypatch.setattr(Scheduler, "_preempt_request", preempt)
    monkeypatch.setattr(Scheduler, "_handle_blocked_waiting_request", lambda *_: True)
    monkeypatch.setattr(Scheduler, "_handle_failed_recving", lambda _, ids: ids)
    made: Any = SunScheduler.__new__(SunScheduler)
    made.requests, made.hash_block_size, made.max_model_len = {}, 4, 100
    made.finished_recving_kv_req_ids = set()
    made.kv_cache_manager = SimpleNamespace(estimate_cached_tokens=lambda _: 0)
    made._decodes, made._unreported, made._endings, made._ended_on_arrival = True, {}, {}, []
    return made


@pytest.fixture
def step(scheduler: Any, monkeypatch: pytest.MonkeyPatch) -> Step:
    """One step in which the engine puts out ``own``; what the clients get: tokens, finish reason, stop reason."""

    def run(*own: EngineCoreOutput) -> dict[int, list[tuple[list[int], FinishReason | None, Any]]]:
        groups = {0: EngineCoreOutputs(outputs=list(own))} if own else {}
        monkeypatch.setattr(Scheduler, "update_from_output", lambda *_: groups)
        outputs = scheduler.update_from_output(None, None)
        return {
            client: [(out.new_token_ids, out.finish_reason, out.stop_reason) for out in group.outputs]
            for client, group in outputs.items()
        }

    return run


def token(request: Request, *ids: int, finish: FinishReason | None = None) -> EngineCoreOutput:
    return EngineCoreOutput(request_id=request.request_id, new_token_ids=list(ids), finish_reason=finish)


def test_the_seed_is_reported_when_its_kv_is_there_and_once(scheduler: Any, step: Step) -> None:
    request = handed_over([1, 3], [7])
    scheduler.add_request(request)
    assert step() == {}, "still on its way"
    scheduler.finished_recving_kv_req_ids.add(request.request_id)
    assert step() == {0: [([7], None, None)]}
    assert step(token(request, 8)) == {0: [([8], None, None)]}


def test_without_a_transfer_the_seed_comes_before_the_first_own_token(scheduler: Any, step: Step) -> None:
    request = handed_over([1, 3], [7, 8])
    scheduler.add_request(request)
    assert step(token(request, 9)) == {0: [([7, 8], None, None), ([9], None, None)]}


def test_a_seed_that_is_the_answer_ends_the_request_at_once(scheduler: Any, step: Step) -> None:
    request = handed_over([1, 3], [7, EOS])
    scheduler.add_request(request)
    assert not scheduler.requests
    assert step() == {0: [([7, EOS], FinishReason.STOP, None)]}


@pytest.mark.parametrize("field", [*wire.REQUIRED_TRANSFER_FIELDS, "do_remote_prefill", wire.KEY_OUTPUT_TOKEN_IDS])
def test_an_incomplete_hand_over_that_reached_the_engine_ends_without_touching_the_connector(
    scheduler: Any, step: Step, field: str
) -> None:
    request = handed_over([1, 3], [7])
    request.kv_transfer_params = {key: value for key, value in complete().items() if key != field}
    scheduler.add_request(request)
    assert request.kv_transfer_params is None
    assert not scheduler._handle_blocked_waiting_request(request), "never scheduled"
    assert step() == {0: [([], FinishReason.ABORT, errors.GUARD)]}


def test_a_preempted_request_is_ended_with_its_reason(scheduler: Any, step: Step) -> None:
    request = handed_over([1, 3], [7])
    scheduler.add_request(request)
    step(token(request, 8))
    scheduler._preempt_request(request, 0.0)
    assert not scheduler._handle_blocked_waiting_request(request)
    assert step() == {0: [([], FinishReason.ABORT, errors.PREEMPTED)]}
    assert step() == {}


def test_a_failed_transfer_gets_a_reason_in_place_of_the_engines_plain_error(scheduler: Any, step: Step) -> None:
    request = handed_over([1, 3], [7])
    scheduler.add_request(request)
    scheduler._handle_failed_recving({request.request_id})
    scheduler.finish_requests(request.request_id, RequestStatus.FINISHED_ERROR)
    failed = token(request, finish=FinishReason.ERROR)
    assert step(failed) == {0: [([], FinishReason.ABORT, errors.KV_LOAD_FAILED)]}


def test_an_aborted_request_reports_nothing_more(scheduler: Any, step: Step) -> None:
    request = handed_over([1, 3], [7])
    scheduler.add_request(request)
    scheduler.finish_requests(request.request_id, RequestStatus.FINISHED_ABORTED)
    scheduler.finished_recving_kv_req_ids.add(request.request_id)
    assert step() == {}


def test_kv_that_is_not_there_in_time_is_given_up(scheduler: Any, step: Step, clock: list[float]) -> None:
    late, early = handed_over([1, 3], [7]), handed_over([1, 4], [7])
    scheduler.add_request(late)
    clock[0] = DEADLINE_SECONDS - 1
    scheduler.add_request(early)
    assert step() == {}
    clock[0] = DEADLINE_SECONDS
    assert step() == {0: [([], FinishReason.ABORT, errors.KV_LOAD_FAILED)]}
    assert [*scheduler.requests] == [early.request_id]


def test_kv_that_arrives_at_its_deadline_is_not_used(scheduler: Any, step: Step, clock: list[float]) -> None:
    request = handed_over([1, 3], [7])
    scheduler.add_request(request)
    clock[0] = DEADLINE_SECONDS
    scheduler.finished_recving_kv_req_ids.add(request.request_id)
    assert step() == {0: [([], FinishReason.ABORT, errors.KV_LOAD_FAILED)]}


def test_a_request_with_its_kv_has_no_deadline_any_more(scheduler: Any, step: Step, clock: list[float]) -> None:
    request = handed_over([1, 3], [7])
    scheduler.add_request(request)
    scheduler.finished_recving_kv_req_ids.add(request.request_id)
    assert step() == {0: [([7], None, None)]}
    clock[0] = 2 * DEADLINE_SECONDS
    assert step(token(request, 8)) == {0: [([8], None, None)]}


def test_a_prefill_pod_releases_what_it_holds_and_ignores_the_rest(scheduler: Any) -> None:
    released: list[set[str]] = []
    scheduler._decodes, scheduler.connector = False, SimpleNamespace(release=released.append)
    scheduler.requests["held"] = None
    request = handed_over([1], [])
    request.abort_immediately = True
    request.kv_transfer_params = {KEY_RELEASE: ["held", "unknown"]}
    scheduler.add_request(request)
    assert released == [{"held"}]
    assert request.request_id not in scheduler.requests


@pytest.mark.parametrize(
    ("held", "counts", "waits"), [(1, (0, 0), True), (1, (1, 0), False), (1, (0, 1), False), (0, (0, 0), False)]
)
def test_an_engine_that_only_holds_kv_steps_ever_more_slowly(
    scheduler: Any, monkeypatch: pytest.MonkeyPatch, held: int, counts: tuple[int, int], waits: bool
) -> None:
    waited: list[float] = []
    monkeypatch.setattr("sunfleet_worker.hooks.scheduler.time.sleep", waited.append)
    monkeypatch.setattr(Scheduler, "schedule", lambda _: None)
    scheduler.get_request_counts, scheduler._idle_steps = lambda: counts, 0
    scheduler.requests = {"held": None} if held else {}
    for _ in range(100):
        scheduler.schedule()
    assert (waited[0], max(waited)) == (0.0, 0.01) if waits else waited == []
    scheduler.get_request_counts = lambda: (1, 0)
    waited.clear()
    scheduler.schedule()
    assert waited == []
    assert scheduler._idle_steps == 0, "and begins anew"


def test_a_request_that_only_releases_another_pods_kv_is_left_alone(scheduler: Any, step: Step) -> None:
    request = handed_over([1], [])
    request.abort_immediately = True
    scheduler.add_request(request)
    assert request.kv_transfer_params is not None
    assert step() == {}
