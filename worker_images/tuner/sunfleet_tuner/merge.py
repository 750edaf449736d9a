"""Merges an adapter into its base: a prefill module of full weights, as full fine-tuning would leave one."""

from __future__ import annotations

from pathlib import Path

import torch
from peft import PeftModel
from transformers import AutoModelForCausalLM, AutoTokenizer

from sunfleet_tuner.checkpoint import read_meta, write_meta
from sunfleet_tuner.files import whole_folder


def merge(base: Path, adapter: Path, target: Path, dtype: torch.dtype = torch.bfloat16) -> None:
    """Write base + adapter with tokenizer and ``sunfleet.json`` to ``target``.

    The sum is made in float32 and rounded once to ``dtype``, so answers may differ from the adapter's own.
    """
    model = AutoModelForCausalLM.from_pretrained(base, dtype=torch.float32)
    merged = PeftModel.from_pretrained(model, str(adapter)).merge_and_unload()
    tokenizer = AutoTokenizer.from_pretrained(base)
    with whole_folder(target) as draft:
        merged.to(dtype).save_pretrained(draft)
        tokenizer.save_pretrained(draft)
        # Accuracy and loss were measured on the adapter, not on these rounded weights.
        write_meta(draft, read_meta(adapter).model_copy(update={"accuracy": [], "metrics": {}}))
