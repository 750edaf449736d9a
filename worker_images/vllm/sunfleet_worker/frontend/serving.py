"""The engine's chat and completion servers under the hand-over's rules.

Thin subclasses: check the request, put the task's name into the answer, end streams honestly. Rendering, sampling
parameters, detokenising, parsers, usage and chunk shapes stay the engine's.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

from vllm.entrypoints.openai.chat_completion.serving import OpenAIServingChat
from vllm.entrypoints.openai.completion.serving import OpenAIServingCompletion
from vllm.entrypoints.serve.engine.protocol import ErrorResponse
from vllm.exceptions import VLLMValidationError

from sunfleet_api import names, wire
from sunfleet_worker.adapters.shelf import Shelf
from sunfleet_worker.errors import RefusedError
from sunfleet_worker.frontend.checks import (
    TOO_LONG,
    asked_logprobs,
    check_decode_request,
    check_fits,
    check_prefill_request,
)
from sunfleet_worker.frontend.metrics import PodMetrics
from sunfleet_worker.frontend.streams import Watch, WatchedEngine, begun, ending_honestly
from sunfleet_worker.frontend.telling import Telling
from sunfleet_worker.handover import KEY_STEPWISE, missing_fields, response_model, told_of, wants_progress

# Names under which the engine reports a prompt that does not fit.
_PROMPT_TOO_LONG = frozenset({"input_tokens", "input_text"})


class _HandoverRules:
    """What both kinds of request share.

    ``role``, ``metrics`` and ``shelf`` are set by :func:`serving_for`, the rest is the stock server's.
    """

    role: str
    shelf: Shelf | None
    metrics: PodMetrics
    engine_client: WatchedEngine
    model_config: Any
    _extract_prompt_len: Callable[[Any], int]

    def _module(self, request: Any) -> AbstractContextManager[None]:
        """Of a pool's pod: the adapter that the request names, held until it is answered."""
        return nullcontext() if self.shelf is None else self.shelf.using(str(request.model))

    def _check(self, request: Any) -> None:
        if self.role != names.ROLE_DECODE:
            check_prefill_request(request)
            return
        check_decode_request(request)
        if told_of(request.kv_transfer_params) is not None:
            self.metrics.resumed.inc()

    async def _answered(self, answer: Awaitable[Any]) -> Any:
        result = await answer
        if isinstance(result, AsyncGenerator):
            return await begun(result)
        if self.role == names.ROLE_PREFILL:
            await self._keep_nothing_for_ended(result)
        return result

    async def _keep_nothing_for_ended(self, answer: Any) -> None:
        """Take the hand-over out of a prefill's answer whose one token ends it by a stop string.

        The engine only sees tokens, so it holds the KV for a decoder; what it ends itself it does not hold.
        """
        transfer = getattr(answer, "kv_transfer_params", None)
        if transfer and answer.choices[0].finish_reason != "length":
            answer.kv_transfer_params = None
            self.metrics.released.inc()
            await self.engine_client.release([transfer["remote_request_id"]])

    async def _rendered(self, rendering: Awaitable[Any], request: Any) -> Any:
        """What the engine rendered; on a prefill pod only if the decode leg could finish what the client asked for."""
        try:
            rendered = await rendering
        except VLLMValidationError as error:
            if error.parameter in _PROMPT_TOO_LONG:
                raise RefusedError(error.args[0], code=TOO_LONG, param=error.parameter) from error
            raise
        if self.role == names.ROLE_PREFILL and not isinstance(rendered, ErrorResponse):
            # A chat is rendered to its conversation and the engine's inputs, a completion to the latter.
            for engine_input in rendered[1] if isinstance(rendered, tuple) else rendered:
                check_fits(self._extract_prompt_len(engine_input), request, self.model_config.max_model_len)
        return rendered


