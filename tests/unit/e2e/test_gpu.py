"""The GPU script runs every way of stepping, says where it cannot run, and asks engines only for what they take."""

from __future__ import annotations

import pytest

import gpu
from sunfleet_api.engine import ALLOWED_EXTRA_ARGS
from sunfleet_api.worker import WorkerSettings
from support import device


def test_every_pair_of_scheduler_and_model_runner_is_run_and_the_defaults_come_first() -> None:
    assert [(stepping.overlap, stepping.runner) for stepping in gpu.STEPPINGS] == [
        (True, 2), (True, 1), (False, 2), (False, 1),
    ]  # fmt: skip


@pytest.mark.parametrize("stepping", gpu.STEPPINGS, ids=lambda stepping: stepping.name)
def test_engines_inherit_how_they_shall_step(stepping: gpu.Stepping, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in stepping.variables.items():
        monkeypatch.setenv(name, value)
    assert WorkerSettings(role="decode").overlap_steps is stepping.overlap
    assert device.chosen() == "cuda"
    assert stepping.variables["VLLM_USE_V2_MODEL_RUNNER"] == ("1" if stepping.runner == 2 else "0")


def test_without_a_gpu_it_says_so(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr("sys.argv", ["gpu.py"])
    monkeypatch.setenv("PATH", "")
    assert gpu.main() == gpu.EXIT_NO_GPU
    assert "make e2e-exactness-local" in capsys.readouterr().err


@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_flags_of_a_device_are_engine_arguments_that_pods_may_have(dtype: str) -> None:
    assert set(device.engine_flags("cuda", dtype)) <= set(ALLOWED_EXTRA_ARGS)
    assert device.engine_flags("cpu", dtype) == {}


def test_an_unknown_device_is_refused() -> None:
    assert device.chosen({}) == "cpu"
    with pytest.raises(ValueError, match="must be cpu or cuda"):
        device.chosen({device.VARIABLE: "tpu"})
