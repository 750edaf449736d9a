"""A pair of modules as a model of EleutherAI's lm-eval, where that is installed: its tasks along the reference path.

A fleet needs none of this: lm-eval's ``local-completions`` and ``local-chat-completions`` speak to the router.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from sunfleet_tuner.errors import TuningError
from sunfleet_tuner.reference import Modules, ModuleSpec, Sampling

_LONGEST: Final = 256  # tokens of an answer where a task names no limit: lm-eval's own default


def run_harness(modules: Modules, spec: ModuleSpec, tasks: Sequence[str], limit: int | None) -> dict[str, Any]:
    """lm-eval's ``results`` of ``tasks``, over ``limit`` rows each (None: all)."""
    try:
        import lm_eval  # noqa: PLC0415 - no dependency of the tuner
        from lm_eval.api.model import LM  # noqa: PLC0415
    except ImportError as error:
        raise TuningError("--lm-eval needs lm-eval in this environment: pip install lm-eval") from error
    harness = Harness(modules, spec)

    class Model(LM):
        """What lm-eval calls, by its names."""

        def generate_until(self, requests: Sequence[Any]) -> list[str]:
            return [harness.generate(*request.args) for request in requests]

        def loglikelihood(self, requests: Sequence[Any]) -> list[tuple[float, bool]]:
            return [harness.loglikelihood(*request.args) for request in requests]

        def loglikelihood_rolling(self, requests: Sequence[Any]) -> list[float]:
            return [harness.loglikelihood("", *request.args)[0] for request in requests]

    found: dict[str, Any] = lm_eval.simple_evaluate(model=Model(), tasks=list(tasks), limit=limit)["results"]
    return found


class Harness:
    """lm-eval's two questions, answered by a pair."""

    def __init__(self, modules: Modules, spec: ModuleSpec) -> None:
        self._modules, self._spec = modules, spec

    def generate(self, context: str, options: Mapping[str, Any]) -> str:
        """The greedy answer to ``context``, up to the first of the strings in ``until``."""
        if options.get("do_sample") or options.get("temperature"):
            raise TuningError("a task asks for sampling, and the reference answers greedily: choose another task")
        limit = int(options.get("max_gen_toks") or _LONGEST)
        answer = self._modules.answer(self._spec, self._prompt(context), Sampling(max_tokens=limit))
        text = self._modules.text(answer.token_ids)
        until = options.get("until") or []
        for stop in [until] if isinstance(until, str) else until:
            text = text.partition(stop)[0] if stop else text
        return text

    def loglikelihood(self, context: str, continuation: str) -> tuple[float, bool]:
        """Log-probability of ``continuation`` in nats, and whether it is the greedy one.

        ``context`` is the prompt, which the prefill module reads; the decoder judges all but the first token.
        """
        ids = self._modules.tokenizer.encode(continuation, add_special_tokens=False)
        scores = self._modules.score(self._spec, self._prompt(context), ids, Sampling(max_tokens=len(ids)))
        return sum(scores.logprobs), not any(scores.gaps)

    def _prompt(self, context: str) -> list[int]:
        tokenizer = self._modules.tokenizer
        ids: list[int] = tokenizer.encode(context)
        # Text without a context is judged from its beginning, after the token that begins texts, or else ends them.
        start = tokenizer.eos_token_id if tokenizer.bos_token_id is None else tokenizer.bos_token_id
        return ids or [start]
