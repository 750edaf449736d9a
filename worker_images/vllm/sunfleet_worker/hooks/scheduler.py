"""Schedulers of SUN pods: the engine's own, with the rules of the hand-over.

Named on the command line (``--scheduler-cls``); one mixin serves the synchronous and the asynchronous scheduler.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from vllm.logger import init_logger
from vllm.v1.core.sched.async_scheduler import AsyncScheduler
from vllm.v1.core.sched.output import SchedulerOutput
from vllm.v1.core.sched.scheduler import Scheduler
from vllm.v1.engine import EngineCoreOutput, EngineCoreOutputs, FinishReason
from vllm.v1.outputs import ModelRunnerOutput
from vllm.v1.request import Request, RequestStatus

from sunfleet_worker import errors
from sunfleet_worker.handover import KEY_OUTPUT_LOGPROBS, missing_fields, released_requests, seed_of
from sunfleet_worker.hooks.guard import install_guard
from sunfleet_worker.hooks.isolate import isolate_generated_blocks
from sunfleet_worker.hooks.pace import wait_before_step
from sunfleet_worker.hooks.seed import finished_by_seed, logprobs_to_wire, plant_seed, seed_output
from sunfleet_worker.lease import DEADLINE_SECONDS

logger = init_logger(f"vllm.{__name__}")  # the engine configures the loggers below this name

Outputs = dict[int, EngineCoreOutputs]


@dataclass(frozen=True, slots=True)
class Awaited:
    """A request whose KV must be there by ``deadline``, on the monotonic clock in seconds."""

    request: Request
    deadline: float


class SunSchedulerMixin(Scheduler):
    """Adds to a vLLM scheduler, on decode pods:

    - the seed counts as output, and is reported before the first token of its own;
    - generated KV never serves as anyone's prompt;
    - a request that lost its prompt's KV, or does not get it in time, is ended with a reason, never recomputed.

    On prefill pods: gives the first token's log-probabilities to the decoder, and releases KV on demand.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._decodes = bool(self.vllm_config.kv_transfer_config.is_kv_consumer)
        # Requests whose seed is not yet reported, since their KV is not there, in the order in which they came.
        self._unreported: dict[str, Awaited] = {}
        # Requests that the next step must end, and why.
        self._endings: dict[str, str] = {}
        # Outputs of requests that ended on arrival.
        self._ended_on_arrival: list[tuple[int, EngineCoreOutput]] = []
        # Steps in a row in which there was nothing but KV that other pods read or write.
        self._idle_steps = 0
        if self._decodes:
            install_guard(self.kv_cache_manager, lambda request: self._end(request, errors.GUARD))

    def schedule(self, *args: Any, **kwargs: Any) -> SchedulerOutput:
        idle = bool(self.requests) and not any(self.get_request_counts())
        self._idle_steps = self._idle_steps + 1 if idle else 0
        if idle:
            time.sleep(wait_before_step(self._idle_steps))
        return super().schedule(*args, **kwargs)

    def _end(self, request: Request, reason: str) -> None:
        self._endings.setdefault(request.request_id, reason)

    # --- arrival

    def add_request(self, request: Request) -> None:
        # A request with abort_immediately only lets go of KV that another pod holds for it, or this one for others.
        if request.abort_immediately and (released := released_requests(request.kv_transfer_params)):
            self.connector.release(released & self.requests.keys())
            return
        if not self._decodes or request.abort_immediately or request.request_id in self.requests:
            super().add_request(request)
            return
        if missing_fields(request.kv_transfer_params):
            # The connector would address the prefill pod with what it has, and the engine would die of what it lacks.
            request.kv_transfer_params = None
            super().add_request(request)
            self._end(request, errors.GUARD)
            return
        isolate_generated_blocks(request, self.hash_block_size)
        plant_seed(request)
        super().add_request(request)
        if (status := finished_by_seed(request, self.max_model_len)) is not None:
            self._finish_on_arrival(request, status)
        else:
            self._unreported[request.request_id] = Awaited(request, time.monotonic() + DEADLINE_SECONDS)

    def _finish_on_arrival(self, request: Request, status: RequestStatus) -> None:
        """The seed was the whole answer: report it, and let the prefill pod free the KV that nobody will read."""
        self.finish_requests(request.request_id, status)
        output = seed_output(request, finish=RequestStatus.get_finished_reason(status))
        self._ended_on_arrival.append((request.client_index, output))

    # --- waiting

    def _handle_blocked_waiting_request(self, request: Request) -> bool:
        if request.request_id in self._endings:
            return False
        compiling = request.status == RequestStatus.WAITING_FOR_STRUCTURED_OUTPUT_GRAMMAR
        ready: bool = super()._handle_blocked_waiting_request(request)
        if ready and compiling and self._decodes and not self._advance_grammar(request):
            self._end(request, errors.GRAMMAR_REJECTED_SEED)
            return False
        return ready

    def _advance_grammar(self, request: Request) -> bool:
        """Bring a grammar that has just been compiled to where the seed left it."""
        seed = seed_of(request.kv_transfer_params)
        return bool(self.structured_output_manager.accept_tokens(request, list(seed)))

    # --- what loses a prompt's KV

    def _preempt_request(self, request: Request, timestamp: float, drop_stale_output: bool = False) -> None:
        super()._preempt_request(request, timestamp, drop_stale_output)
        if self._decodes:
            self._end(request, errors.PREEMPTED)

    def _handle_failed_recving(self, failed_req_ids: set[str]) -> set[str]:
        return self._noted(super()._handle_failed_recving(failed_req_ids))

    def _handle_invalid_blocks(self, invalid_block_ids: set[int], num_scheduled_tokens: dict[str, int]) -> set[str]:
        return self._noted(super()._handle_invalid_blocks(invalid_block_ids, num_scheduled_tokens))

    def _noted(self, failed: set[str]) -> set[str]:
        for request_id in failed:
            self._endings.setdefault(request_id, errors.KV_LOAD_FAILED)
        return failed

    # --- output

    def update_from_output(self, scheduler_output: SchedulerOutput, model_runner_output: ModelRunnerOutput) -> Outputs:
        outputs: Outputs = super().update_from_output(scheduler_output, model_runner_output)
        if self._decodes:
            self._report_seeds(outputs)
            self._end_overdue(time.monotonic())
            self._report_arrivals(outputs)
            self._report_endings(outputs)
        else:
            _attach_logprobs(outputs)
        return outputs

    def _report_seeds(self, outputs: Outputs) -> None:
        """Send seeds that are the whole answer, and each other one at the latest before the first token of this pod."""
        for client, output in _drain(self._ended_on_arrival):
            _of_client(outputs, client).outputs.append(output)
        for group in outputs.values():
            group.outputs = [part for output in group.outputs for part in (*self._seed_before(output), output)]

    def _end_overdue(self, now: float) -> None:
        """Give up on KV that has not come in time, also if it has come just now: it may have been read too late."""
        for awaited in self._unreported.values():
            if awaited.deadline > now:
                break
            request_id = awaited.request.request_id
            logger.error("The KV of request %s has not come within %d s; giving it up.", request_id, DEADLINE_SECONDS)
            self._end(awaited.request, errors.KV_LOAD_FAILED)

    def _report_arrivals(self, outputs: Outputs) -> None:
        """Send each seed when its prompt's KV has arrived."""
        for request_id in (self.finished_recving_kv_req_ids & self._unreported.keys()) - self._endings.keys():
            request = self._unreported.pop(request_id).request
            stats = request.take_prefill_stats()
            if stats is not None:
                stats.finalize(self.kv_cache_manager.estimate_cached_tokens(request))
            _of_client(outputs, request.client_index).outputs.append(seed_output(request, prefill_stats=stats))

    def _seed_before(self, output: EngineCoreOutput) -> Iterable[EngineCoreOutput]:
        awaited = self._unreported.pop(output.request_id, None)
        if awaited is None or output.finish_reason in (FinishReason.ABORT, FinishReason.ERROR):
            return ()
        stats, output.prefill_stats = output.prefill_stats, None
        return (seed_output(awaited.request, prefill_stats=stats),)

    def _report_endings(self, outputs: Outputs) -> None:
        """End what must not go on, as ABORT with a reason: an ERROR would reach the client as an anonymous 500."""
        if not self._endings:
            return
        endings, self._endings = self._endings, {}
        for group in outputs.values():
            for output in group.outputs:
                if output.finish_reason == FinishReason.ERROR and output.request_id in endings:
                    output.finish_reason, output.stop_reason = FinishReason.ABORT, endings[output.request_id]
        for request in self.finish_requests(list(endings), RequestStatus.FINISHED_ABORTED):
            ending = EngineCoreOutput(
                request_id=request.request_id,
                new_token_ids=[],
                finish_reason=FinishReason.ABORT,
                stop_reason=endings[request.request_id],
                events=request.take_events(),
                trace_headers=request.trace_headers,
            )
            _of_client(outputs, request.client_index).outputs.append(ending)

    def finish_requests(self, request_ids: str | Iterable[str] | None, finished_status: RequestStatus) -> list[Request]:
        finished: list[Request] = super().finish_requests(request_ids, finished_status)
        for request in finished:
            self._unreported.pop(request.request_id, None)
        return finished


def _of_client(outputs: Outputs, client: int) -> EngineCoreOutputs:
    return outputs.setdefault(client, EngineCoreOutputs())


def _drain(queue: list[tuple[int, EngineCoreOutput]]) -> list[tuple[int, EngineCoreOutput]]:
    taken = list(queue)
    queue.clear()
    return taken


def _attach_logprobs(outputs: Outputs) -> None:
    """On a prefill pod, give the sampled token's log-probabilities to the decoder with the transfer's fields."""
    for group in outputs.values():
        for output in group.outputs:
            if output.kv_transfer_params and output.new_logprobs is not None:
                output.kv_transfer_params[KEY_OUTPUT_LOGPROBS] = logprobs_to_wire(output.new_logprobs)


class SunScheduler(SunSchedulerMixin, Scheduler):
    """For engines that finish a step before they plan the next."""


class SunAsyncScheduler(SunSchedulerMixin, AsyncScheduler):
    """For engines whose steps overlap."""
