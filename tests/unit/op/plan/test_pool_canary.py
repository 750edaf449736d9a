"""A second adapter of a task on the pods of its PrefillPool, told by status, what the pods have loaded, and events."""

from __future__ import annotations

from typing import Any

import pytest

from sunfleet_api.names import LABEL_ROLE, ROLE_RESOLVER
from sunfleet_api.worker import VerificationReport
from sunfleet_operator.figures import ByRevision, Figures
from sunfleet_optest.canaries import GOOD, events, later, measured, told, traffic
from sunfleet_optest.golden import CHECKED, WRONG
from sunfleet_optest.objects import NEW, decoder, pool, pooled
from sunfleet_optest.world import World

THIRD = "pvc://models/adapters/maths3"
BAD = {"errors": Figures(500, 50, 450, 4500), "slowness": Figures(500, 0, 900, 5000)}
DEADLINE_SECONDS = 1800  # rollout.progressDeadlineSeconds, unless set
REFERENCE = {"poolRef": {"name": "spool"}}


def _canary_of(uri: str) -> dict[str, Any]:
    steps = [{"weight": 5, "pauseSeconds": 600}, {"weight": 50, "pauseSeconds": 600}]
    return {"prefill": {"adapter": {"uri": uri, **REFERENCE}}, "steps": steps}


CANARY = _canary_of(NEW)


@pytest.fixture
def world() -> World:
    return World(with_pods=True)


def _loaded(world: World) -> set[str]:
    """Revisions that the pool's pods have loaded."""
    return {name.rpartition("-")[2] for names in world.engines.loaded().values() for name in names}


async def _begun(world: World, canary: dict[str, Any] = CANARY, **spec: Any) -> tuple[str, str]:
    """The serving revision and the candidate's."""
    for made in (decoder(), pool(replicas=2), pooled(**spec)):
        world.store.put(made)
    await world.settle()
    (old,) = traffic(world)
    world.store.put(pooled(canary=canary, **spec))
    await world.settle()
    return old, str(told(world).get("revision"))


async def test_the_pods_load_it_beside_the_serving_one_and_it_takes_its_steps(world: World) -> None:
    old, new = await _begun(world)
    pods = {pod["metadata"]["uid"] for pod in world.engines.pods()}
    assert traffic(world) == {old: 95, new: 5}
    assert _loaded(world) == {old, new}
    entries = {entry["revision"]: entry for entry in world.status("SunModel", "maths")["traffic"]}
    assert entries[new]["prefill"]["pool"] == "team/spool"
    assert entries[new]["prefill"]["adapter"] == f"team.maths-{new}"
    assert entries[old]["cacheSalt"] != entries[new]["cacheSalt"]
    await measured(world, new, GOOD)
    assert traffic(world)[new] == 5, "the pause is not over"
    await later(world)
    assert traffic(world) == {old: 50, new: 50}
    await later(world)
    assert told(world)["phase"] == "Promotable"
    assert events(world) == ["CanaryProgressing", "CanaryProgressing", "CanaryPromotable"]
    assert world.condition("SunModel", "maths", "Ready")["status"] == "True"
    assert {pod["metadata"]["uid"] for pod in world.engines.pods()} == pods


async def test_promoted_it_serves_alone_at_once_and_the_pods_let_go_of_the_other(world: World) -> None:
    old, new = await _begun(world)
    world.store.put(pooled(uri=NEW))
    for _ in range(12):
        world.controllers()
        await world.reconcile()
        assert traffic(world).get(new, 0) >= 5
        assert new in _loaded(world)
    await world.settle()
    assert (traffic(world), _loaded(world), told(world)) == ({new: 100}, {new}, {})
    assert old != new


async def test_copied_up_and_left_there_it_says_so(world: World) -> None:
    _, new = await _begun(world)
    world.store.put(pooled(uri=NEW, canary=CANARY))
    await world.settle()
    assert traffic(world) == {new: 100}
    assert "remove spec.canary" in told(world)["reason"]


