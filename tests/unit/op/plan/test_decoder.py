"""What becomes of a SharedDecoder, told by its status and its Deployments."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from sunfleet_api import names
from sunfleet_operator.build import engine_pod
from sunfleet_operator.cluster import RefusedError
from sunfleet_optest.objects import BASE_URI, decoder, model, report
from sunfleet_optest.world import DEFAULTS, World


@pytest.fixture
def world() -> World:
    return World()


async def _fleet(world: World, **spec: Any) -> None:
    world.store.put(decoder(**spec))
    world.store.put(model())
    await world.settle()


def _ready(world: World) -> tuple[str, str]:
    found = world.condition("SharedDecoder", "base", "Ready")
    return found["status"], found["reason"]


def _images(world: World) -> set[str]:
    return {live["spec"]["template"]["spec"]["containers"][0]["image"] for live in world.store.all("Deployment")}


async def test_it_publishes_what_its_tasks_build_on(world: World) -> None:
    await _fleet(world)
    status = world.status("SharedDecoder", "base")
    assert _ready(world) == ("True", "Ready")
    assert status["decoderDigest"] == f"sha256:{BASE_URI}"
    assert status["kvFingerprint"]["digest"].startswith("sha256:")
    assert (status["currentRevision"], status["attachedModels"]) == (status["updateRevision"], 1)
    assert status["selector"] == f"{names.LABEL_DECODER}=base,{names.LABEL_ROLE}=decode"
    assert (status["replicas"], status["readyReplicas"], status["updatedReplicas"]) == (1, 1, 1)


async def test_it_is_not_ready_while_a_new_revision_rolls_out(world: World) -> None:
    await _fleet(world)
    world.healthy = lambda live: live.get("status", {}).get("availableReplicas", 0) > 0
    world.store.put(decoder(engine={"maxModelLen": 512}))
    await world.settle()
    assert _ready(world) == ("False", "RollingOut")
    assert world.condition("SharedDecoder", "base", "Available")["status"] == "True"
    world.healthy = lambda _: True
    await world.settle()
    assert _ready(world) == ("True", "Ready")
    assert len(world.deployments("base")) == 1


async def test_an_engine_image_is_kept_until_another_one_is_asked_for(world: World) -> None:
    await _fleet(world)
    world.defaults = replace(DEFAULTS, engine_image="worker:2")
    await world.settle()
    assert _images(world) == {"worker:1"}
    world.store.put(decoder(engine={"image": "worker:3"}))
    await world.settle()
    assert _images(world) == {"worker:3"}
    world.store.put(decoder())
    await world.settle()
    assert _images(world) == {"worker:3"}


async def test_a_new_operator_with_other_templates_rolls_no_pod(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    await _fleet(world)
    before = len(world.store.writes)
    monkeypatch.setattr(engine_pod, "GRACE_MARGIN_SECONDS", 99)
    await world.reconcile()
    assert world.store.writes[before:] == []


async def test_a_template_that_was_edited_by_hand_is_put_right(world: World) -> None:
    await _fleet(world)
    (live,) = world.deployments("base").values()
    live["spec"]["template"]["spec"]["containers"][0]["image"] = "mine:1"
    await world.settle()
    assert _images(world) == {"worker:1"}


async def test_a_deployment_that_was_deleted_by_hand_comes_back_the_same(world: World) -> None:
    await _fleet(world)
    ((revision, live),) = world.deployments("base").items()
    world.store.remove("Deployment", "team", live["metadata"]["name"])
    await world.settle()
    assert list(world.deployments("base")) == [revision]


async def test_replicas_belong_to_the_scale_manager_and_never_fall_back_to_one(world: World) -> None:
    await _fleet(world, replicas=3)
    (live,) = world.deployments("base").values()
    assert live["spec"]["replicas"] == 3
    assert names.SCALE_FIELD_MANAGER in {entry["manager"] for entry in live["metadata"]["managedFields"]}
    live["metadata"]["labels"]["app.kubernetes.io/component"] = "edited"  # makes the operator apply again
    await world.settle()
    (live,) = world.deployments("base").values()
    assert live["spec"]["replicas"] == 3


def _owners(live: dict[str, Any]) -> set[str]:
    """Managers of the replica count."""
    return {entry["manager"] for entry in live["metadata"].get("managedFields") or ()}


async def test_one_replica_takes_one_write_and_is_nobodys_until_somebody_counts(world: World) -> None:
    await _fleet(world)
    (live,) = world.deployments("base").values()
    assert (live["spec"]["replicas"], _owners(live)) == (1, set())
    written = [write for write in world.store.writes if f"'{live['metadata']['name']}'" in write and "Deploy" in write]
    assert len(written) == 1
    for replicas in (2, 1):
        world.store.put(decoder(replicas=replicas))
        await world.settle()
        (live,) = world.deployments("base").values()
        assert (live["spec"]["replicas"], _owners(live)) == (replicas, {names.SCALE_FIELD_MANAGER})


async def test_a_count_that_a_killed_process_left_to_the_operators_manager_is_taken_over(world: World) -> None:
    """It named the count to make the Deployment, and ended before it could scale it."""
    await _fleet(world, replicas=3)
    (live,) = world.deployments("base").values()
    owned = {"operation": "Apply", "fieldsV1": {"f:spec": {"f:replicas": {}}}}
    live["metadata"]["managedFields"] = [{"manager": names.FIELD_MANAGER, **owned}]
    await world.settle()
    (live,) = world.deployments("base").values()
    assert names.SCALE_FIELD_MANAGER in _owners(live)


async def test_a_budget_comes_with_the_first_pod_and_before_anything_is_sent_to_it(world: World) -> None:
    world.store.put(decoder())
    world.store.put(model())
    world.healthy = lambda _: False
    for _ in range(3):
        await world.reconcile()
        assert not list(world.store.all("PodDisruptionBudget"))
        for job in world.store.all("Job"):
            world._run_job(job)
    assert world.deployments("base")
    world.healthy = lambda _: True
    published = _traffic_at_each_write(world)
    await world.settle()
    assert world.status("SunModel", "maths")["traffic"]
    made = next(
        number for number, (write, _) in enumerate(published) if "'maths-prefill'" in write and "Budget" in write
    )
    assert not published[made][1]


def _traffic_at_each_write(world: World) -> list[tuple[str, object]]:
    seen: list[tuple[str, object]] = []
    world.store.before_write = lambda write: seen.append((write, world.status("SunModel", "maths").get("traffic")))
    return seen


async def test_it_cannot_be_deleted_while_a_task_uses_it(world: World) -> None:
    await _fleet(world)
    assert world.store.one("SharedDecoder", "base")["metadata"]["finalizers"] == [names.FINALIZER]
    world.store.remove("SharedDecoder", "team", "base")
    await world.settle()
    blocked = world.condition("SharedDecoder", "base", "DeletionBlocked")
    assert (blocked["status"], blocked["reason"]) == ("True", "InUse")
    assert "team/maths" in blocked["message"]
    assert names.ANNOTATION_FORCE_DELETE in blocked["message"]
    assert world.condition("SunModel", "maths", "Ready")["status"] == "True"
    world.store.remove("SunModel", "team", "maths")
    await world.settle()
    assert ("SharedDecoder", "team", "base") not in world.store.objects


async def test_an_unused_decoder_carries_no_finalizer(world: World) -> None:
    world.store.put(decoder())
    await world.settle()
    assert not world.store.one("SharedDecoder", "base")["metadata"].get("finalizers")
    world.store.put(model())
    await world.settle()
    world.store.remove("SunModel", "team", "maths")
    await world.settle()
    assert not world.store.one("SharedDecoder", "base")["metadata"].get("finalizers")


async def test_finalizers_of_others_are_left_alone(world: World) -> None:
    await _fleet(world)
    world.store.one("SharedDecoder", "base")["metadata"]["finalizers"].append("example.org/theirs")
    world.store.remove("SunModel", "team", "maths")
    await world.settle()
    assert world.store.one("SharedDecoder", "base")["metadata"]["finalizers"] == ["example.org/theirs"]


async def test_the_override_lets_it_go(world: World) -> None:
    await _fleet(world)
    world.store.one("SharedDecoder", "base")["metadata"]["annotations"] = {names.ANNOTATION_FORCE_DELETE: "true"}
    world.store.remove("SharedDecoder", "team", "base")
    await world.settle()
    assert ("SharedDecoder", "team", "base") not in world.store.objects


async def test_it_goes_with_its_namespace(world: World) -> None:
    world.store.put(decoder(allowedModels={"namespaces": {"from": "All"}}))
    reference = {"name": "base", "namespace": "team"}
    world.store.put(model("maths", "other", uri="hf://a/b@" + "a" * 40, decoderRef=reference))
    await world.settle()
    world.store.terminating.add("team")
    world.store.remove("SharedDecoder", "team", "base")
    await world.settle()
    assert ("SharedDecoder", "team", "base") not in world.store.objects
    assert world.condition("SunModel", "maths", "Ready", "other")["reason"] == "DecoderNotFound"


async def test_a_decode_pod_stays_until_every_task_makes_the_new_kv_format(world: World) -> None:
    await _fleet(world, replicas=2)
    (old,) = world.deployments("base")
    (prefill,) = world.deployments("maths")

    def stuck(live: dict[str, Any]) -> bool:
        labels = live["metadata"]["labels"]
        return bool(labels[names.LABEL_ROLE] == "decode" or labels[names.LABEL_REVISION] == prefill)

    world.healthy = stuck
    world.store.put(decoder(replicas=2, engine={"image": "worker:2"}))
    await world.settle()
    assert world.deployments("base")[old]["spec"]["replicas"] == 1
    assert "team/maths" in world.condition("SharedDecoder", "base", "Progressing")["message"]
    assert [entry["revision"] for entry in world.status("SunModel", "maths")["traffic"]] == [prefill]
    world.healthy = lambda _: True
    await world.settle()
    assert old not in world.deployments("base")
    assert _ready(world) == ("True", "Ready")


async def test_tasks_start_no_pod_for_a_new_kv_format_before_a_decode_pod_reads_it(world: World) -> None:
    await _fleet(world)
    (prefill,) = world.deployments("maths")
    (decode,) = world.deployments("base")
    world.healthy = lambda live: live["metadata"]["labels"][names.LABEL_REVISION] in {prefill, decode}
    world.store.put(decoder(engine={"image": "worker:typo"}))
    await world.settle()
    assert list(world.deployments("maths")) == [prefill]
    assert world.condition("SunModel", "maths", "Ready")["status"] == "True"
    assert _ready(world) == ("False", "RollingOut")
    world.store.put(decoder(engine={"image": "worker:1"}))
    await world.settle()
    assert list(world.deployments("base")) == [decode]


async def test_without_surge_tasks_start_at_once_since_nothing_serves_meanwhile(world: World) -> None:
    await _fleet(world, rollout={"maxSurge": 0, "maxUnavailable": 1})
    world.healthy = lambda live: live["metadata"]["labels"][names.LABEL_ROLE] == "prefill"
    world.store.put(decoder(engine={"image": "worker:2"}, rollout={"maxSurge": 0, "maxUnavailable": 1}))
    await world.settle()
    assert len(world.deployments("maths")) == 2


async def test_pods_of_both_roles_carry_the_same_format_label(world: World) -> None:
    await _fleet(world)
    labels = [live["spec"]["template"]["metadata"]["labels"] for live in world.store.all("Deployment")]
    assert len(labels) == 2
    assert len({found[names.LABEL_KV_FINGERPRINT] for found in labels}) == 1


async def test_an_adapter_is_no_decoder(world: World) -> None:
    world.resolve = lambda uri: report(uri, adapter=True)
    await _fleet(world)
    assert _ready(world) == ("False", "KVContractUnknown")


async def test_old_revisions_are_trimmed_to_the_history_limit(world: World) -> None:
    await _fleet(world)
    for length in (512, 1024, 2048, 4096):
        world.store.put(decoder(engine={"maxModelLen": length}, rollout={"revisionHistoryLimit": 2}))
        await world.settle()
    records = [live["data"] for live in world.store.all("ControllerRevision")]
    kept = [data["engine"]["max_model_len"] for data in records if data["record"] == "decoder"]
    assert sorted(kept) == [1024, 2048, 4096]
    assert sum(data["record"] == "weights" and data["uri"] == BASE_URI for data in records) == 1


async def test_a_rollback_is_the_same_revision_again(world: World) -> None:
    await _fleet(world)
    first = world.status("SharedDecoder", "base")["currentRevision"]
    world.store.put(decoder(engine={"maxModelLen": 512}))
    await world.settle()
    world.store.put(decoder())
    await world.settle()
    assert world.status("SharedDecoder", "base")["currentRevision"] == first


async def test_a_child_that_the_api_server_refuses_is_told_in_the_status(world: World) -> None:
    world.store.put(decoder())

    def refuse(what: str) -> None:
        if "Deployment" in what:
            raise RefusedError("PATCH deployments", 403, "exceeded quota: gpus")

    world.store.before_write = refuse
    with pytest.raises(RefusedError):
        await world.settle()
    assert _ready(world) == ("False", "ChildRefused")
    assert "exceeded quota: gpus" in world.condition("SharedDecoder", "base", "Progressing")["message"]
    world.store.before_write = lambda _: None
    await world.settle()
    assert _ready(world) == ("True", "Ready")


async def test_a_paused_decoder_publishes_nothing_new_so_its_tasks_stay_ready(world: World) -> None:
    await _fleet(world)
    before = world.status("SharedDecoder", "base")["updateRevision"]
    world.store.put(decoder(paused=True, engine={"image": "worker:2"}))
    await world.settle()
    assert world.status("SharedDecoder", "base")["updateRevision"] == before
    assert world.condition("SunModel", "maths", "Ready")["status"] == "True"
    world.store.put(decoder(engine={"image": "worker:2"}))
    await world.settle()
    assert _images(world) == {"worker:2"}


async def test_a_paused_decoder_can_still_be_deleted(world: World) -> None:
    await _fleet(world, paused=True)
    assert world.condition("SharedDecoder", "base", "WeightsReady")["reason"] == "Paused"
    assert list(world.store.all("Job")) == [job for job in world.store.all("Job") if "maths" in job["metadata"]["name"]]
    world.store.remove("SunModel", "team", "maths")
    await world.settle()
    world.store.remove("SharedDecoder", "team", "base")
    await world.settle()
    assert ("SharedDecoder", "team", "base") not in world.store.objects


async def test_with_automatic_engine_upgrades_a_new_operators_image_comes_as_new_pairs_and_serves_throughout(
    world: World,
) -> None:
    world.store.put(decoder(rollout={"engineUpgrade": "Automatic"}))
    world.store.put(model())
    await world.settle()
    world.defaults = replace(world.defaults, engine_image="worker:2")
    for _ in range(40):
        world.controllers()
        await world.reconcile()
        assert sum(entry["weight"] for entry in world.status("SunModel", "maths")["traffic"]) == 100
        running = [live for live in world.store.all("Deployment") if live["spec"]["replicas"]]
        formats = {
            role: {
                live["spec"]["template"]["metadata"]["labels"][names.LABEL_KV_FINGERPRINT]
                for live in running
                if live["metadata"]["labels"][names.LABEL_ROLE] == role
            }
            for role in ("decode", "prefill")
        }
        assert formats["prefill"] <= formats["decode"], "a prefill pod whose KV no decode pod reads"
    await world.settle()
    images = {
        container["image"]
        for live in world.store.all("Deployment")
        for container in live["spec"]["template"]["spec"]["containers"]
        if container["name"] == "engine"
    }
    assert images == {"worker:2"}


async def test_an_image_of_its_own_is_not_upgraded(world: World) -> None:
    world.store.put(decoder(engine={"image": "mine:1"}, rollout={"engineUpgrade": "Automatic"}))
    await world.settle()
    world.defaults = replace(world.defaults, engine_image="worker:2")
    before = len(world.store.writes)
    await world.settle()
    assert world.store.writes[before:] == []
