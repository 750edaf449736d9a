"""Quantises a checkpoint's linear layers to weight-only integers (W4A16): a QSUN decoder.

``sunfleet quantize BASE PACKED [--dequantized FOLDER]``

``PACKED`` is in compressed-tensors' ``pack-quantized`` format, as engines load it. ``FOLDER`` gets the same values as
ordinary float32 weights, for comparison with a reference that knows no quantisation. Rounding to nearest happens here;
GPTQ and AWQ are llmcompressor's, in an environment of its own (:mod:`.calibrated`).
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
from safetensors.torch import save_file
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer

from sunfleet_tuner.calibrated import quantize_with_calibration
from sunfleet_tuner.errors import TuningError
from sunfleet_tuner.files import whole_folder
from sunfleet_tuner.flags import add_quantize_flags
from sunfleet_tuner.weights import local_folder, opened, quantization_of, tensor_files

BITS: Final = 4
GROUP_SIZE: Final = 64
_PACKED_BITS: Final = (4, 8)  # what fills an int32, and what engines have kernels for


@dataclass(frozen=True)
class Grid:
    """Integers of ``bits``; ``group_size`` weights of one row share a scale."""

    bits: int = BITS
    group_size: int = GROUP_SIZE

    @property
    def lowest(self) -> int:
        return -(1 << (self.bits - 1))

    @property
    def highest(self) -> int:
        return (1 << (self.bits - 1)) - 1

    def config(self) -> dict[str, Any]:
        """The ``quantization_config`` of a checkpoint on this grid."""
        weights = {
            "num_bits": self.bits,
            "type": "int",
            "symmetric": True,
            "strategy": "group",
            "group_size": self.group_size,
            "dynamic": False,
            "actorder": None,
        }
        group = {"targets": ["Linear"], "input_activations": None, "output_activations": None, "weights": weights}
        return {
            "quant_method": "compressed-tensors",
            "format": "pack-quantized",
            "quantization_status": "compressed",
            "ignore": ["lm_head"],
            "kv_cache_scheme": None,
            "config_groups": {"group_0": group},
        }


@dataclass(frozen=True)
class Quantized:
    """A weight (rows, columns) as ``values`` int8 of the same shape, and ``scales`` (rows, columns / group size)."""

    values: torch.Tensor
    scales: torch.Tensor
    grid: Grid = Grid()

    @property
    def weight(self) -> torch.Tensor:
        """Float32 (rows, columns): what an engine computes with."""
        scales = self.scales.float().repeat_interleave(self.grid.group_size, dim=1)
        return self.values.float() * scales

    @property
    def packed(self) -> torch.Tensor:
        """Int32 (rows, columns * bits / 32): the first value in the lowest bits, each shifted to be unsigned."""
        rows, columns = self.values.shape
        each = 32 // self.grid.bits
        unsigned = (self.values.to(torch.int64) - self.grid.lowest).view(rows, columns // each, each)
        words = (unsigned << (torch.arange(each) * self.grid.bits)).sum(dim=-1)
        return torch.where(words >= 1 << 31, words - (1 << 32), words).to(torch.int32)


def quantize_weight(weight: torch.Tensor, grid: Grid = Grid()) -> Quantized:
    """Round a weight (rows, columns) to nearest; raises :class:`ValueError` when groups do not fit its columns."""
    rows, columns = weight.shape
    _check_groups(columns, grid)
    groups = weight.float().view(rows, columns // grid.group_size, grid.group_size)
    # The scale is stored in the checkpoint's type, so values are rounded against what will be read back.
    scales = (groups.abs().amax(dim=-1) / ((grid.highest - grid.lowest) / 2)).clamp(min=1e-8).to(weight.dtype)
    values = torch.clamp(torch.round(groups / scales.float().unsqueeze(-1)), grid.lowest, grid.highest)
    return Quantized(values.view(rows, columns).to(torch.int8), scales, grid)


def _check_groups(columns: int, grid: Grid) -> None:
    if columns % grid.group_size:
        fitting = [size for size in (128, 64, 32, 16) if columns % size == 0 and size < grid.group_size]
        hint = f": try group size {fitting[0]}" if fitting else ""
        raise ValueError(f"a weight of {columns} columns cannot be cut into groups of {grid.group_size}{hint}")


def quantize(base: Path, packed: Path | None, dequantized: Path | None = None, grid: Grid = Grid()) -> None:
    """Write the quantised checkpoint and its float32 twin, whichever is asked for; the tokenizer is copied.

    A grid of other than 4 or 8 bits has only the twin: engines load no such checkpoint.
    """
    if packed is not None:
        if grid.bits not in _PACKED_BITS:
            raise ValueError(f"weights of {grid.bits} bits cannot be packed for engines")
        with whole_folder(packed) as draft:
            save_file(dict(_packed_tensors(base, grid)), str(draft / "model.safetensors"), metadata={"format": "pt"})
            config = json.loads((base / "config.json").read_text())
            config["quantization_config"] = grid.config()
            (draft / "config.json").write_text(json.dumps(config, indent=2) + "\n")
            _copy_rest(base, draft)
    if dequantized is not None:
        with whole_folder(dequantized) as draft:
            model = AutoModelForCausalLM.from_pretrained(base, dtype=torch.float32)
            with torch.no_grad():
                for name, weight in _linear_weights(base):
                    model.get_parameter(name).copy_(quantize_weight(weight, grid).weight)
            model.save_pretrained(draft)
            _copy_rest(base, draft)


def _packed_tensors(base: Path, grid: Grid) -> Iterator[tuple[str, torch.Tensor]]:
    linear = dict(_linear_weights(base))
    for name, tensor in _tensors(base):
        if name not in linear:
            yield name, tensor
            continue
        quantized = quantize_weight(tensor, grid)
        stem = name.removesuffix("weight")
        yield f"{stem}weight_packed", quantized.packed
        yield f"{stem}weight_scale", quantized.scales
        yield f"{stem}weight_shape", torch.tensor(tensor.shape, dtype=torch.int64)


def _linear_weights(base: Path) -> Iterator[tuple[str, torch.Tensor]]:
    """What is quantised: the matrices of the layers; embeddings and the head stay."""
    for name, tensor in _tensors(base):
        if _is_matrix_of_a_layer(name, tensor.ndim):
            yield name, tensor


def check(base: Path, grid: Grid) -> None:
    """Raises OSError or ValueError when ``base`` cannot be put on ``grid``: before minutes of calibration."""
    AutoConfig.from_pretrained(base)
    if quantization_of(base) is not None:
        raise ValueError("it is quantised already: name the 16-bit checkpoint that it was made of")
    for file in tensor_files(base):
        with opened(file) as tensors:
            for name in tensors.keys():  # noqa: SIM118 - no mapping
                shape = tensors.get_slice(name).get_shape()
                if _is_matrix_of_a_layer(name, len(shape)):
                    _check_groups(shape[1], grid)


def _is_matrix_of_a_layer(name: str, dimensions: int) -> bool:
    return dimensions == 2 and name.endswith(".weight") and ".layers." in name


def _tensors(base: Path) -> Iterator[tuple[str, torch.Tensor]]:
    for file in tensor_files(base):
        with opened(file) as tensors:
            for name in tensors.keys():  # noqa: SIM118 - no mapping
                yield name, tensors.get_tensor(name)


def _copy_rest(base: Path, draft: Path) -> None:
    AutoTokenizer.from_pretrained(base).save_pretrained(draft)
    generation = base / "generation_config.json"
    if generation.is_file():
        (draft / generation.name).write_bytes(generation.read_bytes())


def run(args: argparse.Namespace) -> None:
    """Quantise as the flags say; TuningError when the checkpoint or the environment does not allow it."""
    try:
        base, grid = local_folder(args.base), Grid(args.bits, args.group_size)
        check(base, grid)
        if args.method == "rtn":
            quantize(base, args.packed, args.dequantized, grid)
            return
    except (OSError, ValueError) as error:
        raise TuningError(f"{args.base} cannot be quantised: {error}") from error
    if args.dequantized:
        raise TuningError("--dequantized is for --method rtn")
    quantize_with_calibration(base, args)


def main(arguments: Sequence[str]) -> int:
    """Exit code 0, or 2 with a message on stderr when the checkpoint cannot be quantised."""
    parser = argparse.ArgumentParser(prog="python -m sunfleet_tuner.quantize", description=__doc__)
    add_quantize_flags(parser)
    try:
        run(parser.parse_args(arguments))
    except TuningError as error:
        sys.stderr.write(f"{error}\n")
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
