"""What a start that cannot work says."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from sunfleet_worker.adapter import adapter_rank
from sunfleet_worker.errors import StartupError
from sunfleet_worker.flavour import cpu_limit
from sunfleet_worker.vllm_contract import ENGINE_VERSION, check_version

ROOT = Path(__file__).resolve().parents[3]


def start(**env: str) -> subprocess.CompletedProcess[str]:
    paths = os.pathsep.join(str(ROOT / room) for room in ("crds", "worker_images/vllm"))
    return subprocess.run(
        [sys.executable, "-m", "sunfleet_worker"],
        env={"PATH": os.environ["PATH"], "PYTHONPATH": paths, **env},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.parametrize(
    ("env", "words"),
    [
        ({}, "SUNFLEET_WORKER_ROLE: is not set"),
        ({"SUNFLEET_WORKER_ROLE": "both"}, "SUNFLEET_WORKER_ROLE: must be 'prefill'"),
        ({"SUNFLEET_WORKER_ROLE": "decode", "SUNFLEET_WORKER_EXTRA_ARGS": '[{"name": "model"}]'}, "may not be set"),
    ],
    ids=["no role", "an unknown role", "an argument that may not be set"],
)
def test_wrong_settings_end_with_one_message(env: dict[str, str], words: str) -> None:
    done = start(**env)
    assert done.returncode == 2
    assert words in done.stderr
    assert "Traceback" not in done.stderr


def test_another_engine_version_is_refused() -> None:
    check_version(ENGINE_VERSION)
    check_version(f"{ENGINE_VERSION}+cpu")
    with pytest.raises(StartupError, match="made for"):
        check_version("0.33.0")


@pytest.mark.parametrize(
    ("content", "limit"), [("max 100000", None), ("200000 100000", 2), ("50000 100000", 1), ("", None)]
)
def test_the_cpu_limit_is_whole_cpus(tmp_path: Path, content: str, limit: int | None) -> None:
    file = tmp_path / "cpu.max"
    file.write_text(content)
    assert cpu_limit(file) == limit


def test_without_cgroups_there_is_no_cpu_limit(tmp_path: Path) -> None:
    assert cpu_limit(tmp_path / "absent") is None


@pytest.mark.parametrize(
    ("config", "rank"),
    [('{"r": 8}', 8), ('{"r": 8, "rank_pattern": {"q_proj": 32}}', 32), ('{"r": 4, "rank_pattern": null}', 4)],
)
def test_an_adapters_rank_is_its_largest(tmp_path: Path, config: str, rank: int) -> None:
    (tmp_path / "adapter_config.json").write_text(config)
    assert adapter_rank(tmp_path) == rank


@pytest.mark.parametrize("config", [None, "", "[]", "{}", '{"r": "many"}'])
def test_a_folder_without_a_readable_adapter_is_refused(tmp_path: Path, config: str | None) -> None:
    if config is not None:
        (tmp_path / "adapter_config.json").write_text(config)
    with pytest.raises(StartupError, match=r"adapter_config\.json"):
        adapter_rank(tmp_path)
