"""What makes two requests alike, so that they had better meet the same prefill pod's prefix cache. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from sunfleet_router.bodies.longtext import LongText, dumps

_BYTES: Final = 4096  # of a beginning that count
_IDS: Final = 1024  # token ids


def beginning(body: Mapping[str, Any]) -> str:
    """A chat up to its first user's message, which later turns repeat; a prompt's head; "" where there is none."""
    messages = body.get("messages")
    if isinstance(messages, list):
        first = next((at for at, one in enumerate(messages) if one.get("role") == "user"), 0)
        return dumps(messages[: first + 1])[:_BYTES].decode(errors="replace")
    prompt = body.get("prompt")
    if isinstance(prompt, LongText):
        return prompt.beginning(_BYTES)
    return prompt[:_BYTES] if isinstance(prompt, str) else repr(prompt[:_IDS]) if isinstance(prompt, list) else ""
