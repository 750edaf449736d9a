"""A Llama of two layers with random weights, its tied twin, and random rows for it."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import torch
from peft import LoraConfig, get_peft_model
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

from sunfleet_tuner.data import Row

VOCABULARY = 96
PAD = 2


def tiny_llama(seed: int = 0, *, tied: bool = False, width: int = 32) -> Any:
    """Two layers, grouped KV heads, float64; weights large enough that logits differ clearly."""
    torch.manual_seed(seed)
    config = LlamaConfig(
        vocab_size=VOCABULARY,
        hidden_size=width,
        intermediate_size=width * 2,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=256,
        tie_word_embeddings=tied,
        bos_token_id=1,
        eos_token_id=PAD,
        pad_token_id=PAD,
        initializer_range=0.3,
    )
    return LlamaForCausalLM(config).double().eval()


def tiny_adapter(folder: Path, seed: int) -> Path:
    """A peft adapter of the tiny Llama that changes its answers."""
    model = get_peft_model(
        tiny_llama(), LoraConfig(r=4, lora_alpha=8, target_modules="all-linear", task_type="CAUSAL_LM")
    )
    torch.manual_seed(seed)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "lora_" in name:
                parameter.normal_(0, 0.3)
    model.save_pretrained(folder)
    return folder


def tiny_checkpoint(folder: Path, seed: int = 0, *, width: int = 32) -> Path:
    """The tiny Llama on disk (float32) with a tokenizer of the words ``w0`` to ``w95``."""
    tiny_llama(seed, width=width).float().save_pretrained(folder)
    words = Tokenizer(models.WordLevel({f"w{i}": i for i in range(VOCABULARY)}, unk_token="w0"))
    words.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=words, unk_token="w0", eos_token=f"w{PAD}", pad_token=f"w{PAD}"
    )
    tokenizer.chat_template = (
        "{% if tools %}w6 {{ tools | length }} {% endif %}"
        "{% for m in messages %}{% if m['role'] == 'assistant' %}w4 {{ m['content'] }} w2 {% else %}"
        "w1 {{ m['content'] }} w3 {% endif %}{% endfor %}{% if add_generation_prompt %}w4{% endif %}"
    )
    tokenizer.save_pretrained(folder)
    return folder


def random_rows(count: int, seed: int = 0) -> list[Row]:
    """Rows of 2-9 prompt tokens and 1-6 response tokens."""
    rng = random.Random(seed)  # noqa: S311 - sample data

    def tokens(low: int, high: int) -> tuple[int, ...]:
        return tuple(rng.randrange(5, VOCABULARY) for _ in range(rng.randint(low, high)))

    return [Row(tokens(2, 9), tokens(1, 6)) for _ in range(count)]
