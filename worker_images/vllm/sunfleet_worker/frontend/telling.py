"""Which output tokens a stream has told, and which of its events a resumed stream leaves out.

The stock stream generators pull one engine output, write at most one event for it and pull the next; only before the
first does the chat's write an event of its own (the role). That one is called forth by an output without content, so
the rule holds from the first token on: an event tells all tokens that were pulled and not yet told. ``created`` is of
the stream's first pod.
"""

from __future__ import annotations

import copy
import re
from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence
from typing import Any, Final

from sunfleet_api import wire
from sunfleet_worker.handover import LOWEST_LOGPROB, SeedLogprobs, told_of, wants_progress

# A quote inside a JSON string is escaped, so the first match is the field itself.
_CREATED: Final = re.compile(r'"created":\s*\d+')


class Telling:
    """The record of one stream."""

    def __init__(self, params: Mapping[str, Any] | None, alternatives: int | None) -> None:
        """Read a decode leg's ``kv_transfer_params``.

        Args:
            params: of the request.
            alternatives: how many log-probabilities beside the sampled token's were asked for; ``None`` without any.
        """
        self._progress = wants_progress(params)
        self._told = told_of(params)
        self._created = (params or {}).get(wire.KEY_CREATED) if self._told is not None else None
        self._alternatives = alternatives
        self._pulled = 0
        self._pending: list[int] = []
        self._rows = SeedLogprobs([], [], [])
        self._over = False

    async def over(self, source: AsyncIterator[Any]) -> AsyncGenerator[Any, None]:
        """The engine's outputs, alone or as ``(index of the prompt, output)``, on their way to the stock generator."""
        begun = not (self._progress or self._told is not None)
        try:
            async for item in source:
                if not begun:
                    begun = True
                    yield _without_content(item)
                self._pull(item)
                yield item
        finally:
            self._over = True

    def _pull(self, item: Any) -> None:
        for completion in _result(item).outputs:
            ids = list(completion.token_ids)
            self._pulled += len(ids)
            self._pending += ids
            if self._alternatives is not None:
                for token, entry in zip(ids, completion.logprobs or (), strict=True):
                    add_row(self._rows, token, entry, self._alternatives)

    def write(self, event: str) -> str | None:
        """The event as it goes out, or ``None`` when the stream's first pod has written it."""
        told, rows = tuple(self._pending), self._rows
        self._pending, self._rows = [], SeedLogprobs([], [], [])
        if self._told is not None and not self._over and self._pulled <= self._told:
            return None
        if self._created is not None:
            event = _CREATED.sub(f'"created":{self._created}', event, count=1)
        if not (self._progress and told):
            return event
        logprobs = None if self._alternatives is None else rows.to_wire()
        return wire.Progress(told, logprobs).to_line().decode() + event


def add_row(rows: SeedLogprobs, token: int, entry: Mapping[int, Any], alternatives: int) -> None:
    """Append what the engine had reported for ``token`` before it merged the alternatives into a mapping.

    Args:
        rows: where to append.
        token: the sampled one.
        entry: log-probability objects by token id, as the engine's outputs hold them.
        alternatives: how many were asked for; -1 for the whole vocabulary.
    """
    others: Sequence[tuple[int, Any]] = sorted(entry.items(), key=lambda item: item[1].rank)
    if len(entry) == alternatives + 1:  # the sampled token is not among them
        others = [item for item in entry.items() if item[0] != token]
    row = [(token, entry[token]), *others]
    rows.token_ids.append([alternative for alternative, _ in row])
    rows.logprobs.append([max(value.logprob, LOWEST_LOGPROB) for _, value in row])
    rows.ranks.append(entry[token].rank)


def _result(item: Any) -> Any:
    return item[1] if isinstance(item, tuple) else item


def _without_content(item: Any) -> Any:
    empty = copy.copy(_result(item))
    empty.outputs = []
    return (item[0], empty) if isinstance(item, tuple) else empty
