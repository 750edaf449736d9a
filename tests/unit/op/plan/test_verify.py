"""Golden prompts before traffic, told by status, Deployments and Jobs."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sunfleet_api import names
from sunfleet_api.verification import Verification
from sunfleet_api.worker import VerificationReport
from sunfleet_operator import metrics
from sunfleet_optest.canaries import traffic
from sunfleet_optest.golden import CHECKED, WRONG
from sunfleet_optest.objects import NEW, decoder, model, profile
from sunfleet_optest.world import World


@pytest.fixture
def world() -> World:
    return World(with_pods=True)


def _verdict(world: World) -> tuple[str, str]:
    found = world.condition("SunModel", "maths", "Verified")
    return found.get("status", ""), found.get("reason", "")


def _message(world: World) -> str:
    return str(world.condition("SunModel", "maths", "Verified")["message"])


def _ready(world: World) -> tuple[str, str]:
    found = world.condition("SunModel", "maths", "Ready")
    return found["status"], found["reason"]


def _jobs(world: World) -> list[dict[str, Any]]:
    return [job for job in world.store.all("Job") if job["metadata"]["labels"][names.LABEL_ROLE] == "verifier"]


async def _served(world: World, **spec: Any) -> str:
    world.store.put(decoder())
    world.store.put(model(**spec))
    await world.settle()
    (revision,) = world.deployments("maths")
    return revision


async def test_a_first_revision_gets_no_traffic_before_it_has_answered_exactly(world: World) -> None:
    world.verify = lambda _: None
    revision = await _served(world, **CHECKED)
    assert (traffic(world), _verdict(world), _ready(world)[0]) == ({}, ("Unknown", "Verifying"), "False")
    world.verify = lambda _: VerificationReport(passed=3, total=3)
    await world.settle()
    assert (traffic(world), _verdict(world), _ready(world)[0]) == ({revision: 100}, ("True", "Verified"), "True")
    status = world.status("SunModel", "maths")["verification"]
    assert (status["revision"], status["passed"], status["total"]) == (revision, 3, 3)
    assert _jobs(world) == []


async def test_the_job_asks_pods_of_this_revision_and_of_the_decoder(world: World) -> None:
    world.verify = lambda _: None
    await _served(world, **CHECKED)
    (job,) = _jobs(world)
    pod = job["spec"]["template"]["spec"]
    arguments = pod["containers"][0]["args"]
    for option, owner in (("--prefill", "maths"), ("--decode", "base")):
        url = arguments[arguments.index(option) + 1]
        (live,) = [p for p in world.store.all("Pod") if url == f"http://{p['status'].get('podIP')}:8000"]
        assert live["metadata"]["name"].startswith(owner)
    assert arguments[:4] == ["verify", "pvc://models/adapters/maths", "--to", names.ADAPTER_PATH]
    assert pod["automountServiceAccountToken"] is False
    assert pod["securityContext"]["runAsNonRoot"] is True
    assert len(job["metadata"]["name"]) <= 63


async def test_wrong_answers_keep_the_old_revision_serving_and_say_which_prompt_differed(world: World) -> None:
    old = await _served(world, **CHECKED)
    world.verify = lambda _: WRONG
    world.store.put(model(uri=NEW, **CHECKED))
    await world.settle()
    assert traffic(world) == {old: 100}
    assert list(world.deployments("maths")) == [old], "pods of the new revision still take GPUs"
    assert _verdict(world) == ("False", "GoldenPromptMismatch")
    assert "prompt 1: token 4 is 7, expected 9" in _message(world)
    assert f"revision {old} goes on serving" in _message(world)
    status = world.status("SunModel", "maths")
    assert (status["currentRevision"], status["verification"]["firstMismatch"]) == (old, WRONG.first_mismatch)
    assert status["updateRevision"] == status["verification"]["revision"] != old
    assert _ready(world) == ("False", "GoldenPromptMismatch")


async def test_while_it_is_checked_a_new_revision_has_pods_beside_the_old_one_and_no_traffic(world: World) -> None:
    old = await _served(world, replicas=2, **CHECKED)
    world.verify = lambda _: None
    world.store.put(model(uri=NEW, replicas=2, **CHECKED))
    await world.settle()
    (new,) = set(world.deployments("maths")) - {old}
    counts = {name: live["spec"]["replicas"] for name, live in world.deployments("maths").items()}
    assert counts == {old: 2, new: 1}
    assert traffic(world) == {old: 100}
    assert "golden prompts" in world.condition("SunModel", "maths", "Progressing")["message"]
    world.verify = lambda _: VerificationReport(passed=3, total=3)
    await world.settle()
    assert traffic(world) == {new: 100}


async def test_a_mismatch_is_told_once_by_an_event_and_counted(world: World) -> None:
    await _served(world, **CHECKED)
    before = metrics.VERIFICATIONS.labels("mismatch")._value.get()
    world.verify = lambda _: WRONG
    world.store.put(model(uri=NEW, **CHECKED))
    await world.settle()
    await world.settle()
    events = [e for e in world.store.all("Event") if e["reason"] == "GoldenPromptMismatch"]
    assert [event["type"] for event in events] == ["Warning"]
    assert metrics.VERIFICATIONS.labels("mismatch")._value.get() == before + 1


async def test_mended_weights_are_checked_anew_and_roll_out(world: World) -> None:
    old = await _served(world, **CHECKED)
    world.verify = lambda _: WRONG
    world.store.put(model(uri=NEW, **CHECKED))
    await world.settle()
    world.verify = lambda _: VerificationReport(passed=3, total=3)
    world.store.put(model(uri="pvc://models/adapters/maths3", **CHECKED))
    await world.settle()
    (revision,) = world.deployments("maths")
    assert revision != old
    assert traffic(world) == {revision: 100}


async def test_a_lower_bar_lets_a_rejected_revision_through_without_asking_again(world: World) -> None:
    await _served(world, **CHECKED)
    world.verify = lambda _: WRONG
    world.store.put(model(uri=NEW, **CHECKED))
    await world.settle()
    world.verify = lambda _: None
    world.store.put(model(uri=NEW, verification={"minMatchPercent": 60}))
    await world.settle()
    (revision,) = world.deployments("maths")
    assert traffic(world) == {revision: 100}
    assert _verdict(world) == ("True", "Verified")


async def test_with_warn_a_mismatch_is_a_condition_and_no_more(world: World) -> None:
    world.verify = lambda _: WRONG
    revision = await _served(world, verification={"policy": "Warn"})
    assert traffic(world) == {revision: 100}
    assert _verdict(world) == ("False", "GoldenPromptMismatch")
    assert _ready(world) == ("True", "Ready")


async def test_another_revision_of_the_decoder_is_checked_and_takes_nothing_away(world: World) -> None:
    asked: list[str] = []
    world.verify = lambda job: asked.append(job["metadata"]["name"]) or VerificationReport(passed=3, total=3)  # type: ignore[func-returns-value]
    revision = await _served(world, **CHECKED)
    assert len(set(asked)) == 1
    world.verify = lambda _: WRONG
    world.store.put(decoder(template={"spec": {"nodeSelector": {"zone": "b"}}}))
    await world.settle()
    assert list(world.deployments("maths")) == [revision]
    assert traffic(world) == {revision: 100}
    assert _verdict(world) == ("False", "GoldenPromptMismatch")
    status = world.status("SunModel", "maths")["verification"]
    assert status["decoderRevision"] == world.status("SharedDecoder", "base")["currentRevision"]


async def test_while_a_serving_revision_is_checked_again_it_stays_verified(world: World) -> None:
    await _served(world, **CHECKED)
    world.verify = lambda _: None
    world.store.put(decoder(template={"spec": {"nodeSelector": {"zone": "b"}}}))
    await world.settle()
    assert len(_jobs(world)) == 1
    assert (_verdict(world), _ready(world)[0]) == (("True", "Verified"), "True")


async def test_a_change_of_the_kv_format_moves_only_what_was_checked_with_the_new_pods(world: World) -> None:
    old = await _served(world, **CHECKED)
    world.verify = lambda _: WRONG
    world.store.put(decoder(engine={"image": "worker:2"}))
    await world.settle()
    assert traffic(world) == {old: 100}
    formats = {
        live["spec"]["template"]["metadata"]["labels"][names.LABEL_KV_FINGERPRINT]
        for live in (*world.deployments("base").values(), *world.deployments("maths").values())
        if live["spec"]["replicas"]
    }
    assert len(world.deployments("base")) == 2, "the pods that read the old format have to stay"
    assert len(formats) == 2


async def test_an_error_is_no_mismatch_and_is_tried_again_after_a_minute(world: World) -> None:
    world.verify = lambda _: VerificationReport(error_reason="EngineUnreachable", error_message="10.0.0.1: refused")
    await _served(world, **CHECKED)
    assert (traffic(world), _verdict(world)) == ({}, ("False", "EngineUnreachable"))
    assert "10.0.0.1: refused" in _message(world)
    plan = await world.plan("SunModel", "maths")
    assert plan.requeue_after is not None
    assert 0 < plan.requeue_after <= 60
    world.verify = lambda _: VerificationReport(passed=3, total=3)
    world.now = world.now.replace(minute=world.now.minute + 2)
    # The Job that failed goes; what it said went with it.
    for place in [place for place in world.store.objects if place[0] == "Pod" and "verify" in place[2]]:
        del world.store.objects[place]
    await world.settle()
    assert _verdict(world) == ("True", "Verified")


async def test_prompts_of_a_config_map_are_waited_for_and_an_edit_is_checked_again(world: World) -> None:
    asked: list[list[str]] = []

    def verify(job: dict[str, Any]) -> VerificationReport:
        asked.append(job["spec"]["template"]["spec"]["containers"][0]["args"])
        return VerificationReport(passed=1, total=1)

    world.verify = verify
    await _served(world, verification={"goldenPrompts": {"configMapRef": {"name": "golden"}}})
    assert _verdict(world) == ("False", "GoldenPromptsNotFound")
    assert "ConfigMap team/golden" in _message(world)
    place = ("ConfigMap", "team", "golden")
    world.store.objects[place] = {"kind": "ConfigMap", "metadata": {"name": "golden"}, "data": {"golden.json": "1"}}
    await world.settle()
    assert _verdict(world) == ("True", "Verified")
    assert asked[0][:2] == ["verify", "file:///golden"]
    world.store.objects[place]["data"] = {"golden.json": "2"}
    await world.settle()
    assert len({arguments[arguments.index("--expect") + 1] for arguments in asked}) == 2


async def test_a_profile_may_ask_for_it(world: World) -> None:
    world.store.put(profile("checked", verification={"goldenPrompts": {"configMapRef": {"name": "golden"}}}))
    await _served(world, profileRefs=[{"name": "checked"}])
    assert _verdict(world) == ("False", "GoldenPromptsNotFound")


async def test_without_verification_nothing_is_asked(world: World) -> None:
    for spec in (
        {},
        {"verification": {"samplePerMillion": 5, "decoderMismatch": "Warn"}},
        {"verification": {"policy": "Off"}},
    ):
        revision = await _served(world, **spec)
        assert traffic(world) == {revision: 100}
        assert _verdict(world) == ("", "")
    assert not [write for write in world.store.writes if "verify" in write]


async def test_new_weights_at_zero_replicas_are_checked_with_their_first_pod(world: World) -> None:
    old = await _served(world, **CHECKED)
    world.verify = lambda _: WRONG
    world.store.put(model(uri=NEW, replicas=0, **CHECKED))
    await world.settle()
    assert traffic(world) == {old: 100}
    world.store.put(model(uri=NEW, replicas=1, **CHECKED))
    await world.settle()
    assert traffic(world) == {old: 100}
    assert _verdict(world) == ("False", "GoldenPromptMismatch")


async def test_a_paused_task_is_not_checked(world: World) -> None:
    revision = await _served(world)
    world.store.put(model(paused=True, **CHECKED))
    await world.settle()
    assert _jobs(world) == []
    assert traffic(world) == {revision: 100}
    assert "spec.paused" in _message(world)


async def test_a_check_that_is_no_longer_wanted_is_stopped(world: World) -> None:
    world.verify = lambda _: None
    await _served(world, **CHECKED)
    assert len(_jobs(world)) == 1
    world.store.put(model())
    await world.settle()
    assert _jobs(world) == []
    assert _ready(world) == ("True", "Ready")


async def test_results_do_not_pile_up(world: World) -> None:
    limit: dict[str, Any] = {"rollout": {"revisionHistoryLimit": 0}}
    await _served(world, **CHECKED, **limit)
    for number in range(5):
        world.store.put(model(uri=f"pvc://models/adapters/n{number}", **CHECKED, **limit))
        await world.settle()
    kept = [item for item in world.store.all("ControllerRevision") if item["data"]["record"] == "verification"]
    assert len(kept) <= 2


@given(st.integers(0, 50), st.integers(0, 50), st.integers(0, 100))
def test_more_exact_answers_never_turn_a_pass_into_a_failure(passed: int, more: int, percent: int) -> None:
    asked = Verification.model_validate({"minMatchPercent": percent})
    total = passed + more
    assert asked.enough(0, 0) is False
    assert asked.enough(total, total) is (total > 0)
    if total and asked.enough(passed, total):
        assert all(asked.enough(better, total) for better in range(passed, total + 1))
