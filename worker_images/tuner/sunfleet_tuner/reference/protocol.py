"""Requests and answers of the reference server: one JSON object a line, in and out, in order."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, ConfigDict, Field, model_validator

from sunfleet_tuner.reference.generate import Answer, Sampling
from sunfleet_tuner.reference.modules import Modules, ModuleSpec
from sunfleet_tuner.reference.score import Scores


class Request(BaseModel):
    """A prompt in one of three forms, the prefill module to read it, and how to continue.

    With ``served`` the answer is not made but judged: these are its tokens.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")
    module: ModuleSpec = ModuleSpec()
    prompt_token_ids: list[int] | None = None
    prompt: str | None = None
    messages: list[dict[str, str]] | None = None
    sampling: Sampling = Sampling()
    served: list[int] | None = None

    @model_validator(mode="after")
    def _one_prompt(self) -> Request:
        if sum(form is not None for form in (self.prompt_token_ids, self.prompt, self.messages)) != 1:
            raise ValueError("give exactly one of prompt_token_ids, prompt and messages")
        return self


class Response(BaseModel):
    """The answer with the prompt's ids, so that a test can send the very same ones; or ``error`` and nothing else.

    Of a served answer: its text, and the fields of :class:`~sunfleet_tuner.reference.score.Scores`.
    """

    model_config = ConfigDict(frozen=True, ser_json_inf_nan="constants")
    prompt_token_ids: list[int] = Field(default_factory=list)
    token_ids: list[int] = Field(default_factory=list)
    text: str = ""
    finish_reason: str = ""
    logprobs: list[float] = Field(default_factory=list)
    margins: list[float] = Field(default_factory=list)
    runners_up: list[int] = Field(default_factory=list)
    gaps: list[float] = Field(default_factory=list)
    error: str = ""


def respond(modules: Modules, line: str) -> Response:
    """Answer one request line. A wrong request gets its error as an answer, so that the server goes on."""
    try:
        request = Request.model_validate_json(line)
        prompt = _prompt_ids(modules, request)
        result, tokens = _result(modules, request, prompt)
    except (ValueError, OSError) as error:  # pydantic's, an empty prompt, a folder that is not there
        return Response(error=f"{type(error).__name__}: {error}")
    fields: dict[str, Any] = vars(result)
    return Response(prompt_token_ids=prompt, text=modules.text(tokens), **fields)


def _result(modules: Modules, request: Request, prompt: list[int]) -> tuple[Answer | Scores, list[int]]:
    """With the tokens of the answer."""
    if request.served is not None:
        return modules.score(request.module, prompt, request.served, request.sampling), request.served
    answer = modules.answer(request.module, prompt, request.sampling)
    return answer, answer.token_ids


def _prompt_ids(modules: Modules, request: Request) -> list[int]:
    if request.messages is not None:
        return modules.prompt_ids(request.messages)
    if request.prompt is not None:
        ids: list[int] = modules.tokenizer.encode(request.prompt)
        return ids
    return request.prompt_token_ids or []
