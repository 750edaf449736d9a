"""What the prefill leg gave: the whole answer, and in it the hand-over to a decoder. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from sunfleet_router.bodies.clientbody import Ask
from sunfleet_router.bodies.tokenids import TokenIds


@dataclass(slots=True)  # not frozen, see Ask
class PrefillReply:
    """What the prefill leg gave: the whole answer, and the parts of the hand-over."""

    answer: dict[str, Any]
    prompt: TokenIds
    output: list[int]  # the first token
    transfer: Mapping[str, Any]
    finish_reason: str | None

    def finished(self, ask: Ask, max_model_len: int | None) -> bool:
        """Whether the first token already is the whole answer, so that nothing is left to decode."""
        if ask.output_limit == 1:
            return True
        if self.finish_reason != "length":
            return True
        return max_model_len is not None and self.prompt.count + len(self.output) >= max_model_len
