"""Golden prompts of fake engines: what a module has to answer, as the ConfigMap that a task names."""

from __future__ import annotations

from sunfleet_api.golden import GOLDEN_FILE, GoldenPrompt, GoldenSet
from sunfleet_fakes.engine.tokens import expected_tokens, tokenize
from support.kubectl import Json
from support.served import ANSWER_TOKENS

_PROMPTS = ("one two three", "four five")
_TOKENS = 5
PROMPTS = len(_PROMPTS)


def golden_prompts(module: str, decoder: str) -> str:
    """Contents of golden.json; module and decoder are identities of fake engines."""
    prompts = []
    for text in _PROMPTS:
        ids = tuple(tokenize(text))
        answer = expected_tokens(module, decoder, ids, answer_tokens=ANSWER_TOKENS, max_tokens=_TOKENS)
        prompts.append(GoldenPrompt(prompt_token_ids=ids, token_ids=tuple(answer)))
    return GoldenSet(prompts=tuple(prompts)).model_dump_json()


def golden_map(name: str, module: str, decoder: str) -> Json:
    """A ConfigMap with the answers of this module over this decoder."""
    data = {GOLDEN_FILE: golden_prompts(module, decoder)}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": data}


def asking(config_map: str) -> Json:
    """``spec.verification`` that asks for it."""
    return {"goldenPrompts": {"configMapRef": {"name": config_map}}}
