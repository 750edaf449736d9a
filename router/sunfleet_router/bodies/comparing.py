"""Whether an answer that was made again on another path is the answer that the client got. Pure.

Only requests whose next token is the most probable one, and nothing else, can be compared: no temperature, nothing that
shifts probabilities. Two correct engines may still differ where two tokens are about equally probable, since the shape
of a batch changes the rounding; how close they were is in the second answer's log-probabilities.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, Literal

from sunfleet_router.bodies.clientbody import Ask

Outcome = Literal["match", "near_tie", "mismatch", "failed", "skipped"]

# Alternatives to ask for: of two tokens that are about equally probable both are among the best.
ALTERNATIVES: Final = 5
# What makes a token's reported probability another than the one by which it was chosen, with the value that does not.
_SHIFTING: Final[Mapping[str, Any]] = {
    "presence_penalty": 0, "frequency_penalty": 0, "repetition_penalty": 1, "min_tokens": 0, "logit_bias": None,
    "allowed_token_ids": None, "bad_words": None, "structured_outputs": None, "response_format": None,
}  # fmt: skip
_FREE_CHOICE: Final = (None, "auto", "none")
# Of the client's wishes, those about the form of its stream.
_FORM: Final = ("stream_options", "stream_interval", "return_token_ids")


@dataclass(frozen=True, slots=True)
class Comparison:
    """``position``: of the first token that differs. ``gap``: how much more probable the second answer's token is there
    than the first answer's, in nats; ``None`` when that is not among its best.
    """

    outcome: Outcome
    position: int | None = None
    gap: float | None = None


def comparable(ask: Ask) -> bool:
    """Whether the tokens of this request's answer are determined by its prompt."""
    body = ask.body
    if body.get("temperature") != 0 or body.get("tool_choice") not in _FREE_CHOICE:
        return False
    return all(body.get(name) in (None, neutral) for name, neutral in _SHIFTING.items())


def again(ask: Ask) -> Ask:
    """The same request, streamed and with log-probabilities."""
    body = {name: value for name, value in ask.body.items() if name not in _FORM} | {"stream": True}
    if ask.kind == "chat":
        body |= {"logprobs": True, "top_logprobs": max(body.get("top_logprobs") or 0, ALTERNATIVES)}
    else:
        body["logprobs"] = max(body.get("logprobs") or 0, ALTERNATIVES)
    return replace(ask, body=body, stream=True, include_usage=False, continuous_usage=False)


def compare(
    first: Sequence[int], second: Sequence[int], rows: Mapping[str, Sequence[Any]], *, near_tie: float
) -> Comparison:
    """``rows`` are the log-probabilities of ``second`` (``Told.rows``); up to ``near_tie`` nats either token is right,
    and what comes after it cannot be compared.
    """
    for position, (told, made) in enumerate(zip(first, second, strict=False)):
        if told != made:
            gap = _gap(rows, position, told)
            tied = gap is not None and gap <= near_tie
            return Comparison("near_tie" if tied else "mismatch", position, gap)
    if len(first) != len(second):
        return Comparison("mismatch", min(len(first), len(second)))
    return Comparison("match")


def _gap(rows: Mapping[str, Sequence[Any]], position: int, token: int) -> float | None:
    ids, values = rows["token_ids"][position], rows["logprobs"][position]
    probable = dict(zip(ids, values, strict=True))
    return float(probable[ids[0]] - probable[token]) if token in probable else None
