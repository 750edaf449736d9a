"""Three real engines on loopback: a LoRA task, a full-weight task, and the decoder that both share.

The suite needs the engine's environment and the sample models: ``make engine-env models``.
"""

from __future__ import annotations

import os
import random
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from tests.engine.legs import Pair

from sunfleet_cluster.state import StateFolder
from support.engines import ROOT, Engine, Engines, tidy_up_on_sigterm
from support.reference import Reference

# Merging rounds to the checkpoint's type; here both sides read the merged weights, so float32 keeps them whole.
_MERGE = """
import sys, torch
from pathlib import Path
from sunfleet_tuner.merge import merge
merge(Path(sys.argv[1]), Path(sys.argv[2]), Path(sys.argv[3]), torch.float32)
"""


# The first test of a session waits for three engines, and a busy machine makes all of them slow.
TIMEOUT_SECONDS = 900

# What pods are started with whose clients call tools or read reasoning. This reasoning parser needs no special tokens,
# which the sample model does not have; together with a tool parser it would take all text for reasoning.
TOOLS = {"enable-auto-tool-choice": "", "tool-call-parser": "hermes"}
REASONING = {"reasoning-parser": "granite", "structured-outputs-config": '{"enable_in_reasoning": true}'}


def pytest_configure(config: pytest.Config) -> None:
    """Name this suite's marker; leave no engines behind."""
    config.addinivalue_line("markers", "brief: part of the engine suite's three-minute subset")
    tidy_up_on_sigterm()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Give this suite's tests its own timeout."""
    for item in items:
        if item.path.is_relative_to(Path(__file__).parent):
            item.add_marker(pytest.mark.timeout(TIMEOUT_SECONDS))


@dataclass(frozen=True)
class Task:
    """A pair of engines and the module that the reference shall prefill with."""

    pair: Pair
    module: dict[str, str]


@pytest.fixture(scope="session")
def state() -> StateFolder:
    return StateFolder.from_env()


@pytest.fixture(scope="session")
def reference(state: StateFolder) -> Iterator[Reference]:
    with Reference(state) as reference:
        yield reference


@pytest.fixture(scope="session")
def full_weights(state: StateFolder, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The tool-call adapter merged into its base: a prefill module of full weights."""
    target = tmp_path_factory.mktemp("models") / "toolcall"
    rooms = os.pathsep.join(str(ROOT / room) for room in ("crds", "worker_images/tuner"))
    command = [str(state.engine / "bin/python"), "-c", _MERGE]
    folders = [str(state.models / "base"), str(state.models / "adapters/toolcall"), str(target)]
    subprocess.run([*command, *folders], check=True, env={**os.environ, "PYTHONPATH": rooms}, capture_output=True)
    return target


@pytest.fixture(scope="session")
def engine_python(state: StateFolder) -> Path:
    return state.engine / "bin" / "python"


@pytest.fixture(scope="session")
def engines(
    state: StateFolder, full_weights: Path, engine_python: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[dict[str, Engine]]:
    """The engines by name. They start side by side."""
    root, base = tmp_path_factory.mktemp("engines"), state.models / "base"
    started = {
        "lora": Engine("lora", "prefill", base, root / "lora", engine_python, state.models / "adapters/arith"),
        "full": Engine("full", "prefill", full_weights, root / "full", engine_python, extra_args=TOOLS | REASONING),
        "decode": Engine("decode", "decode", base, root / "decode", engine_python, extra_args=REASONING),
    }
    running = Engines()
    try:
        running.start(*started.values())
        yield started
    finally:
        running.close()


@pytest.fixture(scope="session")
def other_decode(
    engines: dict[str, Engine], state: StateFolder, engine_python: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Engine]:
    """A second decode pod, which parses tool calls. After the first three: four at once are slow."""
    folder = tmp_path_factory.mktemp("other")
    engine = Engine("other", "decode", state.models / "base", folder, engine_python, extra_args=TOOLS)
    running = Engines()
    try:
        running.start(engine)
        yield engine
    finally:
        running.close()


@pytest.fixture(scope="session")
def lora_task(engines: dict[str, Engine], state: StateFolder) -> Task:
    pair = Pair(engines["lora"], engines["decode"], "a" * 32)
    return Task(pair, {"adapter": str(state.models / "adapters/arith")})


@pytest.fixture(scope="session")
def full_task(engines: dict[str, Engine], full_weights: Path) -> Task:
    return Task(Pair(engines["full"], engines["decode"], "b" * 32), {"weights": str(full_weights)})


@pytest.fixture(params=["lora", "full"])
def task(request: pytest.FixtureRequest, lora_task: Task, full_task: Task) -> Task:
    """Every test that takes it runs with both kinds of prefill module."""
    return lora_task if request.param == "lora" else full_task


@pytest.fixture
def rng(request: pytest.FixtureRequest) -> random.Random:
    """Random prompts that differ between tests and repeat between runs."""
    return random.Random(request.node.nodeid)  # noqa: S311 - test data
