"""What an engine's refusal, or a broken exchange, means for the client and for a further try. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final, Literal

import orjson

from sunfleet_router.bodies import sse
from sunfleet_router.engines.relay import EngineEndedError
from sunfleet_router.errors import (
    EngineRefusedError,
    Leg,
    LegFailedError,
    PhaseTimeoutError,
    RouterError,
    StreamCutError,
)
from sunfleet_router.transport.connection import (
    BadFramingError,
    ConnectFailedError,
    ConnectionCutError,
    ConnectTimeoutError,
    UpstreamError,
)

# Statuses with which an engine judges the client's request; every other 4xx means that the router spoke wrongly to it.
_CLIENTS_FAULT: Final = frozenset({400, 413, 422})
# Another pod may do better: draining, overloaded, a gateway in between.
_RETRYABLE: Final = frozenset({429, 502, 503, 504})
_CONTEXT: Final = "maximum context length"
_ENGINES_OWN: Final = "sun_"  # codes with which an engine ends a request itself
BUSY: Final = "engine_busy"
CONNECT_TIMEOUT: Final = "connect_timeout"
PREEMPTED: Final = "sun_preempted"
# The KV did not get from one pod to the other: either may be to blame.
NOT_HANDED_OVER: Final = frozenset({"sun_kv_load_failed", "sun_prompt_not_transferred"})

Reason = Literal["preempted", "ended", "cut", "silent", "failed"]


@dataclass(frozen=True, slots=True)
class Break:
    """How a stream that had begun broke off. ``error`` is what the client gets if it cannot go on.

    Reasons are a metric's label: ``ended``: by the engine, ``failed``: the resume itself, before its first event.
    """

    reason: Reason
    error: RouterError
    resumable: bool = True


def of_answer(leg: Leg, status: int, body: bytes) -> RouterError:
    """An engine's answer that is not a 200."""
    error = _error_object(body)
    message = str(error.get("message") or f"The {leg} engine answered {status}.")
    code = error.get("code") if isinstance(error.get("code"), str) else None
    if status in _CLIENTS_FAULT and code != "handover_incomplete":
        param = error.get("param")
        if code is None and _CONTEXT in message:
            code = "context_length_exceeded"
        return EngineRefusedError(status, message, code=code, param=param if isinstance(param, str) else None)
    return _engine_failure(leg, status, message, code)


def check_whole(leg: Leg, body: bytes) -> int:
    """The output tokens of a whole 200 answer, as it counts them itself.

    Raises :class:`LegFailedError` when the body is no JSON object: a client must not get half an answer.
    """
    try:
        answer = orjson.loads(body)
    except orjson.JSONDecodeError:
        answer = None
    if not isinstance(answer, dict):
        message = f"The {leg} engine's answer is not JSON."
        raise LegFailedError(leg, message, code="bad_engine_answer", retryable=True)
    usage = answer.get("usage")
    count = usage.get("completion_tokens") if isinstance(usage, dict) else None
    return count if isinstance(count, int) else 0


def of_event(leg: Leg, data: bytes) -> RouterError:
    """An engine's error event, as the plain answer that it would have been before the stream began."""
    error = _error_object(data)
    code = error.get("code")
    status = code if isinstance(code, int) and 400 <= code <= 599 else 500
    if isinstance(code, str) and code.startswith(_ENGINES_OWN):
        status = 503  # the engine ended the request itself: as its refusal before the first byte
    return of_answer(leg, status, data)


def of_break(error: BaseException) -> Break:
    """A stream that broke off after its first event; ``error`` as the relay or the silence clock says it."""
    if isinstance(error, PhaseTimeoutError):
        return Break("silent", error)
    if isinstance(error, EngineEndedError):
        ended = of_event("decode", sse.payload(error.event))
        own = ended.code.startswith(_ENGINES_OWN)
        return Break("preempted" if ended.code == PREEMPTED else "ended", ended, resumable=own)
    cut = StreamCutError("The engine broke the answer off; it is incomplete. Try again.")
    cut.__cause__ = error
    return Break("cut", cut)


def of_failure(error: RouterError) -> Break:
    """A resume that failed before its first event."""
    return Break("failed", error, resumable=not isinstance(error, LegFailedError) or error.retryable)


def of_exchange(leg: Leg, error: UpstreamError) -> RouterError:
    """An exchange that broke before the client got anything of it."""
    if isinstance(error, EngineEndedError):
        return of_event(leg, sse.payload(error.event))
    if isinstance(error, ConnectTimeoutError):
        message = f"The {leg} engine took no connection in time; try again in a moment."
        late = LegFailedError(leg, message, code=CONNECT_TIMEOUT, retryable=True, unreachable=True)
        late.status = 504
        return late
    if isinstance(error, ConnectFailedError | ConnectionCutError):
        message = f"The {leg} engine could not be reached; try again in a moment."
        stale = isinstance(error, ConnectionCutError) and error.stale
        return LegFailedError(leg, message, code="engine_unreachable", retryable=True, unreachable=True, same_pod=stale)
    framing = isinstance(error, BadFramingError)
    return LegFailedError(
        leg, f"The {leg} engine's answer is unusable: {error}.", code="bad_engine_answer", retryable=framing
    )


def _engine_failure(leg: Leg, status: int, message: str, code: str | None) -> LegFailedError:
    avoid = code == PREEMPTED or code in NOT_HANDED_OVER
    failure = LegFailedError(
        leg, message, code=_known(code, status), retryable=status in _RETRYABLE, same_pod=avoid, avoid=avoid
    )
    if status in _RETRYABLE:
        failure.status, failure.retry_after = 503, 1
    return failure


def _known(code: str | None, status: int) -> str:
    """Codes are metric labels too: only the contract's own pass, the rest is one of two."""
    if code is not None and (code == "handover_incomplete" or code.startswith(_ENGINES_OWN)) and len(code) <= 64:
        return code
    return BUSY if status in _RETRYABLE else "engine_error"


def _error_object(body: bytes) -> dict[str, Any]:
    try:
        document = orjson.loads(body)
    except orjson.JSONDecodeError:
        return {}
    error = document.get("error", document) if isinstance(document, dict) else {}
    return error if isinstance(error, dict) else {}
