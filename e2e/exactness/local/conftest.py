"""Two tasks, two decode engines and a router on loopback; the suite needs no cluster."""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest

from sunfleet_cluster.state import StateFolder
from support.engines import Engine
from support.judge import Judge
from support.local_fleet import POOL, LocalFleet, LocalTask, local_fleet
from support.prompts import Prompts
from support.reference import Reference
from support.trial import Trial

TIMEOUT_SECONDS = 900  # the first test waits for four engines
# 5,800 tokens. The demo's engines may stand beside these, and all together must fit into 24 GiB.
SMALL_POOL = {"kv-cache-memory-bytes": str(256 << 20)}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Give these tests their own timeout."""
    for item in items:
        if item.path.is_relative_to(__file__.rpartition("/")[0]):
            item.add_marker(pytest.mark.timeout(TIMEOUT_SECONDS))


@pytest.fixture(scope="package")
def local(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalFleet]:
    state, root = StateFolder.from_env(), tmp_path_factory.mktemp("fleet")
    python, base, adapter = state.engine / "bin/python", state.models / "base", state.models / "adapters/toolcall"
    lora = Engine("lora", "prefill", base, root / "lora", python, adapter, SMALL_POOL)
    full = Engine("full", "prefill", state.models / "arith-full", root / "full", python, extra_args=SMALL_POOL)
    decoders = [
        Engine(name, "decode", base, root / name, python, extra_args=SMALL_POOL, drain_seconds=1)
        for name in ("decode-a", "decode-b")
    ]
    tasks = [
        LocalTask("lora", lora, {"adapter": str(adapter)}),
        LocalTask("full", full, {"weights": str(state.models / "arith-full")}),
    ]
    with Reference(state) as reference, local_fleet(tasks, {POOL: decoders}, reference, root) as fleet:
        yield fleet


@pytest.fixture(scope="package")
def prompts(local: LocalFleet) -> Prompts:
    return Prompts.of_this_run(local.reference)


@pytest.fixture
def trial(local: LocalFleet, judge: Judge, prompts: Prompts) -> Trial:
    return Trial(local, judge, prompts)


@pytest.fixture
def rng(request: pytest.FixtureRequest) -> random.Random:
    """Differs between tests and repeats between runs."""
    return random.Random(request.node.nodeid)  # noqa: S311 - test data
