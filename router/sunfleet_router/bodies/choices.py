"""A request for several answers as single ones, and their answers as one. Pure.

An engine makes one answer for each hand-over, so ``n`` answers to each prompt of a batch are as many pairs of legs.
They are numbered prompt by prompt, as the engine numbers them: the answers to the second of two prompts with ``n`` = 3
are 3, 4 and 5.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import orjson

from sunfleet_router.bodies import sse
from sunfleet_router.bodies.clientbody import Ask, check
from sunfleet_router.errors import InvalidRequestError

_OF_MANY = ("n", "best_of")
_OF_PROMPT = ("prompt_tokens", "prompt_tokens_details")


def split(ask: Ask, most: int) -> list[Ask]:
    """One request for each answer; raises :class:`InvalidRequestError` for more than ``most`` of them."""
    if ask.answers > most:
        name = "n" if ask.n > 1 else "prompt"
        raise InvalidRequestError(
            f"The request asks for {ask.answers} answers (prompts x 'n'); at most {most} are made for one request.",
            param=name,
        )
    batch = ask.body["prompt"] if ask.prompts > 1 else ()
    prompts = [_with_prompt(ask, prompt) for prompt in batch] or [ask]
    return [_numbered(prompt, number) for prompt in prompts for number in range(ask.n)]


def _with_prompt(ask: Ask, prompt: object) -> Ask:
    one = check(ask.kind, {**ask.body, "prompt": prompt}, ask.size // ask.prompts)
    return replace(one, priority=ask.priority)


def _numbered(ask: Ask, number: int) -> Ask:
    """The request for answer ``number`` of a prompt: with a seed of its own, as the engine derives it."""
    body = {name: value for name, value in ask.body.items() if name not in _OF_MANY}
    seed = body.get("seed")
    if isinstance(seed, int):
        body["seed"] = seed + number
    return replace(ask, body=body, n=1, prompts=1)


class Together:
    """Puts the answers to the parts of one request together; ``n`` answers belong to each prompt."""

    def __init__(self, n: int) -> None:
        self._n = n
        self._usages: dict[int, Mapping[str, Any]] = {}
        self._last: dict[str, Any] = {}  # a usage event
        self._created: int | None = None

    def events(self, index: int, events: bytes) -> bytes:
        """Some whole events of answer ``index`` as the client gets them: numbered, without usage event and end mark."""
        return b"".join(self._told(index, data) for data in sse.data(events))

    def ending(self) -> bytes:
        """What ends the stream: the usage of all, if the parts told theirs, and the end mark."""
        if not self._usages:
            return sse.DONE + b"\n\n"
        return _event({**self._last, "usage": self.usage()}) + sse.DONE + b"\n\n"

    def whole(self, bodies: Sequence[bytes]) -> bytes:
        """One body of all, in the order of their numbers."""
        answers = [orjson.loads(body) for body in bodies]
        self._usages = {index: answer.get("usage") or {} for index, answer in enumerate(answers)}
        first = answers[0]
        choices = [
            {**choice, "index": index} for index, answer in enumerate(answers) for choice in answer.get("choices", ())
        ]
        return orjson.dumps({**first, "id": _common_id(first.get("id"), 0), "choices": choices, "usage": self.usage()})

    def usage(self) -> dict[str, Any]:
        """Each prompt counts once, however many answers it got."""
        total: dict[str, Any] = {}
        for index, usage in sorted(self._usages.items()):
            counted = {name: value for name, value in usage.items() if index % self._n == 0 or name not in _OF_PROMPT}
            total = _added(total, counted)
        total["total_tokens"] = total.get("prompt_tokens", 0) + (total.get("completion_tokens") or 0)
        return total

    def _told(self, index: int, data: bytes) -> bytes:
        try:
            chunk = orjson.loads(data)
        except orjson.JSONDecodeError:  # the end mark
            return b""
        self._created = self._created or chunk.get("created")
        chunk |= {"id": _common_id(chunk.get("id"), index), "created": self._created}
        if not chunk.get("choices"):
            self._usages[index], self._last = chunk.get("usage") or {}, chunk
            return b""
        for choice in chunk["choices"]:
            choice["index"] = index
        return _event(chunk)


def part_id(request_id: str, index: int) -> str:
    """The id under which answer ``index`` of a request goes to the engines."""
    return f"{request_id}-{index}"


def _common_id(answer_id: object, index: int) -> object:
    return answer_id.removesuffix(f"-{index}") if isinstance(answer_id, str) else answer_id


def _event(chunk: Mapping[str, Any]) -> bytes:
    return b"data: " + orjson.dumps(chunk) + b"\n\n"


def _added(one: Mapping[str, Any], other: Mapping[str, Any]) -> dict[str, Any]:
    """Numbers added, objects number by number; what only one of them has stays."""
    total = dict(one)
    for name, value in other.items():
        before = total.get(name)
        if isinstance(value, dict) and isinstance(before, dict):
            total[name] = _added(before, value)
        elif isinstance(value, int) and isinstance(before, int):
            total[name] = before + value
        elif value is not None:
            total[name] = value
    return total
