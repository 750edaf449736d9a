"""Runs where llmcompressor is, and imports nothing of Sunfleet: a JSON job on standard input, a checkpoint out."""

from __future__ import annotations

import json
import sys
from typing import Any


def main() -> None:
    """Quantise the linear layers of ``base`` with GPTQ or AWQ and write a compressed-tensors checkpoint."""
    job: dict[str, Any] = json.load(sys.stdin)
    from datasets import Dataset  # noqa: PLC0415 - seconds to import, after the job was read
    from llmcompressor import oneshot  # noqa: PLC0415
    from transformers import AutoModelForCausalLM, AutoTokenizer  # noqa: PLC0415

    model = AutoModelForCausalLM.from_pretrained(job["base"], dtype="auto")
    tokenizer = AutoTokenizer.from_pretrained(job["base"])
    rows = [{"input_ids": row, "attention_mask": [1] * len(row)} for row in job["rows"]]
    oneshot(
        model=model, tokenizer=tokenizer, dataset=Dataset.from_list(rows), recipe=[modifier(job)],
        max_seq_length=job["max_length"], num_calibration_samples=len(rows),
    )  # fmt: skip
    model.save_pretrained(job["target"], save_compressed=True)
    tokenizer.save_pretrained(job["target"])


def modifier(job: dict[str, Any]) -> Any:
    """llmcompressor's modifier on the grid of the job; the head stays as it is."""
    weights = {
        "num_bits": job["bits"], "type": "int", "symmetric": True, "strategy": "group", "group_size": job["group_size"],
    }  # fmt: skip
    options = {"config_groups": {"group_0": {"targets": ["Linear"], "weights": weights}}, "ignore": ["lm_head"]}
    if job["method"] == "gptq":
        from llmcompressor.modifiers.quantization import GPTQModifier  # noqa: PLC0415

        return GPTQModifier(**options)
    from llmcompressor.modifiers.awq import AWQModifier  # noqa: PLC0415

    return AWQModifier(**options)


if __name__ == "__main__":
    main()
