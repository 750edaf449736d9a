"""Prefill-only tuning in one pass against its definition in two: a cache of one module, read by the other."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from transformers import DynamicCache

from sunfleet_tuner.data import Row, batches, chat_row, collate
from sunfleet_tuner.prompt_lora import PromptLora
from sunfleet_tuner.train import Progress, TuningConfig, prefill_only_loss, tune
from tiny_models import PAD, random_rows, tiny_llama

NEAR = 1e-6  # the model's norms and the loss compute in float32


def lora_with_effect(base: Any) -> PromptLora:
    """A LoRA whose delta is not zero (peft starts B at zero)."""
    lora = PromptLora.over(base, rank=4, alpha=8)
    torch.manual_seed(1)
    with torch.no_grad():
        for parameter in lora.trainable():
            parameter.normal_(0, 0.2)
    return lora


def two_pass_loss(prefill: Any, decoder: Any, rows: list[Row]) -> torch.Tensor:
    """The definition, one row at a time: mean over all response tokens."""
    losses = []
    for row in rows:
        cache = DynamicCache()
        first = prefill(input_ids=torch.tensor([row.prompt]), past_key_values=cache, use_cache=True).logits[:, -1:]
        parts = [first]
        if len(row.response) > 1:
            parts.append(decoder(input_ids=torch.tensor([row.response[:-1]]), past_key_values=cache).logits)
        logits = torch.cat(parts, dim=1)[0]
        losses.append(torch.nn.functional.cross_entropy(logits, torch.tensor(row.response), reduction="none"))
    return torch.cat(losses).mean()


@pytest.mark.parametrize("tied", [False, True])
def test_one_pass_has_the_loss_and_the_gradients_of_two_passes(tied: bool) -> None:
    rows = random_rows(6)
    decoder = tiny_llama(tied=tied)
    lora = lora_with_effect(copy.deepcopy(decoder))
    one = prefill_only_loss(lora, collate(rows, PAD))
    one.backward()
    gradients = [parameter.grad.clone() for parameter in lora.trainable()]
    lora.model.zero_grad()
    two = two_pass_loss(lora.model, decoder, rows)
    two.backward()
    assert one.item() == pytest.approx(two.item(), rel=NEAR)
    for ours, parameter in zip(gradients, lora.trainable(), strict=True):
        torch.testing.assert_close(ours, parameter.grad, rtol=1e-4, atol=1e-6)


def test_a_padded_batch_has_the_loss_of_its_rows_alone() -> None:
    rows = random_rows(5, seed=3)
    lora = lora_with_effect(tiny_llama())
    weighted = sum(prefill_only_loss(lora, collate([row], PAD)).item() * len(row.response) for row in rows)
    together = prefill_only_loss(lora, collate(rows, PAD)).item()
    assert together == pytest.approx(weighted / sum(len(row.response) for row in rows), rel=NEAR)


def test_without_a_delta_the_loss_is_the_decoders_own() -> None:
    rows = random_rows(4)
    base = tiny_llama()
    fresh = PromptLora.over(copy.deepcopy(base), rank=2, alpha=2)
    expected = two_pass_loss(base, base, rows).item()
    assert prefill_only_loss(fresh, collate(rows, PAD)).item() == pytest.approx(expected, rel=NEAR)


def test_the_delta_acts_on_prompt_columns_only() -> None:
    lora = lora_with_effect(tiny_llama())
    ids = torch.tensor([[5, 6, 7, 8]])
    nowhere, everywhere = torch.zeros_like(ids, dtype=torch.bool), torch.ones_like(ids, dtype=torch.bool)
    with lora.only_on(nowhere):
        masked = lora.model(input_ids=ids).logits
    with lora.model.disable_adapter():
        base = lora.model(input_ids=ids).logits
    with lora.only_on(everywhere):
        full = lora.model(input_ids=ids).logits
    assert torch.equal(masked, base)
    assert torch.equal(full, lora.model(input_ids=ids).logits)
    assert not torch.allclose(full, base)


def test_tuning_lowers_the_loss_and_leaves_every_bit_of_the_decoder() -> None:
    base = tiny_llama()
    before = {name: tensor.clone() for name, tensor in base.state_dict().items()}
    rows = random_rows(8)
    seen: list[Progress] = []
    config = TuningConfig(rank=8, alpha=16, steps=30, batch_rows=8, learning_rate=1e-2)
    lora = tune(base, rows, config, PAD, seen.append)
    assert [progress.step for progress in seen] == list(range(1, 31))
    assert seen[-1].loss < 0.5 * seen[0].loss
    after = {
        name.replace("base_layer.", ""): tensor
        for name, tensor in lora.model.get_base_model().state_dict().items()
        if "lora_" not in name
    }
    assert after.keys() == before.keys()
    assert all(torch.equal(after[name], before[name]) for name in before)


def test_tuning_twice_with_one_seed_gives_the_same_adapter() -> None:
    config = TuningConfig(rank=2, alpha=2, steps=3, batch_rows=4)
    first, second = (tune(tiny_llama(), random_rows(9), config, PAD) for _ in range(2))
    assert all(torch.equal(a, b) for a, b in zip(first.trainable(), second.trainable(), strict=True))


def test_an_adapter_that_is_not_plain_lora_is_refused() -> None:
    from peft import LoraConfig, get_peft_model

    model = get_peft_model(tiny_llama(), LoraConfig(r=2, target_modules=["q_proj"], use_dora=True))
    with pytest.raises(TypeError, match="plain LoRA"):
        PromptLora(model)


def test_targets_start_at_the_last_prompt_column() -> None:
    batch = collate([Row((5, 6, 7), (8, 9)), Row((5,), (6,))], PAD)
    assert batch.input_ids.tolist() == [[5, 6, 7, 8, 9], [5, 6, PAD, PAD, PAD]]
    assert batch.targets.tolist() == [[-100, -100, 8, 9, -100], [6, -100, -100, -100, -100]]
    assert batch.prompt_columns.tolist() == [[True, True, True, False, False], [True, False, False, False, False]]
    assert batch.first_loss_column == 0


def test_every_row_comes_once_an_epoch_and_like_lengths_meet() -> None:
    rows = random_rows(32, seed=5)
    stream = batches(rows, 4, PAD, seed=0)
    epoch = [next(stream) for _ in range(8)]
    assert sum(int((batch.targets != -100).sum()) for batch in epoch) == sum(len(row.response) for row in rows)
    padding = sum(batch.input_ids.numel() for batch in epoch) / sum(row.length for row in rows)
    assert padding < 1.15


def test_too_few_rows_for_a_batch_are_refused() -> None:
    with pytest.raises(ValueError, match="do not fill one batch"):
        next(batches(random_rows(3), 4, PAD, seed=0))


def test_an_empty_half_of_a_row_is_refused() -> None:
    with pytest.raises(ValueError, match="at least one"):
        Row((), (1,))


def test_a_chat_row_ends_its_prompt_with_the_open_turn() -> None:
    class Words:
        eos_token_id = 2

        def apply_chat_template(self, messages: list[dict[str, str]], **options: Any) -> list[int]:
            assert options == {"add_generation_prompt": True, "tokenize": True, "return_dict": False}
            return [1, *map(int, messages[0]["content"].split()), 4]

        def encode(self, text: str, *, add_special_tokens: bool) -> list[int]:
            assert not add_special_tokens
            return [int(word) for word in text.split()]

    row = chat_row(Words(), [{"role": "user", "content": "7 8"}], "9")
    assert row == Row((1, 7, 8, 4), (9, 2))
