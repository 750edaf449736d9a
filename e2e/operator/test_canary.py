"""A second revision beside the first: its share of real requests, steps on a real Prometheus, the way back (R10)."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from support import fakes
from support.canaries import (
    CLIENTS,
    FIRST,
    MAX_TOKENS,
    SECOND,
    TASK,
    CanaryFleet,
    measured_router,
    right,
    serves_on,
    weights,
    wrong,
    wrong_pairs,
)
from support.fakes import ApiProxy, uids
from support.golden import asking, golden_map
from support.kubectl import Json, Kubectl, wait_until
from support.load import Load, steady

pytestmark = [pytest.mark.long, pytest.mark.timeout(300)]
GOLDEN = "golden"
QUANTISED = "w4"  # another decoder, which reads the same KV and goes on with other tokens
BASE: Json = {"prefill": weights(FIRST), "decoderRef": {"name": fakes.DECODER}}
HALF = [{"weight": 50, "pauseSeconds": 600}]


@pytest.fixture(scope="module")
def fleet(
    kubectl: Kubectl, proxy: ApiProxy, make_namespace: Callable[[str], str], fake_image: str
) -> Iterator[CanaryFleet]:
    """Ready, with an operator that asks a real Prometheus; beside its decoder stands the quantised one."""
    namespace = make_namespace("canary")
    task = fakes.sun_model(TASK, FIRST, model_name=f"{namespace}/{TASK}")
    with measured_router(kubectl, proxy, fake_image) as url:
        made = CanaryFleet(kubectl, namespace, fakes.decoder(fake_image), [task], proxy, url)
        second = fakes.decoder(fake_image, name=QUANTISED, uri="hf://acme/code")
        kubectl.apply([*made.manifests, second], namespace)
        made.wait_ready()
        yield made


@pytest.fixture
def old(fleet: CanaryFleet) -> str:
    """The one revision that serves before the canary: whatever an earlier test has promoted is gone."""
    return fleet.settle(BASE)


@pytest.fixture
def load(fleet: CanaryFleet, old: str) -> Iterator[Load]:
    """Clients that ask all the time, as the steps need requests to be judged by; the first meets ``old`` already."""
    del old
    with steady(fleet.url, f"{fleet.namespace}/{TASK}", clients=CLIENTS, max_tokens=MAX_TOKENS) as running:
        yield running


def test_a_canary_with_other_answers_is_rolled_back_before_any_request(
    fleet: CanaryFleet, old: str, load: Load
) -> None:
    module, decoder = fleet.module(old), fleet.decoder_module()
    fleet.kubectl.apply([golden_map(GOLDEN, module, decoder)], fleet.namespace)
    steps = [{"weight": 50}, {"weight": 100}]
    fleet.try_canary({"prefill": weights(SECOND), "steps": steps}, verification=asking(GOLDEN))
    told = fleet.wait_phase("RolledBack")
    assert "prompt 0: token 0 is" in told["reason"]
    wait_until("its pods are gone", lambda: not fleet.of(told["revision"]), 60)
    assert fleet.traffic() == {old: 100}
    assert wrong(load.asked, [module], decoder) == []


def test_a_canary_takes_its_steps_under_load_and_is_promoted_with_the_pods_that_it_has(
    fleet: CanaryFleet, old: str, load: Load
) -> None:
    steps = [{"weight": 20, "pauseSeconds": 2}, {"weight": 60, "pauseSeconds": 2}, {"weight": 100}]
    fleet.try_canary({"prefill": weights(SECOND), "steps": steps})
    new = fleet.wait_phase("Progressing")["revision"]
    modules = [fleet.module(old), fleet.module(new)]
    shares = fleet.steps_taken(new)
    assert shares == sorted(shares), "a step back"
    assert {20, 60} <= set(shares)
    pods = uids(fleet.of(new))
    assert fleet.settle({**BASE, "prefill": weights(SECOND)}) == new
    assert uids(fleet.of(new)) == pods
    assert wrong(load.asked, modules, fleet.decoder_module()) == []
    assert modules[0] != modules[1]


def test_another_decoder_beside_the_present_one_takes_its_steps_and_no_request_crosses(
    fleet: CanaryFleet, old: str, load: Load
) -> None:
    steps = [{"weight": 30, "pauseSeconds": 2}, {"weight": 100}]
    fleet.try_canary({"decoderRef": {"name": QUANTISED}, "steps": steps})
    new = fleet.wait_phase("Progressing")["revision"]
    pairs = [
        (fleet.module(old), fleet.decoder_module()),
        (fleet.module(new), fleet.decoder_module(QUANTISED)),
    ]
    entries = {entry["revision"]: entry for entry in fleet.task["status"]["traffic"]}
    assert entries[new]["decoder"] == f"{fleet.namespace}/{QUANTISED}"
    assert entries[old]["cacheSalt"] != entries[new]["cacheSalt"]
    shares = fleet.steps_taken(new)
    assert shares == sorted(shares), "a step back"
    pods, decoders = uids(fleet.of(new)), uids(fleet.decoders(QUANTISED))
    assert fleet.settle({**BASE, "decoderRef": {"name": QUANTISED}}) == new
    assert (uids(fleet.of(new)), uids(fleet.decoders(QUANTISED))) == (pods, decoders)
    assert wrong_pairs(load.asked, pairs) == []
    served = [sum(one.reply.text == right(*pair, one.prompt) for one in load.asked) for pair in pairs]
    assert min(served) > 0, f"only one of the two decoders was asked: {served}"


@pytest.mark.parametrize(
    ("behaviour", "says"),
    [({"fail_status": 500}, "failed"), ({"tokens_per_second": 2}, "ms per output token instead of")],
    ids=["errors", "slowness"],
)
def test_a_second_decoder_that_fails_or_is_slow_is_rolled_back(
    fleet: CanaryFleet, old: str, load: Load, behaviour: Json, says: str
) -> None:
    engines = fleet.proxy.engines(fleet.decoders(QUANTISED))
    for engine in engines:
        engine.configure(**behaviour)
    try:
        fleet.try_canary({"decoderRef": {"name": QUANTISED}, "steps": HALF})
        told = fleet.wait_phase("RolledBack")
        assert says in told["reason"]
        wait_until("its pods are gone", lambda: not fleet.of(told["revision"]), 60)
        assert fleet.traffic() == {old: 100}
        assert fleet.decoders(QUANTISED), "the decoder itself is nobody's to take away"
        serves_on(load)
    finally:
        for engine in engines:
            engine.reset()


def test_a_canary_whose_engines_fail_requests_is_rolled_back_and_the_other_revision_serves_on(
    fleet: CanaryFleet, old: str, load: Load
) -> None:
    fleet.try_canary({"prefill": weights(SECOND), "steps": HALF})
    new = fleet.wait_phase("Progressing")["revision"]
    for engine in fleet.proxy.engines(fleet.of(new)):
        engine.configure(fail_status=500)
    told = fleet.wait_phase("RolledBack")
    assert "failed" in told["reason"]
    wait_until("its pods are gone", lambda: not fleet.of(new), 60)
    assert fleet.traffic() == {old: 100}
    serves_on(load)
