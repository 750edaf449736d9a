"""Two tasks, two decode engines and a router on loopback; the suite needs no cluster."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from sunfleet_cluster.state import StateFolder
from support.judge import Judge
from support.local_fleet import POOL, LocalFleet, local_fleet
from support.local_tasks import decoder, lora_and_full
from support.prompts import Prompts
from support.reference import Reference
from support.trial import Trial


@pytest.fixture(scope="package")
def local(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalFleet]:
    state, root = StateFolder.from_env(), tmp_path_factory.mktemp("fleet")
    decoders = [decoder(state, root, name, drain_seconds=1) for name in ("decode-a", "decode-b")]
    tasks = lora_and_full(state, root)
    with Reference(state) as reference, local_fleet(tasks, {POOL: decoders}, reference, root) as fleet:
        yield fleet


@pytest.fixture(scope="package")
def prompts(local: LocalFleet, seed: int) -> Prompts:
    return Prompts.of(local.reference, seed)


@pytest.fixture
def trial(local: LocalFleet, judge: Judge, prompts: Prompts) -> Trial:
    return Trial(local, judge, prompts)