async def test_removed_it_has_no_share_and_the_pods_let_go(world: World) -> None:
    old, _ = await _begun(world)
    world.store.put(pooled())
    await world.settle()
    assert (traffic(world), _loaded(world), told(world)) == ({old: 100}, {old}, {})


@pytest.mark.parametrize("figures", BAD.values(), ids=BAD)
async def test_errors_and_slowness_roll_back_and_it_stays_so(world: World, figures: Figures) -> None:
    old, new = await _begun(world)
    await measured(world, new, figures)
    assert (told(world)["phase"], traffic(world), _loaded(world)) == (
        "RolledBack",
        {old: 100},
        {old},
    )
    assert events(world)[-1] == "CanaryRolledBack"
    live = world.store.one("SunModel", "maths")
    live["status"] = {key: value for key, value in live["status"].items() if key != "canary"}
    await world.settle()
    assert (told(world)["phase"], _loaded(world)) == ("RolledBack", {old}), "a lost status tries it again"
    world.store.put(pooled(canary=_canary_of(THIRD)))
    await world.settle()
    assert (told(world)["phase"], len(_loaded(world))) == ("Progressing", 2)


async def test_wrong_answers_to_golden_prompts_roll_it_back_before_any_request(world: World) -> None:
    shares: list[int] = []
    old, _ = await _begun(world, {**CANARY, "paused": True}, **CHECKED)
    world.verify = lambda _: WRONG
    world.store.put(pooled(canary=_canary_of(THIRD), **CHECKED))
    for _ in range(12):
        world.controllers()
        await world.reconcile()
        third = world.status("SunModel", "maths").get("canary", {}).get("revision", "")
        shares.append(traffic(world).get(third, 0))
    await world.settle()
    assert "prompt 1: token 4 is 7, expected 9" in told(world)["reason"]
    assert (told(world)["phase"], traffic(world), _loaded(world)) == (
        "RolledBack",
        {old: 100},
        {old},
    )
    assert not any(shares)
    assert world.condition("SunModel", "maths", "Verified")["status"] == "True"


async def test_it_waits_for_its_golden_prompts(world: World) -> None:
    old, _ = await _begun(world, **CHECKED)
    world.verify = lambda _: None
    world.store.put(pooled(canary=_canary_of(THIRD), **CHECKED))
    await world.settle()
    assert (told(world)["phase"], traffic(world)) == ("Verifying", {old: 100})
    world.verify = lambda _: VerificationReport(passed=3, total=3)
    await world.settle()
    assert told(world)["phase"] == "Progressing"


async def test_what_no_pod_can_load_is_its_own_fault_and_rolls_it_back_after_the_deadline(world: World) -> None:
    old, _ = await _begun(world, {"prefill": {"adapter": {"uri": THIRD, **REFERENCE}}, "steps": []})
    third = told(world)["revision"]
    world.store.put(pooled())
    await world.settle()
    world.engines.broken = {third: ("LoraRefused", "its shapes are wrong")}
    world.store.put(pooled(canary=_canary_of(THIRD)))
    await world.settle()
    assert (told(world)["phase"], traffic(world)) == ("Verifying", {old: 100})
    assert "LoraRefused" in told(world)["reason"]
    assert world.condition("SunModel", "maths", "Ready")["status"] == "True"
    assert world.condition("SunModel", "maths", "PrefillReady")["status"] == "True"
    soon = (await world.plan("SunModel", "maths")).requeue_after
    assert soon is not None
    assert soon <= DEADLINE_SECONDS
    await later(world, DEADLINE_SECONDS + 1)
    assert (told(world)["phase"], _loaded(world)) == ("RolledBack", {old})
    assert "its shapes are wrong" in told(world)["reason"]


