"""Prefill-only tuning in one pass against its definition in two: a cache of one module, read by the other."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
import torch
from transformers import DynamicCache, Qwen3Config, Qwen3ForCausalLM

from sunfleet_tuner.data import IGNORED, Row, collate
from sunfleet_tuner.one_pass import (
    Lora,
    OnePass,
    checkpoint_activations,
    freeze,
    idle_parameters,
    wire,
)
from sunfleet_tuner.prompt_lora import add_lora, check_plain
from sunfleet_tuner.weights import tensors_digest
from tiny_models import PAD, VOCABULARY, random_rows, tiny_llama

NEAR = 1e-6  # the model's norms and the loss compute in float32
# How a prefill module can be made: an adapter over the decoder, an adapter over other weights, full weights.
FORMS = ("adapter", "adapter over a base of its own", "full", "full with embeddings")


def tiny_qwen(seed: int = 0, *, tied: bool = False) -> Any:
    """Like the tiny Llama, with norms on queries and keys of each head."""
    torch.manual_seed(seed)
    config = Qwen3Config(
        vocab_size=VOCABULARY, hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=2, head_dim=8, tie_word_embeddings=tied, initializer_range=0.3,
    )  # fmt: skip
    return Qwen3ForCausalLM(config).double().eval()


def wired(decoder: Any, form: str, *, seed: int = 1) -> tuple[OnePass, Any]:
    """A module that differs clearly from ``decoder``, and the same weights as a model that knows no decoder."""
    base = copy.deepcopy(decoder)
    if form != "adapter":
        _shake(base.parameters(), seed)
    if "adapter" not in form:
        plain = copy.deepcopy(base)
        return wire(decoder, base, "full", train_embeddings="embeddings" in form), plain
    lora = Lora(rank=4, alpha=8)
    plain = add_lora(copy.deepcopy(base), rank=4, alpha=8)
    one_pass = wire(decoder, None if form == "adapter" else base, "lora", lora=lora)
    _shake(one_pass.trainable().values(), seed)
    plain.load_state_dict(one_pass.trainable(), strict=False)
    return one_pass, plain


def _shake(parameters: Any, seed: int) -> None:
    torch.manual_seed(seed)
    with torch.no_grad():
        for parameter in parameters:
            parameter.add_(torch.randn_like(parameter) * 0.2)


def two_pass_loss(prefill: Any, decoder: Any, rows: Sequence[Row]) -> torch.Tensor:
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


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("tied", [False, True])
@pytest.mark.parametrize("make", [tiny_llama, tiny_qwen])
def test_one_pass_has_the_loss_and_the_gradients_of_two_passes(make: Any, tied: bool, form: str) -> None:
    rows = random_rows(6)
    decoder = make(tied=tied)
    frozen = copy.deepcopy(decoder)
    one_pass, plain = wired(decoder, form)
    one = one_pass.loss_of(collate(rows, PAD))
    one.backward()
    ours = {name: value.grad for name, value in one_pass.trainable().items()}
    plain.zero_grad()
    two = two_pass_loss(plain, frozen, rows)
    two.backward()
    theirs = {name: value.grad for name, value in plain.named_parameters() if name in ours}
    assert one.item() == pytest.approx(two.item(), rel=NEAR)
    assert ours
    assert ours.keys() == theirs.keys()
    for name, gradient in ours.items():
        torch.testing.assert_close(gradient, theirs[name], rtol=1e-4, atol=1e-6, msg=name)


@pytest.mark.parametrize("form", FORMS)
def test_checkpointed_activations_change_no_gradient(form: str) -> None:
    batch = collate(random_rows(4), PAD)
    gradients = []
    for checkpointed in (False, True):
        one_pass, _ = wired(tiny_llama(), form)
        if checkpointed:
            checkpoint_activations(one_pass)
        one_pass.loss_of(batch).backward()
        gradients.append({name: value.grad for name, value in one_pass.trainable().items()})
    for name, gradient in gradients[0].items():
        torch.testing.assert_close(gradient, gradients[1][name], rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("form", FORMS)
def test_a_padded_batch_has_the_loss_of_its_rows_alone(form: str) -> None:
    rows = random_rows(5, seed=3)
    one_pass, _ = wired(tiny_llama(), form)
    weighted = sum(one_pass.loss_of(collate([row], PAD)).item() * len(row.response) for row in rows)
    together = one_pass.loss_of(collate(rows, PAD)).item()
    assert together == pytest.approx(weighted / sum(len(row.response) for row in rows), rel=NEAR)


@pytest.mark.parametrize("method", ["lora", "full"])
def test_with_the_base_as_prefill_the_loss_is_the_ordinary_one_of_the_response(method: Any) -> None:
    rows = random_rows(4)
    base = tiny_llama()
    prefill = copy.deepcopy(base) if method == "full" else None
    one_pass = wire(copy.deepcopy(base), prefill, method, lora=Lora(2, 2))
    losses = []
    for row in rows:
        ids = torch.tensor([row.prompt + row.response])
        labels = ids.clone()
        labels[:, : len(row.prompt)] = IGNORED
        losses.append(base(input_ids=ids, labels=labels).loss.item() * len(row.response))
    expected = sum(losses) / sum(len(row.response) for row in rows)
    assert one_pass.loss_of(collate(rows, PAD)).item() == pytest.approx(expected, rel=NEAR)


def test_the_delta_acts_on_prompt_columns_only() -> None:
    one_pass, _ = wired(tiny_llama(), "adapter")
    ids = torch.tensor([[5, 6, 7, 8]])

    def logits(mask: torch.Tensor | None) -> torch.Tensor:
        one_pass.columns.choose(mask)
        found: torch.Tensor = one_pass.model(input_ids=ids).logits
        return found

    masked = logits(torch.zeros_like(ids, dtype=torch.bool))
    full = logits(torch.ones_like(ids, dtype=torch.bool))
    assert torch.equal(full, logits(None))
    with one_pass.model.disable_adapter():
        assert torch.equal(masked, logits(None))
    assert not torch.allclose(full, masked)


@pytest.mark.parametrize("form", FORMS)
def test_an_optimiser_step_leaves_every_bit_of_the_decoder(form: str) -> None:
    decoder = tiny_llama(tied=True)
    before = tensors_digest(copy.deepcopy(decoder))
    one_pass, _ = wired(decoder, form)
    optimiser = torch.optim.AdamW(one_pass.trainable().values(), lr=0.1)
    one_pass.loss_of(collate(random_rows(4), PAD)).backward()
    optimiser.step()
    assert tensors_digest(decoder) == before
    changed = next(iter(one_pass.trainable().values()))
    with torch.no_grad():
        for parameter in decoder.parameters():
            parameter.add_(torch.finfo(parameter.dtype).eps)
    assert tensors_digest(decoder) != before, "the digest would not see a change"
    assert changed.grad is not None


def without_first_tokens(rows: list[Row]) -> Any:
    """A batch in which only the decoder predicts, so that gradients reach the prefill module through its KV alone."""
    batch = collate(rows, PAD)
    targets = batch.targets.clone()
    for index, row in enumerate(rows):
        targets[index, len(row.prompt) - 1] = IGNORED
    return replace(batch, targets=targets)


LAST_LAYER = {f"self_attn.{name}_proj" for name in "qo"} | {f"mlp.{name}_proj" for name in ("gate", "up", "down")}


@pytest.mark.parametrize("form", ["adapter", "full", "full with embeddings"])
def test_through_the_cache_alone_the_last_layers_query_output_and_mlp_get_no_gradient(form: str) -> None:
    rows = [row for row in random_rows(20) if len(row.response) > 1]
    one_pass, _ = wired(tiny_llama(), form)
    assert idle_parameters(one_pass, collate(rows, PAD)) == []
    idle = idle_parameters(one_pass, without_first_tokens(rows))
    last = {name for name in idle if ".layers.1." in name}
    outside = {name for name in idle if ".layers." not in name}
    assert {part for part in LAST_LAYER if any(part in name for name in last)} == LAST_LAYER
    assert last | outside == set(idle)
    assert not any(part in name for name in last for part in ("k_proj", "v_proj", "input_layernorm"))
    if form != "adapter":
        assert any("post_attention_layernorm" in name for name in last)
        assert any(name.endswith("model.norm.weight") for name in outside)
        assert ("lm_head.weight" in outside) is (form == "full with embeddings")


def test_looking_for_idle_parameters_changes_none_and_frozen_ones_are_out_of_training() -> None:
    one_pass = wire(tiny_llama(), None, "lora", lora=Lora(2, 2))  # every B starts at zero
    before = tensors_digest_of(one_pass)
    rows = [row for row in random_rows(20) if len(row.response) > 1]
    assert idle_parameters(one_pass, collate(rows, PAD)) == []
    idle = idle_parameters(one_pass, without_first_tokens(rows))
    assert tensors_digest_of(one_pass) == before
    assert all(value.grad is None for value in one_pass.parameters())
    freeze(one_pass, idle)
    assert idle
    assert not one_pass.trainable().keys() & set(idle)


def tensors_digest_of(one_pass: OnePass) -> list[bytes]:
    return [value.detach().numpy().tobytes() for value in one_pass.parameters()]


def test_full_weights_share_the_frozen_vocabulary_with_the_decoder() -> None:
    decoder = tiny_llama(tied=True)
    one_pass = wire(decoder, tiny_llama(tied=True), "full")
    assert one_pass.model.get_input_embeddings().weight is decoder.get_input_embeddings().weight
    assert not any("embed" in name or "lm_head" in name for name in one_pass.trainable())


def test_an_adapter_that_is_not_plain_lora_is_refused() -> None:
    from peft import LoraConfig, get_peft_model

    model = get_peft_model(tiny_llama(), LoraConfig(r=2, target_modules=["q_proj"], use_dora=True))
    with pytest.raises(TypeError, match="plain LoRA"):
        check_plain(model)


def test_a_layer_that_may_mix_tokens_is_refused() -> None:
    decoder, prefill = tiny_llama(), tiny_llama(seed=1)
    for model in (decoder, prefill):
        model.model.layers[0].mlp.up_proj = torch.nn.Conv1d(32, 64, 3, padding=1)
    with pytest.raises(TypeError, match=r"layers.0.mlp.up_proj is a Conv1d"):
        wire(decoder, prefill, "full")


def test_a_layer_that_sees_tokens_in_another_arrangement_is_refused() -> None:
    one_pass, _ = wired(tiny_llama(), "full")
    one_pass.columns.choose(torch.ones(2, 3, dtype=torch.bool))
    with pytest.raises(TypeError, match="rearranges tokens"):
        one_pass.columns.split(torch.zeros(6, 32))


def nodes(loss: torch.Tensor) -> list[str]:
    """Names of everything that the backward pass will run."""
    found: dict[Any, str] = {}
    waiting = [loss.grad_fn]
    while waiting:
        node = waiting.pop()
        if node is not None and node not in found:
            found[node] = node.name()
            waiting += [after for after, _ in node.next_functions]
    return list(found.values())


@pytest.mark.parametrize(("make", "cuts"), [(tiny_llama, 3), (tiny_qwen, 5)])
def test_a_layer_is_cut_only_where_its_rows_were_whole_and_no_gradient_is_added_up_row_by_row(
    make: Any, cuts: int
) -> None:
    one_pass, _ = wired(make(), "full")
    work = nodes(one_pass.loss_of(collate(random_rows(4), PAD)))
    # Of a layer: its input, what attention gives, the input of its MLP; with norms of heads, queries and keys as well.
    # The final norm is the last cut.
    assert work.count("_SplitBackward") == 2 * cuts + 1
    assert not any(name.startswith("Index") for name in work)


@pytest.mark.filterwarnings("ignore:.lora_bias=True. was passed")
def test_an_adapter_with_a_bias_is_refused_since_its_delta_is_not_nothing_for_nothing() -> None:
    from peft import LoraConfig, get_peft_model

    model = get_peft_model(tiny_llama(), LoraConfig(r=2, target_modules=["q_proj"], lora_bias=True))
    with pytest.raises(TypeError, match="plain LoRA"):
        check_plain(model)


def test_an_mlp_that_is_equal_and_frozen_exists_once() -> None:
    decoder, rows = tiny_llama(), random_rows(4)
    one_pass = wire(decoder, copy.deepcopy(decoder), "lora", lora=Lora(2, 2, ["q_proj"]))
    ours = one_pass.model.base_model.model.model.layers[0].mlp
    assert all(
        value is theirs
        for value, theirs in zip(ours.parameters(), decoder.model.layers[0].mlp.parameters(), strict=True)
    )
    plain = wire(copy.deepcopy(decoder), None, "lora", lora=Lora(2, 2, ["q_proj"]))
    loss = one_pass.loss_of(collate(rows, PAD)).item()
    assert loss == pytest.approx(plain.loss_of(collate(rows, PAD)).item(), rel=NEAR)
