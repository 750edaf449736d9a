"""Quantises a checkpoint's linear layers to W4A16 by rounding to nearest: a QSUN decoder without calibration.

``python -m sunfleet_tuner.quantize BASE PACKED [--dequantized FOLDER]``

``PACKED`` is in compressed-tensors' ``pack-quantized`` format, as engines load it. ``FOLDER`` gets the same values as
ordinary float32 weights, for comparison with a reference that knows no quantisation.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import torch
from safetensors import safe_open
from safetensors.torch import save_file
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer

from sunfleet_tuner.files import whole_folder

BITS: Final = 4
GROUP_SIZE: Final = 64  # weights of one row that share a scale
_PER_INT32: Final = 32 // BITS
_LOWEST, _HIGHEST = -(1 << (BITS - 1)), (1 << (BITS - 1)) - 1

_SCHEME: Final[dict[str, Any]] = {
    "quant_method": "compressed-tensors",
    "format": "pack-quantized",
    "quantization_status": "compressed",
    "ignore": ["lm_head"],
    "kv_cache_scheme": None,
    "config_groups": {
        "group_0": {
            "targets": ["Linear"],
            "input_activations": None,
            "output_activations": None,
            "weights": {
                "num_bits": BITS,
                "type": "int",
                "symmetric": True,
                "strategy": "group",
                "group_size": GROUP_SIZE,
                "dynamic": False,
                "actorder": None,
            },
        }
    },
}


@dataclass(frozen=True)
class Quantized:
    """A weight (rows, columns) as ``values`` int8 of the same shape, and ``scales`` (rows, columns / group size)."""

    values: torch.Tensor
    scales: torch.Tensor

    @property
    def weight(self) -> torch.Tensor:
        """Float32 (rows, columns): what an engine computes with."""
        scales = self.scales.float().repeat_interleave(GROUP_SIZE, dim=1)
        return self.values.float() * scales

    @property
    def packed(self) -> torch.Tensor:
        """Int32 (rows, columns / 8): eight values each, the first in the lowest bits, shifted to be unsigned."""
        rows, columns = self.values.shape
        unsigned = (self.values.to(torch.int64) - _LOWEST).view(rows, columns // _PER_INT32, _PER_INT32)
        words = (unsigned << (torch.arange(_PER_INT32) * BITS)).sum(dim=-1)
        return torch.where(words >= 1 << 31, words - (1 << 32), words).to(torch.int32)


def quantize_weight(weight: torch.Tensor) -> Quantized:
    """Round a weight (rows, columns) to nearest; raises :class:`ValueError` when groups do not fit its columns."""
    rows, columns = weight.shape
    if columns % GROUP_SIZE:
        raise ValueError(f"a weight of {columns} columns cannot be cut into groups of {GROUP_SIZE}")
    groups = weight.float().view(rows, columns // GROUP_SIZE, GROUP_SIZE)
    # The scale is stored in the checkpoint's type, so values are rounded against what will be read back.
    scales = (groups.abs().amax(dim=-1) / ((_HIGHEST - _LOWEST) / 2)).clamp(min=1e-8).to(weight.dtype)
    values = torch.clamp(torch.round(groups / scales.float().unsqueeze(-1)), _LOWEST, _HIGHEST)
    return Quantized(values.view(rows, columns).to(torch.int8), scales)


def quantize(base: Path, packed: Path, dequantized: Path | None = None) -> None:
    """Write the quantised checkpoint, and its float32 twin if asked for; tokenizer and templates are copied."""
    with whole_folder(packed) as draft:
        save_file(dict(_packed_tensors(base)), str(draft / "model.safetensors"), metadata={"format": "pt"})
        config = json.loads((base / "config.json").read_text())
        (draft / "config.json").write_text(json.dumps({**config, "quantization_config": _SCHEME}, indent=2) + "\n")
        _copy_rest(base, draft)
    if dequantized is not None:
        with whole_folder(dequantized) as draft:
            model = AutoModelForCausalLM.from_pretrained(base, dtype=torch.float32)
            with torch.no_grad():
                for name, weight in _linear_weights(base):
                    model.get_parameter(name).copy_(quantize_weight(weight).weight)
            model.save_pretrained(draft)
            _copy_rest(base, draft)


def _packed_tensors(base: Path) -> Iterator[tuple[str, torch.Tensor]]:
    linear = dict(_linear_weights(base))
    for name, tensor in _tensors(base):
        if name not in linear:
            yield name, tensor
            continue
        quantized = quantize_weight(tensor)
        stem = name.removesuffix("weight")
        yield f"{stem}weight_packed", quantized.packed
        yield f"{stem}weight_scale", quantized.scales
        yield f"{stem}weight_shape", torch.tensor(tensor.shape, dtype=torch.int64)


def _linear_weights(base: Path) -> Iterator[tuple[str, torch.Tensor]]:
    """What is quantised: the matrices of the layers; embeddings and the head stay."""
    for name, tensor in _tensors(base):
        if tensor.ndim == 2 and name.endswith(".weight") and ".layers." in name:
            yield name, tensor


def _tensors(base: Path) -> Iterator[tuple[str, torch.Tensor]]:
    for file in sorted(base.glob("*.safetensors")):
        with safe_open(file, framework="pt") as opened:
            for name in opened.keys():  # noqa: SIM118 - no mapping
                yield name, opened.get_tensor(name)


def _copy_rest(base: Path, draft: Path) -> None:
    AutoTokenizer.from_pretrained(base).save_pretrained(draft)
    generation = base / "generation_config.json"
    if generation.is_file():
        (draft / generation.name).write_bytes(generation.read_bytes())


def main(arguments: Sequence[str]) -> int:
    """Exit code 0, or 2 with a message on stderr when the checkpoint cannot be quantised."""
    parser = argparse.ArgumentParser(prog="python -m sunfleet_tuner.quantize", description=__doc__)
    parser.add_argument("base", type=Path)
    parser.add_argument("packed", type=Path)
    parser.add_argument("--dequantized", type=Path)
    given = parser.parse_args(arguments)
    try:
        AutoConfig.from_pretrained(given.base)
        quantize(given.base, given.packed, given.dequantized)
    except (OSError, ValueError) as error:
        sys.stderr.write(f"{given.base} cannot be quantised: {error}\n")
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
