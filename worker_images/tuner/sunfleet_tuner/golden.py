"""Golden prompts: held-out prompts with the reference's own answers, chosen so that rounding cannot turn them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Final

from sunfleet_api.golden import GoldenPrompt, GoldenSet
from sunfleet_tuner.data import Row
from sunfleet_tuner.reference import Modules, ModuleSpec, Sampling

LONGEST_ANSWER: Final = 32  # tokens: enough to read the whole cache many times, and quick on a CPU
# An engine in bfloat16 moves a logit by some hundredths; an answer that hangs on less says nothing about an engine.
_SAFE_MARGIN: Final = 0.5
_TRIES: Final = 3  # prompts tried for each one wanted


def golden_prompts(modules: Modules, spec: ModuleSpec, rows: Sequence[Row], count: int, digest: str) -> GoldenSet:
    """At most ``count`` of the prompts in ``rows``, those first whose every token is a clear choice.

    ``digest`` is the decoder's. An answer is cut before its first token that is not a clear choice; prompts that begin
    with such a token are left out as long as there are others.
    """
    prompts = list(dict.fromkeys(row.prompt for row in rows))[: count * _TRIES]
    tried = [_ask(modules, spec, prompt) for prompt in prompts]
    best = sorted(tried, key=lambda golden: -min(golden.margin, _SAFE_MARGIN))[:count]
    return GoldenSet(decoder_digest=digest, prompts=tuple(best))


def write(path: Path, golden: GoldenSet) -> None:
    path.write_text(golden.model_dump_json(indent=1) + "\n")


def _ask(modules: Modules, spec: ModuleSpec, prompt: tuple[int, ...]) -> GoldenPrompt:
    answer = modules.answer(spec, prompt, Sampling(max_tokens=LONGEST_ANSWER))
    clear = next((i for i, margin in enumerate(answer.margins) if margin < _SAFE_MARGIN), len(answer.margins))
    kept = max(1, clear)
    return GoldenPrompt(
        prompt_token_ids=prompt,
        token_ids=tuple(answer.token_ids[:kept]),
        margin=round(min(answer.margins[:kept]), 3),
    )
