"""Two tasks over one decode engine that has room for two of the streams that it is given."""

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

# The longest sequence, so where every answer ends: 6 of the pool's 11 blocks (the engine keeps the 12th for itself).
MAX_MODEL_LEN = 192
POOL_BLOCKS = {"num-gpu-blocks-override": "12"}


@pytest.fixture(scope="package")
def crowded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalFleet]:
    """The router counts on answers of one token where a client names no limit, so it sends far more than fits."""
    state, root = StateFolder.from_env(), tmp_path_factory.mktemp("crowded")
    small = decoder(state, root, "small", extra_args=POOL_BLOCKS, max_model_len=MAX_MODEL_LEN)
    tasks = lora_and_full(state, root, max_model_len=MAX_MODEL_LEN)
    settings = {"SUNFLEET_ROUTER_ASSUMED_OUTPUT_TOKENS": "1"}
    with Reference(state) as reference, local_fleet(tasks, {POOL: [small]}, reference, root, **settings) as fleet:
        yield fleet


@pytest.fixture
def trial(crowded: LocalFleet, judge: Judge, seed: int) -> Trial:
    return Trial(crowded, judge, Prompts.of(crowded.reference, seed))
