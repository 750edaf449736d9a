"""Outputs that the API process must take step by step: the engine's own merges what waits, and takes a seed whole.

Detokenising does not depend on how tokens are grouped, tool and reasoning parsers may. A stream that can be resumed, or
is, therefore feeds its parser one token at a time, so that a replay leaves the parser exactly where the first pod's
was. Without a parser only one seam matters: the last token that was told must not be merged with the next.
"""

from __future__ import annotations

import copy
from collections import deque
from collections.abc import Callable
from typing import Any

from vllm.outputs import RequestOutput
from vllm.v1.engine import EngineCoreOutput
from vllm.v1.engine.output_processor import OutputProcessor, OutputProcessorOutput, RequestOutputCollector

from sunfleet_worker.handover import KEY_STEPWISE, told_of


class StepCollector(RequestOutputCollector):
    """A request's outputs in order, merged only where a stream may take them together."""

    _backlog: deque[RequestOutput]
    _seam: int | None
    _stepwise: bool
    _taken: int

    def put(self, output: Any) -> None:
        if isinstance(output, Exception) or self.output is None:
            self._count(output)
            super().put(output)
            return
        apart = self._stepwise or self._taken == self._seam
        self._count(output)
        if apart:
            self._backlog.append(output)
        elif self._backlog:
            self._backlog[-1].add(output, aggregate=self.aggregate)
        else:
            super().put(output)

    def _count(self, output: Any) -> None:
        if isinstance(output, Exception):
            self._backlog.clear()
        else:
            self._taken += sum(len(completion.token_ids) for completion in output.outputs)

    async def get(self) -> Any:
        output = await super().get()
        self._refill()
        return output

    def get_nowait(self) -> Any:
        output = super().get_nowait()
        self._refill()
        return output

    def _refill(self) -> None:
        if self._backlog and self.output is None:
            super().put(self._backlog.popleft())


def keep_apart(queue: RequestOutputCollector, *, seam: int | None, stepwise: bool) -> None:
    """Make a request's collector a :class:`StepCollector`, in place: the engine's ``generate`` holds this very object.

    Args:
        queue: of a request that has put out nothing yet.
        seam: how many tokens the stream has told already; ``None`` when it begins here.
        stepwise: whether to merge nothing at all.
    """
    queue.__class__ = StepCollector
    queue._backlog, queue._taken, queue._seam, queue._stepwise = deque(), 0, seam, stepwise


class StepOutputProcessor(OutputProcessor):
    """The engine's output processor; obeys :data:`KEY_STEPWISE` and the seam of a resumed stream.

    It also sees how each prompt was come by, which is told to ``on_computed_prompt``: tokens computed on this pod.
    """

    on_computed_prompt: Callable[[int], None]

    def add_request(
        self, request: Any, prompt: Any, parent_req: Any = None, request_index: int = 0, queue: Any = None
    ) -> None:
        params = _params(request)
        seam, stepwise = told_of(params), bool(params.get(KEY_STEPWISE))
        if queue is not None and (stepwise or seam is not None):
            keep_apart(queue, seam=seam, stepwise=stepwise)
        super().add_request(request, prompt, parent_req, request_index, queue)
        self.request_states[request.request_id].sun_stepwise = stepwise

    def process_outputs(
        self,
        engine_core_outputs: list[EngineCoreOutput],
        engine_core_timestamp: float | None = None,
        iteration_stats: Any = None,
        weight_version: str | None = None,
    ) -> OutputProcessorOutput:
        for output in engine_core_outputs:
            if output.prefill_stats is not None:
                self.on_computed_prompt(output.prefill_stats.num_computed_tokens)
        left, aborts = engine_core_outputs, list[str]()
        if any(len(output.new_token_ids) > 1 for output in engine_core_outputs):
            left, aborts = self._replayed(engine_core_outputs)
        processed = super().process_outputs(left, engine_core_timestamp, iteration_stats, weight_version=weight_version)
        processed.reqs_to_abort += aborts
        return processed

    def _replayed(self, outputs: list[EngineCoreOutput]) -> tuple[list[EngineCoreOutput], list[str]]:
        """Process all but the last of the tokens that a stepwise request gets at once, its seed that is.

        Outside the engine's statistics: these tokens were generated elsewhere. The last one stands for the request's
        first output here, as without a resume.

        Returns:
            What is left to process, and requests that ended on the way.
        """
        left: list[EngineCoreOutput] = []
        aborts: list[str] = []
        for output in outputs:
            state = self.request_states.get(output.request_id)
            if state is None or not state.sun_stepwise:
                left.append(output)
                continue
            is_first = state.is_prefilling
            *replayed, last = single_tokens(output)
            aborts += super().process_outputs(replayed).reqs_to_abort
            state.is_prefilling = is_first
            left.append(last)
        return left, aborts


def single_tokens(output: EngineCoreOutput) -> list[EngineCoreOutput]:
    """The same tokens one by one; how the request went on, and what is counted, rides on the last. At least one."""
    ids, logprobs = output.new_token_ids, output.new_logprobs
    if len(ids) < 2:
        return [output]
    rows = [None if logprobs is None else logprobs.slice_request(index, 1) for index in range(len(ids))]
    steps = [
        EngineCoreOutput(output.request_id, [token], new_logprobs=row, prefill_stats=output.prefill_stats)
        for token, row in zip(ids[:-1], rows[:-1], strict=True)
    ]
    last = copy.copy(output)
    last.new_token_ids, last.new_logprobs = [ids[-1]], rows[-1]
    return [*steps, last]


def step_by_step(stock: OutputProcessor, on_computed_prompt: Callable[[int], None]) -> StepOutputProcessor:
    """The state of the engine's output processor under our class; before the engine's first request."""
    processor = StepOutputProcessor.__new__(StepOutputProcessor)
    processor.__dict__.update(stock.__dict__)
    processor.on_computed_prompt = on_computed_prompt
    return processor


def _params(request: Any) -> dict[str, Any]:
    arguments = getattr(request.sampling_params, "extra_args", None) or {}
    params: dict[str, Any] = arguments.get("kv_transfer_params") or {}
    return params
