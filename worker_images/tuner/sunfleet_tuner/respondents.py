"""Who answers lm-eval: a pair along the reference path, or a task of a fleet over the OpenAI API."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from sunfleet_tuner.errors import TuningError
from sunfleet_tuner.harness import Turns, cut, options_of
from sunfleet_tuner.reference import Modules, ModuleSpec, Sampling


class PairRespondent:
    """``context`` is the prompt, which the prefill module reads; the decoder writes or judges all but the first token.

    ``chat``: texts come out of the template, which writes the special tokens of a prompt itself.
    """

    parallel = 1  # one model in memory

    def __init__(self, modules: Modules, spec: ModuleSpec, *, chat: bool = False) -> None:
        self._modules, self._spec, self._chat = modules, spec, chat

    def render(self, turns: Turns, *, opened: bool) -> str:
        """Through the tokenizer's template."""
        text: str = self._modules.tokenizer.apply_chat_template(
            list(turns), tokenize=False, add_generation_prompt=opened, continue_final_message=not opened
        )
        return text

    def generate(self, context: str, options: Mapping[str, Any]) -> str:
        """Greedy."""
        limit, stops = options_of(options)
        answer = self._modules.answer(self._spec, self._prompt(context), Sampling(max_tokens=limit))
        return cut(self._modules.text(answer.token_ids), stops)

    def loglikelihood(self, context: str, continuation: str) -> tuple[float, bool]:
        """Of all tokens of ``continuation``, as if they had been answered."""
        ids = self._modules.tokenizer.encode(continuation, add_special_tokens=False)
        scores = self._modules.score(self._spec, self._prompt(context), ids, Sampling(max_tokens=len(ids)))
        return sum(scores.logprobs), not any(scores.gaps)

    def _prompt(self, context: str) -> list[int]:
        tokenizer = self._modules.tokenizer
        ids: list[int] = tokenizer.encode(context, add_special_tokens=not self._chat)
        # Text without a context is judged from its beginning, after the token that begins texts, or else ends them.
        start = tokenizer.eos_token_id if tokenizer.bos_token_id is None else tokenizer.bos_token_id
        return ids or [start]


class FleetRespondent:
    """Contexts are texts for ``/v1/completions``; of chats, the JSON of their turns for ``/v1/chat/completions``."""

    def __init__(self, client: Any, model: str, *, chat: bool = False, parallel: int = 1) -> None:
        """``client``: an ``openai.OpenAI`` of the router."""
        self._client, self._model, self._chat, self.parallel = client, model, chat, parallel

    def render(self, turns: Turns, *, opened: bool) -> str:  # noqa: ARG002 - the last turn's role says it
        """As JSON: the template is the fleet's."""
        return json.dumps(list(turns))

    def generate(self, context: str, options: Mapping[str, Any]) -> str:
        """Greedy; stop strings end the answer in the fleet already."""
        from openai import OpenAIError  # noqa: PLC0415 - slow to import, and pairs in memory need none

        limit, stops = options_of(options)
        asked: dict[str, Any] = {"model": self._model, "max_tokens": limit, "temperature": 0}
        if stops:
            asked["stop"] = stops
        try:
            if not self._chat:
                return cut(self._client.completions.create(prompt=context, **asked).choices[0].text, stops)
            turns = json.loads(context)
            if turns[-1]["role"] == "assistant":
                asked["extra_body"] = {"add_generation_prompt": False, "continue_final_message": True}
            message = self._client.chat.completions.create(messages=turns, **asked).choices[0].message
        except OpenAIError as error:
            raise TuningError(f"the fleet did not answer for model {self._model}: {error}") from error
        return cut(message.content or "", stops)

    def loglikelihood(self, context: str, continuation: str) -> tuple[float, bool]:  # noqa: ARG002
        """A shared decoder never has the prompt's logits."""
        raise TuningError(
            "a task asks for the probability of given answers, which no fleet tells: measure the pair with --decoder, "
            "or choose a task that generates"
        )
