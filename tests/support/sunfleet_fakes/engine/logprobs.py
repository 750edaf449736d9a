"""Log-probabilities that say which token they belong to. Pure.

Rows have the shape of ``wire.KEY_OUTPUT_LOGPROBS``: of each token the sampled one first, then the alternatives.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from sunfleet_fakes.engine import tokens

Rows = dict[str, list[Any]]


def of_token(token: int) -> float:
    """The log-probability of a token: a different one for nearly every token."""
    return -(token % 9973) / 1000


def rows(new: Sequence[int], alternatives: int) -> Rows:
    """Rows of some tokens."""
    ids = [[token + offset for offset in range(alternatives + 1)] for token in new]
    return {
        "token_ids": ids,
        "logprobs": [[of_token(token) for token in row] for row in ids],
        "ranks": [1 for _ in new],
    }


def are_of(given: Mapping[str, Any] | None, output: Sequence[int]) -> bool:
    """Whether there is exactly one row for each token, in order."""
    if given is None or given.keys() != {"token_ids", "logprobs", "ranks"}:
        return False
    lengths = {len(part) for part in given.values()}
    return lengths == {len(output)} and [row[0] for row in given["token_ids"]] == list(output)


def for_chat(part: Rows) -> dict[str, Any]:
    """The ``logprobs`` of a chat's choice."""
    return {"content": [_entry(ids, values) for ids, values in zip(part["token_ids"], part["logprobs"], strict=True)]}


def for_completion(part: Rows, offset: int) -> dict[str, Any]:
    """The ``logprobs`` of a completion's choice; ``offset``: characters of the text before."""
    texts = [tokens.token_text(row[0]) for row in part["token_ids"]]
    offsets = [offset + sum(map(len, texts[:at])) for at in range(len(texts))]
    tops = [
        {tokens.token_text(token): value for token, value in zip(ids[1:], values[1:], strict=True)}
        for ids, values in zip(part["token_ids"], part["logprobs"], strict=True)
    ]
    values = [row[0] for row in part["logprobs"]]
    return {"tokens": texts, "token_logprobs": values, "top_logprobs": tops, "text_offset": offsets}


def _entry(ids: Sequence[int], values: Sequence[float]) -> dict[str, Any]:
    pairs = [
        {"token": tokens.token_text(token), "logprob": value, "bytes": None}
        for token, value in zip(ids, values, strict=True)
    ]
    return {**pairs[0], "top_logprobs": pairs[1:]}
