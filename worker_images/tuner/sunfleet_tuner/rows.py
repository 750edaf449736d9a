"""Turns records into rows of token ids, exactly as serving will see them.

Three forms are known: ``messages`` (a chat; one row per assistant turn, everything before it is prompt),
``prompt``/``completion`` as messages (one row), and ``prompt``/``completion`` as text. ``tools`` beside messages go
through the model's template. All are put as the engine puts requests (:mod:`.served`).
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from jinja2 import TemplateError

from sunfleet_tuner.data import Row
from sunfleet_tuner.errors import InvalidData
from sunfleet_tuner.served import Message, messages_of, tools_of
from sunfleet_tuner.sources import Record

Format = Literal["auto", "chat", "text"]


@dataclass
class Rows:
    """Rows of a dataset in training and validation, and how many were left out and why."""

    training: list[Row] = field(default_factory=list)
    validation: list[Row] = field(default_factory=list)
    dropped: Counter[str] = field(default_factory=Counter)


class Tokens:
    """A tokenizer as serving uses it: chats through the template, texts with the special tokens of a prompt."""

    def __init__(self, tokenizer: Any, stops: Iterable[int] = ()) -> None:
        """``stops``: token ids that end an answer beside the tokenizer's own."""
        self._tokenizer = tokenizer
        self._stops = {*stops, tokenizer.eos_token_id}

    def chat(self, before: Sequence[Message], answer: Message, tools: Sequence[Any] | None = None) -> Row:
        """The row whose prompt is ``before`` with the assistant's turn opened, and whose response is ``answer``."""
        prompt = self._render(before, tools, add_generation_prompt=True)
        whole = self._render([*before, answer], tools, add_generation_prompt=False)
        if not whole.startswith(prompt):
            raise ValueError(
                "the chat template writes an assistant turn that does not begin as the opened turn does, so no answer "
                f"could be tuned: {whole[-200:]!r} against {prompt[-200:]!r}"
            )
        return Row(self._plain(prompt), self._closed(self._plain(whole[len(prompt) :])))

    def text(self, prompt: str, completion: str) -> Row:
        """The row of a text completion."""
        return Row(tuple(self._tokenizer.encode(prompt)), self._closed(self._plain(completion)))

    def _render(self, messages: Sequence[Message], tools: Sequence[Any] | None, **options: Any) -> str:
        text: str = self._tokenizer.apply_chat_template(list(messages), tools=tools, tokenize=False, **options)
        return text

    def _plain(self, text: str) -> tuple[int, ...]:
        return tuple(self._tokenizer.encode(text, add_special_tokens=False))

    def _closed(self, response: tuple[int, ...]) -> tuple[int, ...]:
        """Up to the first token that ends an answer: what a template puts behind it, no model ever writes."""
        end = next((place for place, token in enumerate(response) if token in self._stops), None)
        return response[: end + 1] if end is not None else (*response, self._tokenizer.eos_token_id)


def rows_of(record: Record, tokens: Tokens, form: Format = "auto") -> Iterator[Row]:
    """Rows of one record; ValueError says what is wrong with it."""
    if "messages" in record and form != "text":
        messages = messages_of(record["messages"])
        turns = [place for place, message in enumerate(messages) if message["role"] == "assistant" and place > 0]
        if not turns:
            raise ValueError("no assistant turn after another message")
        for place in turns:
            yield tokens.chat(messages[:place], messages[place], tools_of(record.get("tools")))
        return
    missing = [name for name in ("prompt", "completion") if name not in record]
    if missing:
        raise ValueError(f"no field {' and '.join(missing)}; there are {', '.join(sorted(record)) or 'none'}")
    prompt, completion = record["prompt"], record["completion"]
    if isinstance(prompt, str) and isinstance(completion, str):
        if form == "chat":
            question, answer = {"role": "user", "content": prompt}, {"role": "assistant", "content": completion}
            yield tokens.chat([question], answer, tools_of(record.get("tools")))
        else:
            yield tokens.text(prompt, completion)
        return
    answer_turns = messages_of(completion)
    if form == "text" or len(answer_turns) != 1:
        raise ValueError("completion has to be text, or one assistant message after a prompt of messages")
    yield tokens.chat(messages_of(prompt), answer_turns[0], tools_of(record.get("tools")))


def make_rows(
    data: Iterable[Record],
    tokens: Tokens,
    *,
    form: Format = "auto",
    max_length: int,
    validation_percent: float = 0.0,
    seed: int = 0,
    name: str = "dataset",
) -> Rows:
    """Tokenise ``data``; rows longer than ``max_length`` tokens are left out and counted.

    A share of the records, chosen by seed and content, becomes validation: turns of one conversation, and equal
    records, stay on one side. Raises :class:`.errors.InvalidData` naming the record that cannot be used.
    """
    rows = Rows()
    made: list[tuple[int, list[Row]]] = []
    for number, record in enumerate(data):
        try:
            turns = list(rows_of(record, tokens, form))
        except (ValueError, TypeError, KeyError, TemplateError) as error:  # a record of another shape
            raise InvalidData(f"{name}, record {number}: {error}") from error
        fitting = [row for row in turns if row.length <= max_length]
        if len(fitting) < len(turns):
            rows.dropped[f"longer than {max_length} tokens"] += len(turns) - len(fitting)
        made.append((_lot(record, seed), fitting))
    held_out = _drawn({lot for lot, _ in made}, validation_percent)
    for lot, turns in made:
        (rows.validation if lot in held_out else rows.training).extend(turns)
    return rows


def _lot(record: Record, seed: int) -> int:
    """A number that follows from a record's content: equal records share one."""
    content = f"{seed}/{sorted(record.items(), key=lambda item: item[0])}".encode()
    return int.from_bytes(hashlib.sha256(content).digest()[:8])


def _drawn(lots: set[int], percent: float) -> set[int]:
    """That share of them, at least one when any are wanted and there is one to spare."""
    wanted = max(1, round(len(lots) * percent / 100)) if percent > 0 and len(lots) > 1 else 0
    return set(sorted(lots)[:wanted])
