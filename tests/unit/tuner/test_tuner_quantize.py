"""Weight-only integers: the packed bytes, the values behind them, the checkpoint around them, and tuning against it."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from io import StringIO
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
import torch
from rich.console import Console
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM

from sunfleet_tuner import llmcompressor_job
from sunfleet_tuner import quantize as quantize_module
from sunfleet_tuner.__main__ import main as command
from sunfleet_tuner.checkpoint import checkpoint_digest
from sunfleet_tuner.config import TuneConfig
from sunfleet_tuner.errors import TuningError
from sunfleet_tuner.packages import COMPRESSOR
from sunfleet_tuner.quantize import GROUP_SIZE, Grid, Quantized, main, quantize, quantize_weight
from sunfleet_tuner.reference import Modules, ModuleSpec, Sampling
from sunfleet_tuner.tune import tune
from sunfleet_tuner.weights import load_model, quantization_of, tensors_digest
from tiny_models import tiny_checkpoint

IDS = torch.tensor([[5, 6, 7, 8, 9]])


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """``base``, ``packed`` and ``twin``: the same values packed and as float32 weights."""
    root = tmp_path_factory.mktemp("quantised")
    tiny_checkpoint(root / "base", width=GROUP_SIZE)
    assert main([str(root / "base"), str(root / "packed"), "--dequantized", str(root / "twin")]) == 0
    return root


def weight(rows: int = 32, columns: int = 2 * GROUP_SIZE) -> torch.Tensor:
    return torch.randn(rows, columns, generator=torch.Generator().manual_seed(7)).to(torch.bfloat16)


def test_the_packed_words_are_what_the_format_says() -> None:
    """Eight values a word, the first in the lowest bits, each moved up by eight."""
    values = torch.arange(-8, 8, dtype=torch.int8).view(1, 16)
    words = Quantized(values, torch.ones(1, 1)).packed
    assert words.dtype == torch.int32
    assert [word & 0xFFFFFFFF for word in words.flatten().tolist()] == [0x76543210, 0xFEDCBA98]
    eight_bits = Quantized(torch.tensor([[-128, 0, 1, 127]], dtype=torch.int8), torch.ones(1, 1), Grid(bits=8)).packed
    assert [word & 0xFFFFFFFF for word in eight_bits.flatten().tolist()] == [0xFF818000]


@pytest.mark.parametrize("grid", [Grid(), Grid(bits=3), Grid(bits=8, group_size=32), Grid(group_size=128)])
def test_values_are_nearest_to_the_weight(grid: Grid) -> None:
    given = weight()
    quantized = quantize_weight(given, grid)
    steps = quantized.scales.float().repeat_interleave(grid.group_size, dim=1)
    error = (quantized.weight - given.float()).abs()
    # Half a step, but for the largest positive value: the range has one value less above zero.
    assert (error <= steps * 0.51).float().mean() > 0.95
    assert (error <= steps).all()
    assert quantized.values.min() >= grid.lowest
    assert quantized.values.max() <= grid.highest


def test_columns_that_are_no_whole_groups_are_refused_with_a_size_that_fits() -> None:
    with pytest.raises(ValueError, match=f"100 columns cannot be cut into groups of {GROUP_SIZE}$"):
        quantize_weight(torch.zeros(8, 100))
    with pytest.raises(ValueError, match="groups of 128: try group size 64"):
        quantize_weight(torch.zeros(8, 576), Grid(group_size=128))


def test_three_bits_have_a_twin_and_no_packed_form(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="3 bits cannot be packed"):
        quantize(folder / "base", tmp_path / "packed", grid=Grid(bits=3))
    quantize(folder / "base", None, tmp_path / "twin", Grid(bits=3))
    values = load_file(tmp_path / "twin" / "model.safetensors")["model.layers.0.mlp.up_proj.weight"]
    assert max(len(row.unique()) for row in values) <= 8


def test_a_checkpoint_that_cannot_be_quantised_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([str(tmp_path / "none"), str(tmp_path / "packed")]) == 2
    assert str(tmp_path / "none") in capsys.readouterr().err
    assert command(["quantize", str(tmp_path / "none"), str(tmp_path / "packed")]) == 1
    assert str(tmp_path / "none") in capsys.readouterr().err
    assert not (tmp_path / "packed").exists()


@pytest.mark.parametrize("method", ["rtn", "gptq"])
def test_what_could_only_become_a_broken_checkpoint_is_refused_before_anything_is_written_or_calibrated(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], method: str
) -> None:
    base = tmp_path / "pickled"
    shutil.copytree(folder / "base", base)
    (base / "model.safetensors").rename(base / "pytorch_model.bin")
    unfetched = shutil.copytree(folder / "base", tmp_path / "unfetched")
    (unfetched / "model.safetensors").write_text("version https://git-lfs.github.com/spec/v1\nsize 1\n")
    flags = ["--method", method, "--calibration", "rows.jsonl", "--python", "none"]
    for given, more, part in (
        (folder / "packed", ["--bits", "8"], "it is quantised already: name the 16-bit checkpoint"),
        (base, [], "its weights are no *.safetensors files"),
        (unfetched, [], "model.safetensors is damaged, or was not downloaded whole"),
        (folder / "base", ["--group-size", "48"], "columns cannot be cut into groups of 48: try group size 32"),
    ):
        assert command(["quantize", str(given), str(tmp_path / "out"), *flags, *more]) == 1
        assert f"{given} cannot be quantised: " in (said := capsys.readouterr().err)
        assert part in said
    assert not (tmp_path / "out").exists()


def test_a_second_copy_of_the_weights_in_another_layout_is_left_out(folder: Path, tmp_path: Path) -> None:
    """As some models of the hub have it."""
    base = shutil.copytree(folder / "base", tmp_path / "base")
    save_file({"layers.0.attention.wq.weight": torch.zeros(48, 48)}, base / "consolidated.safetensors")
    assert command(["quantize", str(base), str(tmp_path / "packed"), "--group-size", str(GROUP_SIZE)]) == 0
    found, expected = (load_file(one / "packed" / "model.safetensors") for one in (tmp_path, folder))
    assert found.keys() == expected.keys()


def test_a_damaged_decoder_is_no_start_for_a_run(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    base, rows = shutil.copytree(folder / "base", tmp_path / "base"), tmp_path / "rows.jsonl"
    whole = (base / "model.safetensors").read_bytes()
    (base / "model.safetensors").write_bytes(whole[: len(whole) // 2])
    rows.write_text('{"prompt": "1 + 1 =", "completion": " 2"}\n' * 8)
    assert command(["tune", "--decoder", str(base), "--data", str(rows), "--output", str(tmp_path / "out")]) == 1
    assert "base cannot be loaded: " in (said := capsys.readouterr().err)
    assert "is damaged, or was not downloaded whole" in said


def test_a_model_of_the_hub_is_quantised_by_its_name(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(quantize_module, "local_folder", {"org/base": folder / "base"}.__getitem__)
    assert command(["quantize", "org/base", str(tmp_path / "packed"), "--group-size", "16"]) == 0
    assert (tmp_path / "packed" / "model.safetensors").is_file()


def test_only_the_layers_matrices_are_packed(folder: Path) -> None:
    plain, packed = (load_file(folder / name / "model.safetensors") for name in ("base", "packed"))
    matrices = [name for name, tensor in plain.items() if ".layers." in name and tensor.ndim == 2]
    assert matrices
    for name in matrices:
        rows, columns = plain[name].shape
        stem = name.removesuffix("weight")
        assert packed[f"{stem}weight_packed"].shape == (rows, columns // 8)
        assert packed[f"{stem}weight_shape"].tolist() == [rows, columns]
        assert name not in packed
    kept = plain.keys() - set(matrices)
    assert all(torch.equal(packed[name], plain[name]) for name in kept)
    config = json.loads((folder / "packed/config.json").read_text())
    assert config["quantization_config"]["config_groups"]["group_0"]["weights"]["group_size"] == GROUP_SIZE


def test_a_quantised_checkpoint_loads_as_the_very_weights_it_stands_for(folder: Path) -> None:
    loaded = load_model(folder / "packed")
    twin = AutoModelForCausalLM.from_pretrained(folder / "twin", dtype=torch.float32)
    with torch.no_grad():
        torch.testing.assert_close(loaded(IDS).logits, twin(IDS).logits, rtol=1e-5, atol=1e-5)
        assert not torch.allclose(loaded(IDS).logits, load_model(folder / "base")(IDS).logits, atol=0.1)
    assert tensors_digest(loaded) == tensors_digest(twin), "nothing of the quantisation is left beside the weights"
    assert getattr(loaded.config, "quantization_config", None) is None


def test_another_kind_of_quantisation_is_refused(folder: Path, tmp_path: Path) -> None:
    tiny_checkpoint(tmp_path / "other")
    config = json.loads((tmp_path / "other/config.json").read_text())
    (tmp_path / "other/config.json").write_text(json.dumps({**config, "quantization_config": {"quant_method": "hqq"}}))
    with pytest.raises(ValueError, match="is quantised with hqq"):
        load_model(tmp_path / "other")


@pytest.mark.parametrize("method", ["lora", "full"])
def test_a_prefill_module_is_tuned_against_the_quantised_decoder_from_its_base(
    folder: Path, tmp_path: Path, method: Any
) -> None:
    data = tmp_path / "data.jsonl"
    data.write_text("".join(json.dumps({"prompt": f"w{30 + i}", "completion": "w7 w8"}) + "\n" for i in range(20)))
    config = TuneConfig(
        decoder=str(folder / "packed"), init=str(folder / "base"), data=str(data), output=tmp_path / "out",
        method=method, max_steps=6, learning_rate=0.02, precision="fp32", rank=4, golden_prompts=2,
    )  # fmt: skip
    meta = tune(config, Console(file=StringIO())).meta
    assert meta.tuned_against == checkpoint_digest(folder / "packed")
    assert meta.base.digest == checkpoint_digest(folder / "base")
    assert meta.metrics["validation_loss"] < meta.metrics["validation_loss_before"]
    # As served: the 16-bit module over the prompt, the quantised decoder afterwards.
    spec = (
        ModuleSpec(adapter=str(config.output), base=str(folder / "base"))
        if method == "lora"
        else ModuleSpec(weights=str(config.output))
    )
    golden = json.loads((config.output / "golden.json").read_text())["prompts"]
    modules = Modules(folder / "packed")
    for prompt in golden:
        answer = modules.answer(spec, prompt["prompt_token_ids"], Sampling(max_tokens=len(prompt["token_ids"])))
        assert answer.token_ids == prompt["token_ids"]


def test_a_quantised_decoder_without_a_base_is_no_start(folder: Path, tmp_path: Path) -> None:
    config = TuneConfig(decoder=str(folder / "packed"), data="none.jsonl", output=tmp_path / "out")
    with pytest.raises(TuningError, match="is quantised, and a prefill module has 16-bit weights"):
        tune(config, Console(file=StringIO()))
    assert quantization_of(folder / "base") is None


@pytest.mark.parametrize("method", ["gptq", "awq"])
def test_calibration_runs_where_llmcompressor_is_with_rows_as_the_fleet_sees_them(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], method: str
) -> None:
    rows = tmp_path / "rows.jsonl"
    rows.write_text('{"messages": [{"role": "user", "content": "w7"}, {"role": "assistant", "content": "w8"}]}\n' * 3)
    python = tmp_path / "python"
    python.touch()
    jobs: list[dict[str, Any]] = []
    written = Grid().config()

    def run(arguments: list[Any], **options: Any) -> subprocess.CompletedProcess[str]:
        assert arguments[:2] == [python, "-I"], "neither this folder's modules nor PYTHONPATH are seen there"
        if "input" in options:
            jobs.append(job := json.loads(options["input"]))
            (Path(job["target"]) / "config.json").write_text(json.dumps({"quantization_config": written}))
        return subprocess.CompletedProcess(arguments, 0)

    monkeypatch.setattr(subprocess, "run", run)
    flags = ["--method", method, "--calibration", str(rows), "--samples", "2", "--python", str(python)]
    assert command(["quantize", str(folder / "base"), str(tmp_path / "packed"), *flags]) == 0
    assert (tmp_path / "packed" / "config.json").is_file()
    (job,) = jobs
    assert job["rows"] == [[1, 7, 3, 4, 8, 2]] * 2
    assert (job["method"], job["bits"], job["group_size"]) == (method, 4, 64)
    assert job["base"] == str(folder / "base")
    written["format"] = "marlin"
    assert command(["quantize", str(folder / "base"), str(tmp_path / "other"), *flags]) == 1
    assert f"marlin where compressed-tensors pack-quantized was wanted: its environment should hold {COMPRESSOR}" in (
        capsys.readouterr().err
    )
    assert not (tmp_path / "other").exists()


def test_calibration_without_data_or_environment_says_what_to_do(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    given = ["quantize", str(folder / "base"), str(tmp_path / "packed"), "--method", "gptq"]
    assert command(given) == 1
    assert "needs --calibration" in capsys.readouterr().err
    assert command([*given, "--calibration", "rows.jsonl", "--python", sys.executable]) == 1
    assert "has no llmcompressor: make an environment" in capsys.readouterr().err


class Named:
    """A class of llmcompressor, and what it was made with."""

    def __init__(self, **options: Any) -> None:
        self.options = options


class GPTQModifier(Named): ...


class QuantizationModifier(Named): ...


class AWQModifier(Named): ...


class IntermediatesCache:
    """Pins as torch does: not without an accelerator."""

    def pin_memory(self, batch_index: int, input_names: list[str] | None = None) -> None:
        del batch_index, input_names
        raise RuntimeError("Found no NVIDIA driver on your system")


@pytest.fixture
def llmcompressor(monkeypatch: pytest.MonkeyPatch) -> None:
    """All that is used of it, by its names; ``make e2e-packages`` runs the real one."""
    mappings = [SimpleNamespace(smooth_layer=f"re:.*{name}$") for name in ("input_layernorm", "v_proj", "up_proj")]
    contents: dict[str, dict[str, Any]] = {
        "llmcompressor": {}, "llmcompressor.modifiers": {}, "llmcompressor.modifiers.transform": {},
        "llmcompressor.pipelines": {}, "llmcompressor.pipelines.cache": {"IntermediatesCache": IntermediatesCache},
        "llmcompressor.modifiers.gptq": {"GPTQModifier": GPTQModifier},
        "llmcompressor.modifiers.quantization": {"QuantizationModifier": QuantizationModifier},
        "llmcompressor.modifiers.transform.awq": {
            "AWQModifier": AWQModifier, "get_layer_mappings_from_model": lambda _: mappings,
        },
    }  # fmt: skip
    for name, content in contents.items():
        monkeypatch.setitem(sys.modules, name, module := ModuleType(name))
        vars(module).update(content)


def test_a_recipe_quantises_the_layers_on_the_grid_and_leaves_the_head(llmcompressor: None) -> None:
    job = {"method": "gptq", "bits": 8, "group_size": 32}
    (gptq,) = llmcompressor_job.recipe(job, None)
    assert isinstance(gptq, GPTQModifier)
    assert gptq.options["ignore"] == ["lm_head"]
    group = gptq.options["config_groups"]["group_0"]
    assert group["targets"] == ["Linear"]
    assert group["weights"].items() >= {"num_bits": 8, "group_size": 32, "symmetric": True, "type": "int"}.items()
    smoothing, rounding = llmcompressor_job.recipe({**job, "method": "awq"}, None)
    assert isinstance(smoothing, AWQModifier)
    assert isinstance(rounding, QuantizationModifier)
    assert rounding.options == gptq.options
    smoothed = [one.smooth_layer for one in smoothing.options["mappings"]]
    assert smoothed == ["re:.*input_layernorm$", "re:.*up_proj$"], "values stay in the units of 16-bit prefill modules"


@pytest.mark.parametrize(
    ("layer", "cached"),
    [
        ("re:.*v_proj$", True), ("re:.*qkv_proj$", True), ("model.layers.0.self_attn.v_proj", True),
        ("re:.*kv_a_layernorm$", True), ("re:.*input_layernorm$", False), ("re:.*up_proj$", False),
        ("re:.*q_a_layernorm$", False), ("re:.*gate_up_proj$", False),
    ],
)  # fmt: skip
def test_layers_whose_output_is_cached_are_known(layer: str, cached: bool) -> None:
    assert llmcompressor_job.changes_the_cache(layer) is cached


@pytest.mark.usefixtures("llmcompressor")
def test_without_an_accelerator_nothing_is_pinned_so_that_awq_runs_on_a_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    pins = IntermediatesCache.pin_memory
    monkeypatch.setattr(IntermediatesCache, "pin_memory", pins)  # taken back after this test
    monkeypatch.setattr(torch.accelerator, "is_available", lambda: True)
    llmcompressor_job.pin_nothing_without_an_accelerator()
    with pytest.raises(RuntimeError, match="no NVIDIA driver"):
        IntermediatesCache().pin_memory(0)
    monkeypatch.setattr(torch.accelerator, "is_available", lambda: False)
    llmcompressor_job.pin_nothing_without_an_accelerator()
    IntermediatesCache().pin_memory(0)


def test_the_job_imports_nothing_of_the_project() -> None:
    assert "sunfleet" not in Path(llmcompressor_job.__file__).read_text().replace("Sunfleet", "")
