"""Every way in which a request can fail, and the one mapping to OpenAI's error object.

::

    RouterError
    ├── InvalidRequestError 400
    │   ├── BodyTooLargeError 413
    │   └── EngineRefusedError 4xx      the prefill engine's own verdict on the client's request
    ├── UnauthenticatedError 401
    ├── NotFoundError 404
    │   └── UnknownModelError
    ├── MethodNotAllowedError 405
    ├── BusyError 429                   a limit of the task or of the key: line, rate, requests in flight
    ├── UnavailableError 503            nothing to send the request to, now
    │   ├── OverloadedError             a limit of the router itself
    │   ├── NoPrefillEndpointError
    │   ├── NoDecodeEndpointError
    │   ├── CircuitOpenError
    │   └── ShuttingDownError
    ├── LegFailedError 502, 503         one of the two engine calls failed; may be tried again before the first byte
    │   └── HandoverIncompleteError
    ├── StreamCutError 502              the answer broke off after its first byte, and no resume made it whole
    │   └── ResumeMismatchError         the same request has another prompt now
    ├── PhaseTimeoutError 504
    ├── InternalError 500
    └── ClientGoneError 499             never sent to anyone: the client left

Messages go to clients: no addresses, no URLs, no names of pods.
"""

from __future__ import annotations

import math
import re
from typing import Any, ClassVar, Final, Literal

import orjson

Leg = Literal["prefill", "decode"]

DROPPED_HEADER: Final = "x-sunfleet-request-dropped-reason"
QUEUE_TIMEOUT: Final = "queue_timeout"
_MAX_MESSAGE = 2000
# Whatever an engine says is passed on without where it said it: URLs, host:port pairs and IP addresses.
_ADDRESS = re.compile(
    r"\b[a-z][a-z0-9+.-]*://\S+|\[?\b[0-9a-f]{0,4}(?::[0-9a-f]{0,4}){3,7}\b\]?(?::\d+)?|\b\d{1,3}(?:\.\d{1,3}){3}(?::\d+)?\b",
    re.IGNORECASE,
)


def sanitise(message: str) -> str:
    """An engine's message without addresses and of bounded length."""
    return _ADDRESS.sub("[address]", message)[:_MAX_MESSAGE]