class SunChat(_HandoverRules, OpenAIServingChat):
    """``/v1/chat/completions`` of a pod."""

    async def create_chat_completion(self, request: Any, raw_request: Any = None) -> Any:
        _refuse_incomplete(self, request)
        with self._module(request):
            return await self._answered(super().create_chat_completion(request, raw_request))

    async def _create_chat_completion(self, request: Any, raw_request: Any = None) -> Any:
        self._check(request)
        if self.parser_cls is not None:
            feed_parser_stepwise(request)
        return await super()._create_chat_completion(request, raw_request)

    async def render_chat_request(self, request: Any) -> Any:
        return await self._rendered(super().render_chat_request(request), request)

    async def chat_completion_full_generator(
        self,
        request: Any,
        result_generator: AsyncIterator[Any],
        request_id: str,
        model_name: str,
        *args: Any,
        **kwargs: Any,
    ) -> Any:
        name = response_model(request.kv_transfer_params) or model_name
        return await super().chat_completion_full_generator(
            request, result_generator, request_id, name, *args, **kwargs
        )

    async def chat_completion_stream_generator(
        self,
        request: Any,
        result_generator: AsyncIterator[Any],
        request_id: str,
        model_name: str,
        *args: Any,
        **kwargs: Any,
    ) -> AsyncGenerator[str, None]:
        name = response_model(request.kv_transfer_params) or model_name
        watch, telling = Watch(), Telling(request.kv_transfer_params, asked_logprobs(request))
        events = super().chat_completion_stream_generator(
            request, telling.over(watch.over(result_generator)), request_id, name, *args, **kwargs
        )
        async for event in ending_honestly(events, watch, telling):
            yield event


class SunCompletion(_HandoverRules, OpenAIServingCompletion):
    """``/v1/completions`` of a pod."""

    async def create_completion(self, request: Any, raw_request: Any = None) -> Any:
        _refuse_incomplete(self, request)
        with self._module(request):
            return await self._answered(super().create_completion(request, raw_request))

    async def _create_completion(self, request: Any, raw_request: Any = None) -> Any:
        self._check(request)
        if self.role == names.ROLE_DECODE:
            # The engine reuses handed-over ids for chats only.
            request.prompt = request.kv_transfer_params.pop(wire.KEY_PROMPT_TOKEN_IDS)
        return await super()._create_completion(request, raw_request)

    async def render_completion_request(self, request: Any) -> Any:
        return await self._rendered(super().render_completion_request(request), request)

    def request_output_to_completion_response(
        self,
        final_res_batch: Any,
        request: Any,
        request_id: str,
        created_time: int,
        model_name: str,
        *args: Any,
        **kwargs: Any,
    ) -> Any:
        name = response_model(request.kv_transfer_params) or model_name
        return super().request_output_to_completion_response(
            final_res_batch, request, request_id, created_time, name, *args, **kwargs
        )

    async def completion_stream_generator(
        self,
        request: Any,
        engine_inputs: Any,
        result_generator: AsyncIterator[Any],
        request_id: str,
        created_time: int,
        model_name: str,
        *args: Any,
        **kwargs: Any,
    ) -> AsyncGenerator[str, None]:
        name = response_model(request.kv_transfer_params) or model_name
        watch, telling = Watch(), Telling(request.kv_transfer_params, asked_logprobs(request))
        results = telling.over(watch.over(result_generator))
        events = super().completion_stream_generator(
            request, engine_inputs, results, request_id, created_time, name, *args, **kwargs
        )
        async for event in ending_honestly(events, watch, telling):
            yield event


def feed_parser_stepwise(request: Any) -> None:
    """Have a stream that may be resumed, or is, give its parser one token at a time."""
    params = request.kv_transfer_params
    if request.stream and (wants_progress(params) or told_of(params) is not None):
        params[KEY_STEPWISE] = True
        request.stream_interval = None


def _refuse_incomplete(server: _HandoverRules, request: Any) -> None:
    """Refuse before the engine's own clean-up, which would tell the prefill pod of a transfer that it cannot address.

    Everything else is refused inside, so that the prefill pod frees the KV it holds for the request.
    """
    if server.role == names.ROLE_DECODE and missing_fields(request.kv_transfer_params):
        check_decode_request(request)


def serving_for(
    stock: Any, kind: type[SunChat] | type[SunCompletion], role: str, metrics: PodMetrics, shelf: Shelf | None = None
) -> Any:
    """The stock server's state under our class: its constructor's many arguments stay the engine's business."""
    server = kind.__new__(kind)
    server.__dict__.update(stock.__dict__)
    server.role, server.metrics, server.shelf = role, metrics, shelf
    return server
