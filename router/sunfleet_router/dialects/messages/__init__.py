"""Anthropic's Messages API, as vLLM serves it: ``request`` makes a chat of a request, ``answer`` a message of a chat's.

Pure.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from sunfleet_router.dialects import Answering, Json
from sunfleet_router.dialects.messages.answer import Message
from sunfleet_router.dialects.messages.request import to_chat

_TYPES: Final = {
    400: "invalid_request_error",
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    405: "invalid_request_error",
    413: "request_too_large",
    422: "invalid_request_error",
    429: "rate_limit_error",
    503: "overloaded_error",
    504: "timeout_error",
}


class Messages:
    """``POST /v1/messages``."""

    def to_chat(self, request: Json) -> Json:
        return to_chat(request)

    def answering(self, request: Json, chat: Json, request_id: str) -> Answering:  # noqa: ARG002 needs neither
        return Message(request_id, refused)

    def refused(self, status: int, error: Mapping[str, Any]) -> Json:
        return refused(status, error)


def refused(status: int, error: Mapping[str, Any]) -> Json:
    """Anthropic's error object; the router's code and the field's name stand beside its own fields."""
    extra = {name: error[name] for name in ("code", "param") if error.get(name) is not None}
    told = {"type": _TYPES.get(status, "api_error"), "message": error.get("message", "")}
    return {"type": "error", "error": told | extra}