async def test_a_canary_that_cannot_be_loaded_yet_is_not_blamed_on_the_task(world: World) -> None:
    """Both are missing; what pods say of one is not told of the other."""
    for made in (decoder(), pool(), pooled(canary=CANARY)):
        world.store.put(made)
    world.engines.broken = {"team.maths-": ("AdapterFailed", "none of them")}
    await world.settle()
    task = world.condition("SunModel", "maths", "PrefillReady")
    assert (task["status"], task["reason"]) == ("False", "AdapterFailed")
    world.engines.broken = {told(world)["revision"]: ("AdapterFailed", "only the canary")}
    await world.settle()
    assert world.condition("SunModel", "maths", "PrefillReady")["status"] == "True"
    assert "only the canary" in told(world)["reason"]


async def test_while_the_pool_sleeps_it_waits_and_is_not_given_up(world: World) -> None:
    old, new = await _begun(world)
    world.store.put(pool(replicas=0))
    await world.settle()
    await later(world)
    assert (told(world)["phase"], traffic(world)) == ("Progressing", {old: 100})
    world.store.put(pool(replicas=1))
    await world.settle()
    assert traffic(world) == {old: 95, new: 5}


async def test_a_restart_of_every_engine_takes_its_share_away_until_it_is_loaded_again(world: World) -> None:
    old, new = await _begun(world)
    for pod in world.engines.pods():
        world.engines.restart(pod["metadata"]["name"])
    await world.reconciler()(world.served()[-1])  # the task alone: nothing is loaded yet
    assert traffic(world) == {old: 100}
    await world.settle()
    assert traffic(world) == {old: 95, new: 5}


async def test_while_its_uri_is_resolved_the_task_serves_on_and_its_own_resolver_is_let_be(world: World) -> None:
    old, _ = await _begun(world)
    answer, world.resolve = world.resolve, lambda uri: answer(uri, **({"digest": ""} if uri == THIRD else {}))
    world.store.put(pooled(canary=_canary_of(THIRD)))
    await world.settle()
    assert (told(world)["phase"], traffic(world)) == ("Verifying", {old: 100})
    assert "WeightsReady" in told(world)["reason"]
    jobs = [job for job in world.store.all("Job") if job["metadata"]["labels"][LABEL_ROLE] == ROLE_RESOLVER]
    assert len(jobs) == 1


async def test_the_task_moves_on_beside_it(world: World) -> None:
    old, new = await _begun(world)
    world.store.put(pooled(uri=THIRD, canary=CANARY))
    await world.settle()
    shares = traffic(world)
    assert old not in shares
    assert shares[new] == 5
    assert _loaded(world) == set(shares)


async def test_a_paused_task_freezes_it(world: World) -> None:
    _, new = await _begun(world)
    before = told(world)
    world.store.put(pooled(canary=CANARY, paused=True))
    await measured(world, new, BAD["errors"])
    await later(world)
    assert (told(world), traffic(world)[new]) == (before, 5)


@pytest.mark.parametrize(
    "canary",
    [
        {"decoderRef": {"name": "other"}},
        {"prefill": {"adapter": {"uri": NEW}}},
        {**CANARY, "decoderRef": {"name": "b"}},
    ],
    ids=["another decoder", "pods of its own", "both"],
)
async def test_one_that_the_pool_cannot_hold_does_nothing_which_is_said(world: World, canary: dict[str, Any]) -> None:
    old, _ = await _begun(world, canary)
    assert "spec.canary" in world.condition("SunModel", "maths", "FieldsIgnored")["message"]
    assert world.condition("SunModel", "maths", "Ready")["status"] == "True"
    assert (told(world), traffic(world), _loaded(world)) == ({}, {old: 100}, {old})


async def test_nothing_is_written_while_nothing_changes(world: World) -> None:
    _, new = await _begun(world)
    await measured(world, new, Figures(10, 0, 1, 1))
    before = len(world.store.writes)
    for requests in (20, 30, 40):
        world.measured = ByRevision({new: Figures(requests, 0, 1, 1)})
        await world.reconcile()
    assert world.store.writes[before:] == []
