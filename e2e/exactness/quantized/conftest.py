"""QSUN: the tasks' prefill engines in front of a W4A16 decoder. The reference decodes with the same rounded values."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from sunfleet_cluster.state import StateFolder
from support.engines import Engine
from support.judge import W4A16, Judge
from support.local_fleet import POOL, LocalFleet, LocalTask, local_fleet
from support.models import merge_adapter, quantize_base
from support.prompts import Prompts
from support.reference import Reference
from support.trial import Trial

TIMEOUT_SECONDS = 900


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """All of it is long."""
    for item in items:
        if item.path.is_relative_to(Path(__file__).parent):
            item.add_marker(pytest.mark.long)
            item.add_marker(pytest.mark.timeout(TIMEOUT_SECONDS))


@pytest.fixture(scope="package")
def local(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalFleet]:
    """A reference's adapter would sit on the rounded decoder, so it prefills with merged weights instead."""
    state, root = StateFolder.from_env(), tmp_path_factory.mktemp("quantized")
    python, base = state.engine / "bin/python", state.models / "base"
    merge_adapter(state, "toolcall", root / "toolcall")
    quantize_base(state, root / "w4a16", root / "plain")
    lora = Engine("lora", "prefill", base, root / "lora", python, state.models / "adapters/toolcall")
    full = Engine("full", "prefill", state.models / "arith-full", root / "full", python)
    decoders = [Engine(name, "decode", root / "w4a16", root / name, python) for name in ("decode-a", "decode-b")]
    tasks = [
        LocalTask("lora", lora, {"weights": str(root / "toolcall")}),
        LocalTask("full", full, {"weights": str(state.models / "arith-full")}),
    ]
    with (
        Reference(state, root / "plain") as reference,
        local_fleet(tasks, {POOL: decoders}, reference, root) as fleet,
    ):
        yield fleet


@pytest.fixture(scope="package")
def prompts(local: LocalFleet) -> Prompts:
    return Prompts.of_this_run(local.reference)


@pytest.fixture
def trial(local: LocalFleet, judge: Judge, prompts: Prompts) -> Trial:
    return Trial(local, judge, prompts, W4A16)
