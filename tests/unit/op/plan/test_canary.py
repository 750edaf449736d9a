"""A canary beside what serves, told by status, Deployments and events."""

from __future__ import annotations

from typing import Any

import pytest

from sunfleet_api import names
from sunfleet_api.worker import VerificationReport
from sunfleet_operator.figures import ByRevision, Figures
from sunfleet_optest.canaries import GOOD, events, later, measured, told, traffic
from sunfleet_optest.objects import CONFIG, NEW, decoder, model, report
from sunfleet_optest.world import World

STEPS: list[dict[str, Any]] = [{"weight": 50, "pauseSeconds": 600}, {"weight": 5, "pauseSeconds": 600}]
CANARY: dict[str, Any] = {"prefill": {"adapter": {"uri": NEW}}, "steps": STEPS}


@pytest.fixture
def world() -> World:
    return World(with_pods=True)


def _replicas(world: World) -> dict[str, int]:
    return {revision: live["spec"]["replicas"] for revision, live in world.deployments("maths").items()}


async def _begun(world: World, canary: dict[str, Any] | None = None, **spec: Any) -> tuple[str, str]:
    """The serving revision and the candidate's."""
    world.store.put(decoder())
    world.store.put(model(**spec))
    await world.settle()
    (old,) = world.deployments("maths")
    world.store.put(model(canary=CANARY if canary is None else canary, **spec))
    await world.settle()
    return old, str(told(world).get("revision"))


async def test_it_takes_its_steps_from_the_smallest_and_waits_to_be_promoted(world: World) -> None:
    old, new = await _begun(world)
    assert traffic(world) == {old: 95, new: 5}
    assert (told(world)["phase"], told(world)["step"], told(world)["weight"]) == (
        "Progressing",
        0,
        5,
    )
    await measured(world, new, GOOD)
    assert traffic(world)[new] == 5, "the pause is not over"
    await later(world)
    assert traffic(world) == {old: 50, new: 50}
    await later(world)
    assert told(world)["phase"] == "Promotable"
    assert traffic(world) == {old: 50, new: 50}
    assert events(world) == ["CanaryProgressing", "CanaryProgressing", "CanaryPromotable"]
    assert world.condition("SunModel", "maths", "Ready")["status"] == "True"


async def test_its_pods_follow_its_share_and_the_others_stay(world: World) -> None:
    old, new = await _begun(world, replicas=4)
    assert _replicas(world) == {old: 4, new: 1}
    await measured(world, new, GOOD)
    await later(world)
    assert _replicas(world) == {old: 4, new: 2}


async def test_promoting_it_keeps_its_pods_and_never_lowers_its_share(world: World) -> None:
    old, new = await _begun(world, replicas=2)
    await measured(world, new, GOOD)
    await later(world)
    await later(world)
    before = {name: live["metadata"]["uid"] for name, live in world.deployments("maths").items()}
    world.store.put(model(uri=NEW, replicas=2))
    for _ in range(12):
        world.controllers()
        await world.reconcile()
        assert traffic(world).get(new, 0) >= 50
    await world.settle()
    assert {name: live["metadata"]["uid"] for name, live in world.deployments("maths").items()} == {new: before[new]}
    assert traffic(world) == {new: 100}
    assert told(world) == {}
    assert old not in _replicas(world)


async def test_a_canary_that_was_copied_up_and_left_there_says_so(world: World) -> None:
    _, new = await _begun(world)
    world.store.put(model(uri=NEW, canary=CANARY))
    await world.settle()
    assert traffic(world) == {new: 100}
    assert "remove spec.canary" in told(world)["reason"]


async def test_removing_it_takes_its_pods_and_its_share(world: World) -> None:
    old, _ = await _begun(world)
    world.store.put(model())
    await world.settle()
    assert (traffic(world), _replicas(world), told(world)) == ({old: 100}, {old: 1}, {})


BAD = {"errors": Figures(500, 50, 450, 4500), "slowness": Figures(500, 0, 900, 5000)}


@pytest.mark.parametrize("figures", BAD.values(), ids=BAD)
async def test_errors_and_slowness_roll_back_and_it_stays_so(world: World, figures: Figures) -> None:
    old, new = await _begun(world)
    await measured(world, new, figures)
    assert (told(world)["phase"], traffic(world), _replicas(world)) == (
        "RolledBack",
        {old: 100},
        {old: 1},
    )
    assert told(world)["reason"].startswith("step 1 (5 %): ")
    assert events(world)[-1] == "CanaryRolledBack"
    assert world.condition("SunModel", "maths", "Ready")["status"] == "True"
    # A lost status, as after a restored backup, tries nothing again.
    world.store.one("SunModel", "maths")["status"].pop("canary")
    world.measured = None
    await world.settle()
    assert (told(world)["phase"], _replicas(world)) == ("RolledBack", {old: 1})


async def test_after_a_roll_back_another_canary_or_the_same_one_added_again_begins_anew(world: World) -> None:
    _, new = await _begun(world)
    await measured(world, new, BAD["errors"])
    world.measured = None
    world.store.put(model(canary={**CANARY, "analysis": {"maxErrorPercent": 20}}))
    await world.settle()
    assert told(world)["phase"] == "Progressing"
    await measured(world, new, Figures(500, 400))
    world.measured = None
    world.store.put(model())
    await world.settle()
    world.store.put(model(canary=CANARY))
    await world.settle()
    assert told(world)["phase"] == "Progressing"


