"""Runs where llmcompressor is, and imports nothing of Sunfleet: a JSON job on standard input, a checkpoint out."""

from __future__ import annotations

import json
import re
import sys
from typing import Any, Final

# What comes out of these layers is cached (keys and values, or what they are made of), whole or in part.
_CACHED: Final = re.compile(r"\b(k_proj|v_proj|qkv_proj|kv_a_layernorm|query_key_value)\$?$")


def main() -> None:
    """Quantise the linear layers of ``base`` with GPTQ or AWQ and write a compressed-tensors checkpoint."""
    job: dict[str, Any] = json.load(sys.stdin)
    from datasets import Dataset  # noqa: PLC0415 - seconds to import, after the job was read
    from llmcompressor import oneshot  # noqa: PLC0415
    from transformers import AutoModelForCausalLM, AutoTokenizer  # noqa: PLC0415

    pin_nothing_without_an_accelerator()
    model = AutoModelForCausalLM.from_pretrained(job["base"], dtype="auto")
    tokenizer = AutoTokenizer.from_pretrained(job["base"])
    rows = [{"input_ids": row, "attention_mask": [1] * len(row)} for row in job["rows"]]
    oneshot(
        model=model, tokenizer=tokenizer, dataset=Dataset.from_list(rows), recipe=recipe(job, model),
        max_seq_length=job["max_length"], num_calibration_samples=len(rows),
    )  # fmt: skip
    model.save_pretrained(job["target"], save_compressed=True)
    tokenizer.save_pretrained(job["target"])


def pin_nothing_without_an_accelerator() -> None:
    """Let AWQ run on CPUs.

    llmcompressor pins what it remembers of activations, whatever device the model is on. Pinning only makes copies to
    an accelerator faster; torch refuses it where there is none, or no driver.
    """
    import torch  # noqa: PLC0415 - seconds to import
    from llmcompressor.pipelines.cache import IntermediatesCache  # noqa: PLC0415

    if not torch.accelerator.is_available():
        IntermediatesCache.pin_memory = lambda *_, **__: None


def recipe(job: dict[str, Any], model: Any) -> list[Any]:
    """llmcompressor's modifiers on the grid of the job; the head stays as it is."""
    weights = {
        "num_bits": job["bits"], "type": "int", "symmetric": True, "strategy": "group", "group_size": job["group_size"],
    }  # fmt: skip
    options = {"config_groups": {"group_0": {"targets": ["Linear"], "weights": weights}}, "ignore": ["lm_head"]}
    if job["method"] == "gptq":
        from llmcompressor.modifiers.gptq import GPTQModifier  # noqa: PLC0415

        return [GPTQModifier(**options)]
    from llmcompressor.modifiers.quantization import QuantizationModifier  # noqa: PLC0415
    from llmcompressor.modifiers.transform.awq import AWQModifier, get_layer_mappings_from_model  # noqa: PLC0415

    mappings = [one for one in get_layer_mappings_from_model(model) if not changes_the_cache(one.smooth_layer)]
    return [AWQModifier(mappings=mappings), QuantizationModifier(**options)]


def changes_the_cache(smooth_layer: str) -> bool:
    """Whether scaling this layer's output, as AWQ does, changes what a KV cache holds.

    The prefill modules of a fleet start from the 16-bit checkpoint and fill the cache that this decoder reads, so its
    keys and values have to stay in their units.
    """
    return _CACHED.search(smooth_layer) is not None


if __name__ == "__main__":
    main()