class RouterError(Exception):
    """Base of the tree; ``message`` and ``code`` are for the client."""

    status: int = 500
    code: str = "internal_error"
    error_type: ClassVar[str] = "server_error"
    retry_after: int | None = None  # seconds

    def __init__(self, message: str, *, code: str | None = None, param: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.param = param
        if code is not None:
            self.code = code

    @property
    def label(self) -> str:
        """The value of a metric's ``code`` label: bounded, whatever an engine says."""
        return self.code

    @property
    def dropped(self) -> str | None:
        """Why the router itself turned the request away, before any engine saw it; ``None`` for every other error."""
        return None

    def headers(self) -> dict[str, str]:
        """Of the answer, beside its body."""
        found = {} if self.retry_after is None else {"retry-after": str(self.retry_after)}
        return found if self.dropped is None else found | {DROPPED_HEADER: self.dropped}

    def to_object(self) -> dict[str, Any]:
        """OpenAI's error object, wrapped in ``error``."""
        return {"error": {"message": self.message, "type": self.error_type, "param": self.param, "code": self.code}}

    def to_json(self) -> bytes:
        return orjson.dumps(self.to_object())

    def to_event(self) -> bytes:
        """One server-sent event that ends a stream that had begun; no ``[DONE]`` follows it."""
        return b"data: " + self.to_json() + b"\n\n"


class InvalidRequestError(RouterError):
    status = 400
    code = "invalid_request"
    error_type = "invalid_request_error"


class BodyTooLargeError(InvalidRequestError):
    status = 413
    code = "body_too_large"


class EngineRefusedError(InvalidRequestError):
    """The prefill engine refused the client's request; its status (4xx) and words, sanitised."""

    def __init__(self, status: int, message: str, *, code: str | None = None, param: str | None = None) -> None:
        super().__init__(sanitise(message), code=code, param=param)
        self.status = status

    @property
    def label(self) -> str:
        return "engine_refused"


class UnauthenticatedError(RouterError):
    """No API key, or none that is known; which of the two it was is said, why it is not known is not."""

    status = 401
    code = "invalid_api_key"
    error_type = "invalid_request_error"

    def headers(self) -> dict[str, str]:
        return {"www-authenticate": "Bearer"}


class NotFoundError(RouterError):
    status = 404
    code = "not_found"
    error_type = "invalid_request_error"


class UnknownModelError(NotFoundError):
    code = "model_not_found"

    def __init__(self, model: str) -> None:
        super().__init__(
            f"The model {model[:200]!r} does not exist. GET /v1/models lists the models that do.", param="model"
        )


class MethodNotAllowedError(RouterError):
    status = 405
    code = "method_not_allowed"
    error_type = "invalid_request_error"


class BusyError(RouterError):
    """A limit of the task or of the key is reached; ``code`` says which."""

    status = 429
    code = "queue_full"
    error_type = "rate_limit_error"
    retry_after = 1

    def __init__(self, message: str, *, code: str, retry_after: int = 1) -> None:
        super().__init__(message, code=code)
        self.retry_after = retry_after

    @property
    def dropped(self) -> str | None:
        return self.code


class UnavailableError(RouterError):
    status = 503
    code = "unavailable"
    retry_after = 5

    @property
    def dropped(self) -> str | None:
        return self.code


class OverloadedError(UnavailableError):
    code = "overloaded"
    retry_after = 1


class NoPrefillEndpointError(UnavailableError):
    code = "no_prefill_endpoint"


class NoDecodeEndpointError(UnavailableError):
    code = "no_decode_endpoint"


class CircuitOpenError(UnavailableError):
    """Every pod that could make this leg has failed again and again; ``seconds`` until one request may try one."""

    def __init__(self, leg: Leg, seconds: float) -> None:
        wait = max(1, math.ceil(seconds))
        super().__init__(
            f"Every {leg} pod of this model has failed again and again, so it is let be for a moment. Try again in "
            f"{wait} s.",
            code=f"{leg}_circuit_open",
        )
        self.retry_after = wait


class ShuttingDownError(UnavailableError):
    code = "shutting_down"
    retry_after = 1


class LegFailedError(RouterError):
    """One engine call failed before the client got a byte.

    ``retryable``: another pod may well succeed. ``unreachable``: the pod itself is in doubt, avoid it for a moment.
    ``same_pod``: the pod is not to blame and may be tried again. ``avoid``: so it is, but another one would be better.
    """

    status = 502
    code = "engine_error"

    def __init__(
        self,
        leg: Leg,
        message: str,
        *,
        code: str | None = None,
        retryable: bool = False,
        unreachable: bool = False,
        same_pod: bool = False,
        avoid: bool = False,
    ) -> None:
        super().__init__(sanitise(message), code=code)
        self.leg = leg
        self.retryable = retryable
        self.same_pod = same_pod
        self.avoid = avoid
        self.pod: str | None = None  # uid, filled in where it is known; never shown
        self.unreachable = unreachable
        if unreachable:
            self.status, self.retry_after = 503, 1


class HandoverIncompleteError(LegFailedError):
    """The prefill's answer lacks what the decoder needs; decoding without it would give a silently wrong answer."""

    def __init__(self, missing: tuple[str, ...]) -> None:
        super().__init__(
            "prefill",
            f"The prefill engine's answer lacks {', '.join(missing)}; the request was stopped before decoding.",
            code="handover_incomplete",
            retryable=True,
        )


class UnsayableAnswerError(RouterError):
    """The answer is right, and the API that the client speaks has no form for it."""

    status = 502
    code = "unsayable_answer"


class StreamCutError(RouterError):
    status = 502
    code = "stream_interrupted"


class ResumeMismatchError(StreamCutError):
    """Going on with the KV of another prompt would give a silently wrong answer."""

    code = "resume_mismatch"

    def __init__(self) -> None:
        super().__init__(
            "The answer broke off and cannot be continued: its prompt is no longer the same for the engines. Try again."
        )


class PhaseTimeoutError(RouterError):
    """``phase``: prefill, kv_load, first_token, inter_token or request."""

    status = 504

    def __init__(self, phase: str, seconds: float) -> None:
        super().__init__(
            f"The engine did not answer within {seconds:g} s (phase: {phase}). Try again, or ask for fewer tokens.",
            code=f"{phase}_timeout",
        )
        self.phase = phase
        self.pod: str | None = None  # uid, as of a failed leg
        self.counted = False  # in the metrics: it may be raised again once nothing else helps


class InternalError(RouterError):
    def __init__(self) -> None:
        super().__init__("The router failed unexpectedly; its log has the details under this request's id.")


class ClientGoneError(RouterError):
    status = 499
    code = "client_gone"

    def __init__(self) -> None:
        super().__init__("The client left before the answer was complete.")
