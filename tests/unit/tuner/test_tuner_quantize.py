"""W4A16: the packed bytes, the values behind them, and the checkpoint around them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from sunfleet_tuner.quantize import GROUP_SIZE, Quantized, main, quantize_weight
from tiny_models import tiny_checkpoint


def weight(rows: int = 32, columns: int = 2 * GROUP_SIZE) -> torch.Tensor:
    return torch.randn(rows, columns, generator=torch.Generator().manual_seed(7)).to(torch.bfloat16)


def test_the_packed_words_are_what_the_format_says() -> None:
    """Eight values a word, the first in the lowest bits, each moved up by eight."""
    values = torch.arange(-8, 8, dtype=torch.int8).view(1, 16)
    words = Quantized(values, torch.ones(1, 1)).packed
    assert words.dtype == torch.int32
    assert [word & 0xFFFFFFFF for word in words.flatten().tolist()] == [0x76543210, 0xFEDCBA98]


def test_values_are_nearest_to_the_weight() -> None:
    given = weight()
    quantized = quantize_weight(given)
    steps = quantized.scales.float().repeat_interleave(GROUP_SIZE, dim=1)
    error = (quantized.weight - given.float()).abs()
    # Half a step, but for the largest positive value: the range has one value less above zero.
    assert (error <= steps * 0.51).float().mean() > 0.95
    assert (error <= steps).all()


def test_columns_that_are_no_whole_groups_are_refused() -> None:
    with pytest.raises(ValueError, match=f"100 columns cannot be cut into groups of {GROUP_SIZE}"):
        quantize_weight(torch.zeros(8, 100))


def test_a_checkpoint_that_cannot_be_quantised_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([str(tmp_path / "none"), str(tmp_path / "packed")]) == 2
    assert str(tmp_path / "none") in capsys.readouterr().err
    assert not (tmp_path / "packed").exists()


def test_only_the_layers_matrices_are_packed(tmp_path: Path) -> None:
    base = tiny_checkpoint(tmp_path / "base")
    tensors = load_file(base / "model.safetensors")
    wide = {
        name: torch.randn(32, GROUP_SIZE) if ".layers." in name and t.ndim == 2 else t for name, t in tensors.items()
    }
    save_file(wide, base / "model.safetensors", metadata={"format": "pt"})
    assert main([str(base), str(tmp_path / "packed")]) == 0
    packed = load_file(tmp_path / "packed/model.safetensors")
    matrices = [name for name, tensor in wide.items() if ".layers." in name and tensor.ndim == 2]
    assert matrices
    for name in matrices:
        stem = name.removesuffix("weight")
        assert packed[f"{stem}weight_packed"].shape == (32, GROUP_SIZE // 8)
        assert packed[f"{stem}weight_shape"].tolist() == [32, GROUP_SIZE]
        assert name not in packed
    kept = wide.keys() - set(matrices)
    assert all(torch.equal(packed[name], wide[name]) for name in kept)
    config = json.loads((tmp_path / "packed/config.json").read_text())
    assert config["quantization_config"]["config_groups"]["group_0"]["weights"]["group_size"] == GROUP_SIZE
