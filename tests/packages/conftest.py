"""The tuner with the packages it meets only when asked: ``make e2e-packages``.

Unit tests have stand-ins for llmcompressor, lm-eval, Hugging Face datasets, TensorBoard and Weights & Biases. Here the
commands are run as a person would, in environments that hold the real ones at the versions that the documents name.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.packages.environments import SECONDS, Python

from sunfleet_cluster.state import StateFolder


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
def tiny(tuner: Python) -> Path:
    """A Llama of two layers with random weights and the words ``w0`` to ``w95``."""
    folder = tuner.folder / "tiny"
    script = (
        "import sys; from pathlib import Path; from tiny_models import *; tiny_checkpoint(Path(sys.argv[1])); print(1)"
    )
    tuner.ask(script, folder)
    return folder
