"""Accuracy by real generation: of a pair in memory along the reference path, or of a task in a running fleet."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Final, Protocol

from sunfleet_tuner.errors import TuningError
from sunfleet_tuner.intervals import share
from sunfleet_tuner.judges import Judge
from sunfleet_tuner.reference import Modules, ModuleSpec, Sampling
from sunfleet_tuner.served import messages_of, tools_of
from sunfleet_tuner.sources import Record

# Room after the right answer: one that has not ended by then is wrong, and an untuned model would go on for long.
SPARE_TOKENS: Final = 8

Messages = Sequence[Mapping[str, Any]]


@dataclass(frozen=True)
class Question:
    """A prompt (messages, or text) and the one right answer to it; ``tools`` go with messages."""

    prompt: Messages | str
    answer: str
    tools: Sequence[Any] | None = None


@dataclass(frozen=True)
class Given:
    """An answer; ``ended`` is false when it ran into the limit of tokens."""

    text: str
    ended: bool


class Answerer(Protocol):
    """Answers one question greedily."""

    def __call__(self, question: Question) -> Given: ...


@dataclass(frozen=True)
class Score:
    """Which questions were answered right, in their order: two scores of the same questions can be paired."""

    right: tuple[bool, ...]

    @property
    def correct(self) -> int:
        return sum(self.right)

    def __str__(self) -> str:
        return share(self.correct, len(self.right))


class Pair:
    """A prefill module and a decoder in memory. ``longest``: tokens of an answer (0: the right answer's and a few)."""

    def __init__(self, modules: Modules, spec: ModuleSpec, longest: int = 0) -> None:
        self._modules, self._spec, self._longest = modules, spec, longest

    def __call__(self, question: Question) -> Given:
        modules = self._modules
        limit = self._longest or len(modules.tokenizer.encode(question.answer)) + SPARE_TOKENS
        if isinstance(question.prompt, str):
            prompt = modules.tokenizer.encode(question.prompt)
        else:
            prompt = modules.prompt_ids(question.prompt, question.tools)
        answer = modules.answer(self._spec, prompt, Sampling(max_tokens=limit))
        return Given(modules.text(answer.token_ids), answer.finish_reason == "stop")


def client_of(url: str, key: str = "none") -> Any:
    """An ``openai.OpenAI`` of the router at ``url``, with or without its ``/v1``."""
    from openai import OpenAI  # noqa: PLC0415 - slow to import, and pairs in memory need none

    base = url.rstrip("/")
    return OpenAI(base_url=base if base.endswith("/v1") else f"{base}/v1", api_key=key)


class Fleet:
    """A task behind an OpenAI API. ``longest`` as above; no tokeniser is at hand, so a byte stands for a token."""

    def __init__(self, client: Any, model: str, longest: int = 0) -> None:
        """``client``: of :func:`client_of`."""
        self._client, self._model, self._longest = client, model, longest

    def __call__(self, question: Question) -> Given:
        from openai import OpenAIError  # noqa: PLC0415

        limit = self._longest or len(question.answer.encode()) + SPARE_TOKENS
        options: dict[str, Any] = {"model": self._model, "max_tokens": limit, "temperature": 0}
        try:
            if isinstance(question.prompt, str):
                choice = self._client.completions.create(prompt=question.prompt, **options).choices[0]
                return Given(choice.text, choice.finish_reason == "stop")
            messages: Any = list(question.prompt)
            if question.tools:  # the model is told of them; a call is judged as the text that it is
                options |= {"tools": list(question.tools), "tool_choice": "none"}
            turn = self._client.chat.completions.create(messages=messages, **options).choices[0]
            return Given(turn.message.content or "", turn.finish_reason == "stop")
        except OpenAIError as error:
            raise TuningError(f"the fleet did not answer for model {self._model}: {error}") from error


def evaluate(
    answerer: Answerer,
    questions: Sequence[Question],
    judge: Judge,
    *,
    parallel: int = 1,
    on_answer: Callable[[], None] = lambda: None,
) -> Score:
    """Ask everything, ``parallel`` questions at a time; an answer that did not end is wrong."""

    def right(question: Question) -> bool:
        given = answerer(question)
        on_answer()
        return given.ended and judge(given.text, question.answer)

    if parallel == 1:
        return Score(tuple(map(right, questions)))
    with ThreadPoolExecutor(parallel) as pool:
        return Score(tuple(pool.map(right, questions)))


def questions_of(data: Iterable[Record], name: str) -> list[Question]:
    """Questions from records in the tuner's forms; of a chat the last assistant turn is the answer."""
    found = []
    for number, record in enumerate(data):
        try:
            question = _question(record)
        except ValueError as error:
            raise TuningError(f"{name}, record {number}: {error}") from error
        if question is None:
            raise TuningError(f"{name}, record {number} holds no prompt with an answer of text")
        found.append(question)
    return found


def _question(record: Record) -> Question | None:
    tools = tools_of(record.get("tools"))
    if record.get("messages"):
        messages = messages_of(record["messages"])
        turns = [place for place, turn in enumerate(messages) if turn["role"] == "assistant" and turn["content"]]
        return Question(messages[: turns[-1]], messages[turns[-1]]["content"], tools) if turns and turns[-1] else None
    prompt, answer = record.get("prompt"), record.get("completion")
    if isinstance(prompt, list):
        prompt = messages_of(prompt)
    if isinstance(answer, list):
        answer = answer[0].get("content") if len(answer) == 1 else None
    return Question(prompt, answer, tools) if prompt and isinstance(answer, str) and answer else None
