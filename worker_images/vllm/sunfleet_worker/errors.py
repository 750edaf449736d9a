"""Errors of this room.

StartupError        the pod cannot start: settings or image are wrong; printed without a traceback, exit code 2
RequestError        one request is answered with an OpenAI error object
 +- RefusedError         400: the request can never work here
 +- KeyMissingError      401: it does not show this fleet's key
 +- UnavailableError     503: the engine ended it or will not take it; another pod may serve it
"""

from __future__ import annotations

from http import HTTPStatus
from typing import Any, Final

# Reasons with which the scheduler itself ends a request; they are the ``code`` of the error that a client sees.
PREEMPTED: Final = "sun_preempted"
GUARD: Final = "sun_prompt_not_transferred"
KV_LOAD_FAILED: Final = "sun_kv_load_failed"
GRAMMAR_REJECTED_SEED: Final = "sun_grammar_rejected_seed"
DRAINING: Final = "sun_draining"
NOT_READY: Final = "sun_not_ready"
ADAPTER_NOT_LOADED: Final = "sun_adapter_not_loaded"

CODE_PREFIX: Final = "sun_"

_MESSAGES: Final = {
    PREEMPTED: "The decode pod ran out of KV blocks and gave this request up. Prefill it again and resume.",
    GUARD: (
        "The prompt's KV is not on this decode pod, and a decode pod never computes a prompt. "
        "Prefill the request again and hand it over."
    ),
    KV_LOAD_FAILED: "The prompt's KV could not be read from the prefill pod. Prefill the request again.",
    GRAMMAR_REJECTED_SEED: "The tokens generated so far do not fit the request's structured-output grammar.",
    DRAINING: "This pod is shutting down and takes no new requests.",
    ADAPTER_NOT_LOADED: "This pod has not loaded the adapter that the request names; another one of its pool may have.",
    NOT_READY: "This pod has not passed its self-check and takes no requests; GET /sunfleet/readyz says why.",
}


class StartupError(Exception):
    """The worker's settings, weights or image do not allow a start; the message says what to change."""


class RequestError(Exception):
    """One request's failure, as an OpenAI error object."""

    status: HTTPStatus
    kind: str

    def __init__(self, message: str, *, code: str, param: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.code = code
        self.param = param

    def body(self) -> dict[str, Any]:
        """``{"error": {...}}`` as the OpenAI API shapes it."""
        return {"error": {"message": self.message, "type": self.kind, "param": self.param, "code": self.code}}


class RefusedError(RequestError):
    """The request can never work on this pod (400)."""

    status = HTTPStatus.BAD_REQUEST
    kind = "invalid_request_error"


class KeyMissingError(RequestError):
    """Whoever asks does not show this fleet's key (401)."""

    status = HTTPStatus.UNAUTHORIZED
    kind = "authentication_error"


class UnavailableError(RequestError):
    """The request may work elsewhere or later (503)."""

    status = HTTPStatus.SERVICE_UNAVAILABLE
    kind = "service_unavailable"


def ended_by_engine(code: str) -> UnavailableError:
    """The error for a request that the scheduler ended with reason ``code``."""
    return UnavailableError(_MESSAGES.get(code, f"The engine ended this request ({code})."), code=code)
