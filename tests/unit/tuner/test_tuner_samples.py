"""The sample tasks and what is written to disk."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from peft import PeftModel
from safetensors.torch import load_file

from sunfleet_tuner.checkpoint import (
    ADAPTER_FILE,
    Accuracy,
    CheckpointMeta,
    checkpoint_digest,
    read_meta,
    save_adapter,
    write_meta,
)
from sunfleet_tuner.merge import merge
from sunfleet_tuner.prompt_lora import add_lora
from sunfleet_tuner.reference import Modules, ModuleSpec, Sampling
from sunfleet_tuner.samples import models
from sunfleet_tuner.samples.tasks import SYSTEM, TASKS, split
from tiny_models import tiny_checkpoint, tiny_llama

ROOT = Path(__file__).resolve().parents[3]
META = CheckpointMeta(tuned_against="sha256:0", task="test", metrics={"loss": 1.0})


@pytest.fixture
def tuned(tmp_path: Path) -> tuple[Path, Path]:
    """A base and an adapter over it, on disk."""
    base, adapter = tiny_checkpoint(tmp_path / "base"), tmp_path / "adapter"
    model = add_lora(tiny_llama().float(), rank=4, alpha=8)
    torch.manual_seed(1)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "lora_" in name:
                parameter.normal_(0, 0.2)
    save_adapter(model, adapter, META, "tiny")
    return base, adapter


@pytest.fixture
def shipped(tuned: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of adapters as the tree holds them, beside a base that is there already."""
    base, adapter = tuned
    source = tmp_path / "shipped"
    source.mkdir()
    adapter.rename(source / "arith")
    write_meta(source / "arith", META.model_copy(update={"tuned_against": checkpoint_digest(base)}))
    monkeypatch.setattr(models, "make_base", lambda _target: False)
    return source


@pytest.mark.parametrize("name", sorted(TASKS))
def test_a_task_is_made_from_its_seed_and_holds_rows_out(name: str) -> None:
    train, held_out = split(TASKS[name], 200, 32, seed=3)
    again, _ = split(TASKS[name], 200, 32, seed=3)
    assert train == again
    requests = [example.messages[-1]["content"] for example in held_out]
    assert len(set(requests)) == 32
    assert not {example.messages[-1]["content"] for example in train} & set(requests)
    assert all(TASKS[name].correct(example.answer, example.answer) for example in held_out)


@pytest.mark.parametrize(
    ("task", "given", "answer", "right"),
    [
        ("arith", " 12\n", "12", True),
        ("arith", "The answer is 12", "12", False),
        ("toolcall", '{"arguments": {"a": 1}, "name": "f"}', '{"name": "f", "arguments": {"a": 1}}', True),
        ("toolcall", '{"name": "f"', '{"name": "f"}', False),
    ],
)
def test_an_answer_counts_only_when_it_says_just_that(task: str, given: str, answer: str, right: bool) -> None:
    assert TASKS[task].correct(given, answer) is right


def test_more_held_out_rows_than_the_task_has_are_refused() -> None:
    with pytest.raises(ValueError, match="distinct examples"):
        split(TASKS["arith"], 10, 50_000, seed=0)


def test_the_sample_request_describes_the_functions_that_the_module_was_tuned_for() -> None:
    request = json.loads((ROOT / "manifests/samples/requests/toolcall.json").read_text())
    assert request["messages"][0] == {"role": "system", "content": SYSTEM}


def test_an_adapter_is_saved_in_bfloat16_and_acts(tuned: tuple[Path, Path]) -> None:
    base, adapter = tuned
    tensors = load_file(adapter / ADAPTER_FILE)
    assert {tensor.dtype for tensor in tensors.values()} == {torch.bfloat16}
    assert read_meta(adapter) == META
    assert not list(adapter.glob("README*"))
    modules = Modules(base)
    specs = (ModuleSpec(), ModuleSpec(adapter=str(adapter)))
    base_alone, with_adapter = (modules.answer(spec, [5, 6, 7], Sampling(max_tokens=8)).logprobs for spec in specs)
    assert base_alone[0] != pytest.approx(with_adapter[0], abs=1e-3)


def test_merged_weights_give_the_logits_of_the_adapter(tuned: tuple[Path, Path]) -> None:
    base, adapter = tuned
    merge(base, adapter, base.parent / "full", dtype=torch.float32)
    ids = torch.tensor([[5, 6, 7, 8]])
    with torch.no_grad():
        with Modules(base).prefill(ModuleSpec(adapter=str(adapter)))() as model:
            assert isinstance(model, PeftModel)
            expected = model(input_ids=ids).logits
        with Modules(base).prefill(ModuleSpec(weights=str(base.parent / "full")))() as model:
            torch.testing.assert_close(model(input_ids=ids).logits, expected, rtol=1e-4, atol=1e-4)
    assert read_meta(base.parent / "full").metrics == {}
    assert (base.parent / "full" / "tokenizer.json").is_file()


def test_the_models_folder_is_made_once_and_follows_the_adapters(shipped: Path, tmp_path: Path) -> None:
    said: list[str] = []
    models.make_models(tmp_path, shipped, said.append)
    assert [line.split()[0] for line in said] == ["kept", "copied", "merged"]
    said.clear()
    models.make_models(tmp_path, shipped, said.append)
    assert [line.split()[0] for line in said] == ["kept", "kept"]
    write_meta(shipped / "arith", read_meta(shipped / "arith").model_copy(update={"accuracy": [_ACCURACY]}))
    said.clear()
    models.make_models(tmp_path, shipped, said.append)
    assert [line.split()[0] for line in said] == ["kept", "copied", "merged"]


def test_a_run_killed_after_an_adapter_was_replaced_does_not_keep_the_module_merged_from_the_old_one(
    shipped: Path, tmp_path: Path
) -> None:
    models.make_models(tmp_path, shipped, lambda _: None)
    write_meta(shipped / "arith", read_meta(shipped / "arith").model_copy(update={"task": "changed"}))

    def killed(line: str) -> None:
        if line.startswith("copied"):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        models.make_models(tmp_path, shipped, killed)
    models.make_models(tmp_path, shipped, lambda _: None)
    assert read_meta(tmp_path / "arith-full").task == "changed"


_ACCURACY = Accuracy(prefill="tuned", decode="base", correct=1, total=2)


def test_an_adapter_of_another_decoder_is_refused(shipped: Path, tmp_path: Path) -> None:
    write_meta(shipped / "arith", META)
    with pytest.raises(ValueError, match="was tuned against decoder sha256:0"):
        models.make_models(tmp_path, shipped, lambda _: None)


def test_the_digest_is_of_the_files_that_decide_what_is_computed(tmp_path: Path) -> None:
    folder = tiny_checkpoint(tmp_path / "one")
    before = checkpoint_digest(folder)
    (folder / "README.md").write_text("anything")
    (folder / "sunfleet.json").write_text("{}")
    assert checkpoint_digest(folder) == before
    config = folder / "config.json"
    config.write_text(config.read_text().replace('"hidden_act": "silu"', '"hidden_act": "gelu"'))
    assert checkpoint_digest(folder) != before
