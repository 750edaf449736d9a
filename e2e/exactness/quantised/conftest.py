"""Two 16-bit tasks over a W4A16 decoder, and a stock server of that decoder that goes the ordinary way."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from sunfleet_cluster.state import StateFolder
from support.engines import ROOT
from support.exact import FLOAT16
from support.judge import W4A16, Judge
from support.local_fleet import POOL, LocalFleet, local_fleet
from support.local_tasks import SMALL_POOL, decoder, lora_and_full
from support.prompts import Prompts
from support.reference import Reference
from support.stock import ordinary_server
from support.trial import Trial

# The CPU kernel for W4A16 knows no float32; of the two 16-bit types this one has three more bits of mantissa.
DTYPE = "float16"


@dataclass(frozen=True)
class Quantised:
    """``packed``: as engines load it; ``plain``: the same values as ordinary float32 weights, for the reference."""

    packed: Path
    plain: Path


@pytest.fixture(scope="package")
def weights(tmp_path_factory: pytest.TempPathFactory) -> Quantised:
    """The sample base, quantised as a user would."""
    state, root = StateFolder.from_env(), tmp_path_factory.mktemp("w4a16")
    made = Quantised(root / "packed", root / "plain")
    folders = [str(state.models / "base"), str(made.packed), "--dequantized", str(made.plain)]
    rooms = os.pathsep.join(str(ROOT / room) for room in ("crds", "worker_images/tuner"))
    command = [str(state.engine / "bin/python"), "-W", "ignore", "-m", "sunfleet_tuner.quantize", *folders]
    subprocess.run(command, check=True, env={**os.environ, "PYTHONPATH": rooms})
    return made


@pytest.fixture(scope="package")
def local(tmp_path_factory: pytest.TempPathFactory, weights: Quantised) -> Iterator[LocalFleet]:
    state, root = StateFolder.from_env(), tmp_path_factory.mktemp("qsun")
    quantised = decoder(state, root, "w4a16", weights.packed, dtype=DTYPE)
    # One decode engine, so a stream goes on where it broke off: soon, please.
    settings = {"SUNFLEET_ROUTER_SUSPECT_SECONDS": "0.1"}
    tasks = lora_and_full(state, root, dtype=DTYPE)
    with (
        Reference(state, weights.plain) as reference,
        local_fleet(tasks, {POOL: [quantised]}, reference, root, **settings) as fleet,
    ):
        yield fleet


@pytest.fixture(scope="package")
def stock_decoder(tmp_path_factory: pytest.TempPathFactory, weights: Quantised, local: LocalFleet) -> Iterator[str]:
    """URL of vLLM's own decoder of the same weights; it computes what it is not given, and the last position always."""
    python, folder = local.tasks["full"].prefill.python, tmp_path_factory.mktemp("ordinary") / "decode"
    with ordinary_server(python, weights.packed, folder, "kv_consumer", flags={"dtype": DTYPE, **SMALL_POOL}) as server:
        yield server.url


@pytest.fixture(scope="package")
def prompts(local: LocalFleet, seed: int) -> Prompts:
    return Prompts.of(local.reference, seed)


@pytest.fixture
def trial(local: LocalFleet, judge: Judge, prompts: Prompts) -> Trial:
    return Trial(local, judge, prompts, W4A16, FLOAT16)
