"""OpenAI's Responses API, as vLLM serves it, without any state: ``request`` and ``items`` make a chat of a request,
``answer`` and ``stream`` a response of a chat's answer. Pure.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from sunfleet_router.dialects import Answering, Json
from sunfleet_router.dialects.responses.request import to_chat
from sunfleet_router.dialects.responses.stream import Responding
from sunfleet_router.dialects.responses.tools import names_of

_NAMES: Final = {"max_completion_tokens": "max_output_tokens", "max_tokens": "max_output_tokens", "messages": "input"}


class Responses:
    """``POST /v1/responses``."""

    def to_chat(self, request: Json) -> Json:
        return to_chat(request)

    def answering(self, request: Json, chat: Json, request_id: str) -> Answering:
        return Responding(request, chat, request_id, names_of(request))

    def refused(self, status: int, error: Mapping[str, Any]) -> Json:  # noqa: ARG002 the same shape for all
        """OpenAI's error object, with the field as this API names it."""
        param = error.get("param")
        return {"error": {**error, "param": _NAMES.get(param, param) if isinstance(param, str) else param}}