async def test_wrong_answers_to_golden_prompts_roll_it_back_before_any_request(world: World) -> None:
    world.verify = lambda job: (
        VerificationReport(passed=1, total=2, first_mismatch="prompt 1: token 0")
        if "adapters/maths2" in str(job["spec"])
        else VerificationReport(passed=2, total=2)
    )
    old, new = await _begun(world, verification={"policy": "Enforce"})
    assert (told(world)["phase"], traffic(world), _replicas(world)) == (
        "RolledBack",
        {old: 100},
        {old: 1},
    )
    assert "prompt 1: token 0" in told(world)["reason"]
    assert new != old
    verified = world.condition("SunModel", "maths", "Verified")
    assert verified["status"] == "True", "that speaks of what serves"


async def test_it_waits_for_its_golden_prompts(world: World) -> None:
    world.verify = lambda job: None if "adapters/maths2" in str(job["spec"]) else VerificationReport(passed=2, total=2)
    old, _ = await _begun(world, verification={"policy": "Enforce"})
    assert (told(world)["phase"], traffic(world)) == ("Verifying", {old: 100})
    assert "golden prompts" in told(world)["reason"]


async def test_without_metrics_no_step_is_taken(world: World) -> None:
    _, new = await _begun(world)
    world.measured = ByRevision(fault="no Prometheus is configured")
    await later(world, 6000)
    assert (told(world)["step"], traffic(world)[new]) == (0, 5)
    assert "no Prometheus is configured" in told(world)["reason"]


async def test_too_few_requests_hold_it_at_its_step(world: World) -> None:
    _, new = await _begun(world)
    await measured(world, new, Figures(199, 0, 1, 1))
    await later(world, 6000)
    assert told(world)["step"] == 0


async def test_paused_it_stays_at_its_step(world: World) -> None:
    _, new = await _begun(world)
    world.store.put(model(canary={**CANARY, "paused": True}))
    await measured(world, new, GOOD)
    await later(world, 6000)
    assert (told(world)["phase"], told(world)["step"]) == ("Progressing", 0)
    assert traffic(world)[new] == 5


async def test_pods_that_are_ill_get_no_requests_and_it_goes_on_when_they_are_well(world: World) -> None:
    old, new = await _begun(world)
    world.healthy = lambda live: live["metadata"]["labels"][names.LABEL_REVISION] != new
    await world.settle()
    assert traffic(world) == {old: 100}
    assert told(world)["phase"] == "Progressing"
    world.healthy = lambda _: True
    await world.settle()
    assert traffic(world) == {old: 95, new: 5}


async def test_pods_that_never_come_up_roll_it_back(world: World) -> None:
    old, new = await _begun(world, {**CANARY, "steps": [{"weight": 5, "pauseSeconds": 1}]})
    world.healthy = lambda live: live["metadata"]["labels"][names.LABEL_REVISION] != new
    await world.settle()
    late = {"type": "Progressing", "status": "False", "reason": "ProgressDeadlineExceeded"}
    live = world.deployments("maths")[new]
    live["status"]["conditions"] = [late]
    await world.reconcile()
    assert told(world)["phase"] == "RolledBack"
    await world.settle()
    assert _replicas(world) == {old: 1}


async def test_another_decoder_beside_the_present_one(world: World) -> None:
    world.store.put(decoder("quantised", model={"uri": "pvc://models/base-w4"}))
    world.resolve = lambda uri: report(uri, config=CONFIG) if uri.endswith("w4") else report(uri)
    old, new = await _begun(world, {"decoderRef": {"name": "quantised"}, "steps": STEPS})
    entries = {entry["revision"]: entry for entry in world.status("SunModel", "maths")["traffic"]}
    assert {name: entry["decoder"] for name, entry in entries.items()} == {old: "team/base", new: "team/quantised"}
    assert entries[old]["cacheSalt"] != entries[new]["cacheSalt"]
    assert world.status("SharedDecoder", "quantised")["attachedModels"] == 1
    assert names.FINALIZER in world.store.one("SharedDecoder", "quantised")["metadata"]["finalizers"]
    # Its own roll-out is over: the task's other revision makes KV for the other decoder.
    assert world.condition("SharedDecoder", "quantised", "Ready")["status"] == "True"


async def test_a_candidate_that_cannot_be_made_says_why_and_touches_nothing(world: World) -> None:
    old, _ = await _begun(world, {"decoderRef": {"name": "nobody"}, "steps": STEPS})
    assert (traffic(world), _replicas(world)) == ({old: 100}, {old: 1})
    assert "there is no SharedDecoder team/nobody" in told(world)["reason"]
    assert world.condition("SunModel", "maths", "Ready")["status"] == "True"


async def test_the_other_revisions_roll_on_beside_it(world: World) -> None:
    old, new = await _begun(world)
    third = "pvc://models/adapters/maths3"
    world.store.put(model(uri=third, canary=CANARY))
    await world.settle()
    shares = traffic(world)
    assert old not in shares
    assert shares[new] == 5
    assert set(_replicas(world)) == set(shares)


async def test_a_paused_task_freezes_its_canary(world: World) -> None:
    _, new = await _begun(world)
    before = told(world)
    world.store.put(model(canary=CANARY, paused=True))
    await measured(world, new, BAD["errors"])
    await later(world)
    assert told(world) == before
    assert traffic(world)[new] == 5


async def test_at_zero_replicas_it_has_no_pods_either(world: World) -> None:
    old, new = await _begun(world)
    world.store.put(model(canary=CANARY, replicas=0))
    await world.settle()
    assert _replicas(world) == {old: 0, new: 0}
    assert traffic(world) == {old: 100}


async def test_nothing_is_written_while_nothing_changes(world: World) -> None:
    _, new = await _begun(world)
    await measured(world, new, Figures(10, 0, 1, 1))
    before = len(world.store.writes)
    for requests in (20, 30, 40):
        world.measured = ByRevision({new: Figures(requests, 0, 1, 1)})
        await world.reconcile()
    assert world.store.writes[before:] == []
