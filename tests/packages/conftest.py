"""The tuner with the packages it meets only when asked: ``make e2e-packages``.

Unit tests have stand-ins for llmcompressor, lm-eval, Hugging Face datasets, TensorBoard and Weights & Biases. Here the
commands are run as a person would, in environments that hold the real ones at the versions that the documents name.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, ExitStack
from pathlib import Path
from typing import Any

import pytest
from tests.packages.environments import SECONDS, Python

from sunfleet_cluster.state import StateFolder
from sunfleet_fakes.harness import FakeEngine
from sunfleet_router_harness import FINGERPRINT, Engines, Router, RouterFactory

# The sample base with fewer layers, through the very same code: all thirty take GPTQ half an hour on two cores.
CUT = """
import sys
from transformers import AutoModelForCausalLM, AutoTokenizer
base, folder = sys.argv[1:]
model = AutoModelForCausalLM.from_pretrained(base, dtype="auto")
model.config.num_hidden_layers = 3
model.config.layer_types = model.config.layer_types[:3] if getattr(model.config, "layer_types", None) else None
model.model.layers = model.model.layers[:3]
model.save_pretrained(folder)
AutoTokenizer.from_pretrained(base).save_pretrained(folder)
print(1)
"""
# Told at the end of every run: what no test here has seen, and where it can be seen.
NOT_COVERED = (
    "llmcompressor on a GPU: this suite where torch sees one in the environment `compressor`",
    "GPTQ and AWQ of whole models: `sunfleet quantize`, half an hour for 135M parameters on two cores",
    "datasets, tasks and metrics of the hub, and the server of Weights & Biases: everything here is offline",
)


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """Say what the suite did not cover."""
    terminalreporter.section("not covered here, and where it would be")
    for line in NOT_COVERED:
        terminalreporter.line(line)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Give this suite's tests its own timeout: the first of a file makes what the others look at."""
    for item in items:
        if item.path.is_relative_to(Path(__file__).parent):
            item.add_marker(pytest.mark.timeout(2 * SECONDS))


@pytest.fixture(scope="session")
def state() -> StateFolder:
    return StateFolder.from_env()


def _environment(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Python:
    python = folder / "bin" / "python"
    assert python.is_file(), (
        f"no environment at {folder}: make {'engine-env' if folder.name == 'engine' else 'packages-env'}"
    )
    return Python(python, tmp_path_factory.mktemp(folder.name))


@pytest.fixture(scope="session")
def tuner(state: StateFolder, tmp_path_factory: pytest.TempPathFactory) -> Python:
    """Where lm-eval and the trackers are, beside what the tuner's image has."""
    return _environment(state.root / "packages" / "tuner", tmp_path_factory)


@pytest.fixture(scope="session")
def engine(state: StateFolder, tmp_path_factory: pytest.TempPathFactory) -> Python:
    """Where vLLM is."""
    return _environment(state.engine, tmp_path_factory)


@pytest.fixture(scope="session")
def compressor(state: StateFolder, tmp_path_factory: pytest.TempPathFactory) -> Python:
    """Where llmcompressor is, and nothing of ours."""
    return _environment(state.root / "packages" / "compressor", tmp_path_factory)


@pytest.fixture(scope="session")
def base(state: StateFolder) -> Path:
    """The sample base: SmolLM2-135M-Instruct."""
    return state.models / "base"


@pytest.fixture(scope="session")
def cut(tuner: Python, base: Path) -> Path:
    """The first three layers of the sample base, with its own weights, vocabulary and head."""
    folder = tuner.folder / "cut"
    tuner.ask(CUT, base, folder)
    return folder


@pytest.fixture(scope="module")
def engines() -> Any:
    with ExitStack() as stack:

        def start(role: Any, identity: str) -> FakeEngine:
            engine = FakeEngine(role, identity=identity, kv_fingerprint=FINGERPRINT, max_model_len=2048)
            return stack.enter_context(engine)

        yield Engines(
            start("prefill", "maths"), start("prefill", "maths"), start("prefill", "code"), start("decode", "base"),
            start("decode", "base"),
        )  # fmt: skip


@pytest.fixture
async def router(engines: Engines, tmp_path: Path) -> AsyncIterator[Router]:
    """A router before engines that answer anything."""
    async with AsyncExitStack() as stack:
        running = await RouterFactory(engines, tmp_path, stack)()
        yield running
        running.stop.set()
        await running.task


@pytest.fixture(scope="session")
def tiny(tuner: Python) -> Path:
    """A Llama of two layers with random weights and the words ``w0`` to ``w95``."""
    folder = tuner.folder / "tiny"
    script = (
        "import sys; from pathlib import Path; from tiny_models import *; tiny_checkpoint(Path(sys.argv[1])); print(1)"
    )
    tuner.ask(script, folder)
    return folder
