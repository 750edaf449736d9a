"""What a checkpoint says of its weights."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from sunfleet_worker.checkpoint import weight_bits

GROUP = {"targets": ["Linear"], "weights": {"num_bits": 4}}


@pytest.mark.parametrize(
    ("config", "bits"),
    [
        ({}, None),
        ({"quantization_config": None}, None),
        ({"quantization_config": {"config_groups": {"group_0": GROUP}}}, 4),
        ({"quantization_config": {"config_groups": {"a": {"weights": {"num_bits": 8}}, "b": GROUP}}}, 4),
        ({"quantization_config": {"quant_method": "gptq", "bits": 4}}, 4),
        ({"quantization_config": {"quant_method": "awq", "w_bit": 4}}, 4),
        ({"quantization_config": {"quant_method": "fp8"}}, None),
        ({"quantization_config": {"config_groups": {"a": {"weights": None}}}}, None),
    ],
)
def test_bits_are_read_from_every_usual_form(tmp_path: Path, config: object, bits: int | None) -> None:
    (tmp_path / "config.json").write_text(json.dumps(config))
    assert weight_bits(tmp_path) == bits


def test_what_cannot_be_read_is_left_to_the_engine(tmp_path: Path) -> None:
    assert weight_bits(tmp_path) is None
    (tmp_path / "config.json").write_text("no JSON")
    assert weight_bits(tmp_path) is None
