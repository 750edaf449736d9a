"""How a request's end reaches the client: an HTTP status before the first byte, one SSE error event after it.

The engine's own server sends 200 before it knows anything, turns an abort into an ordinary end of stream and writes
``[DONE]`` after an error. A router must be able to tell "failed, try elsewhere" from "finished".
"""

from __future__ import annotations

import json
import uuid
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Sequence
from contextlib import aclosing
from http import HTTPStatus
from typing import Any, Final

from vllm.engine.protocol import EngineClient
from vllm.exceptions import GenerationError
from vllm.outputs import RequestOutput

from sunfleet_worker.errors import CODE_PREFIX, RequestError, UnavailableError, ended_by_engine
from sunfleet_worker.frontend.telling import Telling
from sunfleet_worker.handover import KEY_RELEASE

_ERROR_EVENT: Final = 'data: {"error"'


class EngineEndedError(GenerationError):
    """A request that the engine ended by itself. A ``GenerationError``, so that the stock server logs no traceback."""

    def __init__(self, reason: RequestError) -> None:
        super().__init__(reason.message)
        self.status_code = reason.status
        self.reason = reason


class WatchedEngine:
    """An engine client whose ``generate`` raises :class:`EngineEndedError` where the stock one reports a normal end.

    ``on_ended`` is told the code of each such end.
    """

    def __init__(self, engine: EngineClient, on_ended: Callable[[str], None]) -> None:
        self._engine = engine
        self._on_ended = on_ended

    def __getattr__(self, name: str) -> Any:
        return getattr(self._engine, name)

    async def generate(self, *args: Any, **kwargs: Any) -> AsyncGenerator[RequestOutput, None]:
        async with aclosing(self._engine.generate(*args, **kwargs)) as outputs:
            async for output in outputs:
                for completion in output.outputs:
                    if (code := _end_code(completion.finish_reason, completion.stop_reason)) is not None:
                        self._on_ended(code)
                        raise EngineEndedError(ended_by_engine(code))
                yield output

    def tokens_of(self, request_id: str) -> int | None:
        """How many output tokens the request with this ``x-request-id`` has so far; ``None`` for none that runs here.

        The engine derives its own ids from the header: one of a chat, and of a completion one for each prompt.
        """
        processor = self._engine.output_processor
        for name in (f"chatcmpl-{request_id}", f"cmpl-{request_id}-0"):
            for internal in reversed(processor.external_req_ids.get(name, ())):
                state = processor.request_states.get(internal)
                if state is not None and state.detokenizer is not None:
                    return int(state.detokenizer.num_output_tokens())
        return None

    async def release(self, request_ids: Sequence[str]) -> None:
        """Free the KV that this pod holds for finished requests; see ``SunConnector.release``.

        The engine has no call for that; this is the one with which it tells its connector of a request that never was.
        """
        await self._engine.notify_kv_transfer_request_rejected(
            f"release-{uuid.uuid4().hex}", {KEY_RELEASE: list(request_ids)}
        )


def _end_code(finish_reason: str | None, stop_reason: int | str | None) -> str | None:
    """Why the engine ended a request by itself; ``None`` for an ordinary end, or none yet."""
    if finish_reason == "abort":
        code = str(stop_reason or "")
        return code if code.startswith(CODE_PREFIX) else "sun_aborted"
    return "sun_engine_error" if finish_reason == "error" else None


class Watch:
    """Notes the error that ends a stream's source, which the stock stream generators swallow."""

    error: EngineEndedError | None = None

    async def over(self, source: AsyncIterator[Any]) -> AsyncGenerator[Any, None]:
        try:
            async for item in source:
                yield item
        except EngineEndedError as error:
            self.error = error
            raise


async def ending_honestly(
    events: AsyncGenerator[str, None], watch: Watch, telling: Telling
) -> AsyncGenerator[str, None]:
    """The stock server's SSE events as ``telling`` writes them; an error is the last, and raised if it is the first.

    Raises:
        EngineEndedError: nothing was sent yet and the request failed.
    """
    sent = False
    async with aclosing(events):
        async for event in events:
            error = watch.error or (_stock_error(event) if event.startswith(_ERROR_EVENT) else None)
            if error is not None:
                if not sent:
                    raise error
                yield f"data: {json.dumps(error.reason.body())}\n\n"
                return
            written = telling.write(event)
            if written is not None:
                sent = True
                yield written


def _stock_error(event: str) -> EngineEndedError:
    """An error that the stock server put into the stream, with the status it would have had as an answer."""
    error = json.loads(event.removeprefix("data: "))["error"]
    reason = UnavailableError(error["message"], code=str(error["code"]), param=error.get("param"))
    reason.status, reason.kind = HTTPStatus(int(error["code"])), error["type"]
    return EngineEndedError(reason)


async def begun(stream: AsyncGenerator[str, None]) -> AsyncGenerator[str, None]:
    """The same stream once its first event is there, so that a failure before it can still become a status.

    Raises:
        EngineEndedError: the request failed before anything was sent.
    """
    try:
        first = await anext(stream, None)
    except BaseException:
        await stream.aclose()
        raise
    return _resumed(first, stream)


async def _resumed(first: str | None, rest: AsyncGenerator[str, None]) -> AsyncGenerator[str, None]:
    async with aclosing(rest):
        if first is not None:
            yield first
            async for event in rest:
                yield event
