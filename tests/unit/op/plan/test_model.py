"""What becomes of a SunModel, told by its status and its Deployments."""

from __future__ import annotations

from typing import Any

import pytest

from sunfleet_api import names
from sunfleet_api.worker import ResolverReport
from sunfleet_operator.build.labels import revision_selector, selector_text
from sunfleet_operator.types import Key
from sunfleet_optest.canaries import traffic
from sunfleet_optest.objects import CONFIG, decoder, model, report
from sunfleet_optest.world import World


@pytest.fixture
def world() -> World:
    return World()


async def _fleet(world: World, *models: dict[str, Any], **spec: Any) -> None:
    world.store.put(decoder(**spec))
    for manifest in models or (model(),):
        world.store.put(manifest)
    await world.settle()


def _ready(world: World, name: str = "maths", namespace: str = "team") -> tuple[str, str]:
    found = world.condition("SunModel", name, "Ready", namespace)
    return found["status"], found["reason"]


def _decodes(live: dict[str, Any]) -> bool:
    return bool(live["metadata"]["labels"][names.LABEL_ROLE] == "decode")


async def test_a_task_that_was_created_before_its_decoder_becomes_ready_by_itself(world: World) -> None:
    world.store.put(model())
    await world.settle()
    assert _ready(world) == ("False", "DecoderNotFound")
    world.store.put(decoder())
    await world.settle()
    assert _ready(world) == ("True", "Ready")


async def test_traffic_names_revision_decoder_pods_and_salt(world: World) -> None:
    await _fleet(world)
    status = world.status("SunModel", "maths")
    (entry,) = status["traffic"]
    revision = status["currentRevision"]
    assert (entry["revision"], entry["weight"], entry["decoder"]) == (revision, 100, "team/base")
    assert entry["prefill"]["selector"] == selector_text(revision_selector(Key("SunModel", "team", "maths"), revision))
    assert len(entry["cacheSalt"]) == 32


async def test_no_traffic_before_prefill_and_decode_pods_serve(world: World) -> None:
    world.healthy = lambda live: names.LABEL_MODEL in live["metadata"]["labels"]
    await _fleet(world)
    assert traffic(world) == {}
    assert _ready(world) == ("False", "DecoderNotReady")
    world.healthy = lambda _: True
    await world.settle()
    assert _ready(world) == ("True", "Ready")
    assert list(traffic(world).values()) == [100]


async def test_other_weights_are_a_new_revision_and_the_old_one_serves_until_it_is_available(world: World) -> None:
    await _fleet(world)
    (old,) = world.deployments("maths")
    world.healthy = lambda live: live["metadata"]["labels"][names.LABEL_REVISION] == old or _decodes(live)
    world.store.put(model(uri="pvc://models/adapters/maths2"))
    await world.settle()
    assert set(world.deployments("maths")) > {old}
    assert traffic(world) == {old: 100}
    assert _ready(world) == ("False", "RollingOut")
    world.healthy = lambda _: True
    await world.settle()
    (new,) = world.deployments("maths")
    assert new != old
    assert traffic(world) == {new: 100}
    assert _ready(world) == ("True", "Ready")


async def test_during_a_roll_out_both_revisions_share_the_traffic_by_their_pods(world: World) -> None:
    await _fleet(world, model(replicas=4))
    seen: list[dict[str, int]] = []
    world.store.put(model(uri="pvc://models/adapters/maths2", replicas=4))
    for _ in range(40):
        world.controllers()
        await world.reconcile()
        seen.append(traffic(world))
    assert all(sum(shares.values()) == 100 for shares in seen)
    assert any(len(shares) == 2 for shares in seen)
    assert [len(shares) for shares in seen][-1] == 1


async def test_without_surge_the_old_pods_stop_first_and_the_status_says_so(world: World) -> None:
    rollout = {"maxSurge": 0, "maxUnavailable": 1}
    await _fleet(world, model(rollout=rollout))
    (old,) = world.deployments("maths")
    pod = {"metadata": {"name": "p", "namespace": "team", "labels": {
        names.LABEL_MODEL: "maths", names.LABEL_ROLE: "prefill", names.LABEL_REVISION: old,
    }}}  # fmt: skip
    world.store.objects["Pod", "team", "p"] = {"kind": "Pod", **pod}
    world.store.put(model(uri="pvc://models/adapters/maths2", rollout=rollout))
    await world.settle()
    assert {live["spec"]["replicas"] for live in world.deployments("maths").values()} == {0}
    assert "the old revision stops first" in world.condition("SunModel", "maths", "Progressing")["message"]
    del world.store.objects["Pod", "team", "p"]
    await world.settle()
    assert _ready(world) == ("True", "Ready")


async def test_changing_one_task_touches_no_other_deployment(world: World) -> None:
    await _fleet(world, model("maths"), model("code"))
    before = {live["metadata"]["name"]: live for live in world.store.all("Deployment")}
    kept = {name: dict(live["metadata"]) for name, live in before.items() if not name.startswith("maths")}
    world.store.put(model("maths", uri="pvc://models/adapters/maths2"))
    await world.settle()
    after = {live["metadata"]["name"]: live["metadata"] for live in world.store.all("Deployment")}
    assert {name: after[name] for name in kept} == kept


async def test_of_equal_model_names_the_oldest_object_is_served(world: World) -> None:
    await _fleet(world, model("first", modelName="acme/x"))
    world.store.put(model("second", modelName="acme/x"))
    await world.settle()
    assert _ready(world, "first") == ("True", "Ready")
    assert _ready(world, "second") == ("False", "ModelNameConflict")
    assert "team/first" in world.condition("SunModel", "second", "Accepted")["message"]
    assert world.deployments("second") == {}
    world.store.remove("SunModel", "team", "first")
    await world.settle()
    assert _ready(world, "second") == ("True", "Ready")


async def test_another_namespace_needs_the_decoders_permission(world: World) -> None:
    task = model("maths", "other", uri="hf://a/maths@" + "a" * 40, decoderRef={"name": "base", "namespace": "team"})
    await _fleet(world, task)
    assert _ready(world, namespace="other") == ("False", "NotAllowedByDecoder")
    assert world.deployments("maths") == {}
    world.store.put(decoder(allowedModels={"namespaces": {"from": "All"}}))
    await world.settle()
    assert _ready(world, namespace="other") == ("True", "Ready")
    assert all(live["metadata"]["namespace"] == "other" for live in world.deployments("maths").values())


async def test_a_permission_that_is_withdrawn_ends_the_traffic_and_then_the_pods(world: World) -> None:
    task = model("maths", "other", uri="hf://a/maths@" + "a" * 40, decoderRef={"name": "base", "namespace": "team"})
    everyone = {"namespaces": {"from": "All"}}
    await _fleet(world, task, allowedModels=everyone)
    world.store.put(decoder())
    await world.settle()
    assert world.status("SunModel", "maths", "other")["traffic"] == []
    assert world.deployments("maths") == {}


async def test_an_adapter_cannot_mount_a_claim_of_another_namespace(world: World) -> None:
    task = model("maths", "other", decoderRef={"name": "base", "namespace": "team"})
    await _fleet(world, task, allowedModels={"namespaces": {"from": "All"}})
    assert _ready(world, namespace="other") == ("False", "VolumeClaimNotFound")


async def test_kv_that_does_not_fit_is_named_and_gets_neither_pods_nor_traffic(world: World) -> None:
    world.resolve = lambda uri: report(uri, config={**CONFIG, "num_key_value_heads": 9} if "full" in uri else CONFIG)
    await _fleet(world, model(uri="pvc://models/full"))
    assert _ready(world) == ("False", "KVMismatch")
    message = world.condition("SunModel", "maths", "KVCompatible")["message"]
    assert message == "num_key_value_heads: decoder 3, task 9"
    assert world.deployments("maths") == {}
    assert traffic(world) == {}


async def test_new_weights_that_do_not_fit_leave_the_old_ones_serving(world: World) -> None:
    await _fleet(world)
    before = traffic(world)
    world.resolve = lambda uri: report(uri, tokenizer_hash="another")
    world.store.put(model(uri="pvc://models/adapters/wrong"))
    await world.settle()
    assert _ready(world) == ("False", "KVMismatch")
    assert traffic(world) == before
    assert list(world.deployments("maths")) == list(before)


@pytest.mark.parametrize(
    ("uri", "adapter", "said"),
    [("pvc://models/adapters/x", False, "is no LoRA adapter"), ("pvc://models/full", True, "is a LoRA adapter")],
)
async def test_a_module_of_the_wrong_kind_is_refused(world: World, uri: str, adapter: bool, said: str) -> None:
    world.resolve = lambda found: report(found, adapter=adapter if found == uri else None)
    await _fleet(world, model(uri=uri))
    assert said in world.condition("SunModel", "maths", "KVCompatible")["message"]


@pytest.mark.parametrize(("mode", "ready"), [("Refuse", "False"), ("Warn", "True")])
async def test_a_module_for_another_decoder_is_refused_unless_the_user_says_otherwise(
    world: World, mode: str, ready: str
) -> None:
    world.resolve = lambda uri: report(uri, tuned_against="sha256:other" if "adapter" in uri else "")
    await _fleet(world, model(verification={"policy": "Off", "decoderMismatch": mode}))
    assert world.condition("SunModel", "maths", "KVCompatible")["reason"] == "TunedAgainstOtherDecoder"
    assert _ready(world)[0] == ready


async def test_a_failing_resolver_gives_its_reason_and_a_mended_uri_recovers(world: World) -> None:
    wrong = ResolverReport(error_reason="NotFound", error_message="no such repository")
    world.resolve = lambda uri: wrong if "wrong" in uri else report(uri)
    await _fleet(world, model(uri="hf://acme/wrong@" + "a" * 40))
    assert _ready(world) == ("False", "NotFound")
    assert "no such repository" in world.condition("SunModel", "maths", "WeightsReady")["message"]
    world.store.put(model(uri="hf://acme/right@" + "a" * 40))
    await world.settle()
    assert _ready(world) == ("True", "Ready")
    assert list(world.store.all("Job")) == []


async def test_a_resolver_that_recovers_needs_no_new_job(world: World) -> None:
    world.resolve = lambda _: ResolverReport(error_reason="Unauthorized", error_message="401")
    await _fleet(world)
    jobs = [job["metadata"]["uid"] for job in world.store.all("Job")]
    world.resolve = report
    world.controllers()
    assert [job["metadata"]["uid"] for job in world.store.all("Job")] == jobs
    await world.settle()
    assert _ready(world) == ("True", "Ready")


async def test_a_floating_revision_is_resolved_once_and_said(world: World) -> None:
    world.resolve = lambda uri: report(uri, resolved_uri=uri.replace("@main", "@" + "a" * 40))
    floating = "hf://acme/maths-adapter@main"
    await _fleet(world, model(uri=floating))
    assert world.condition("SunModel", "maths", "WeightsReady")["reason"] == "FloatingRevision"
    revision = world.status("SunModel", "maths")["currentRevision"]
    world.resolve = lambda uri: report(uri, resolved_uri=uri.replace("@main", "@" + "b" * 40), digest="sha256:moved")
    world.store.put(model(uri=floating, traffic={"maxInFlight": 3}))
    await world.settle()
    assert world.status("SunModel", "maths")["currentRevision"] == revision


async def test_a_lost_status_comes_back_without_a_new_pod(world: World) -> None:
    await _fleet(world)
    before, uids = world.status("SunModel", "maths"), {d["metadata"]["uid"] for d in world.store.all("Deployment")}
    for live in (*world.store.all("SunModel"), *world.store.all("SharedDecoder")):
        live.pop("status")
    await world.settle()
    after = world.status("SunModel", "maths")
    for status in (before, after):
        for condition in status["conditions"]:
            condition.pop("lastTransitionTime")
    assert after == before
    assert {d["metadata"]["uid"] for d in world.store.all("Deployment")} == uids


async def test_zero_replicas_are_ready_and_still_routed_to(world: World) -> None:
    await _fleet(world, model(replicas=0))
    assert _ready(world) == ("True", "ScaledToZero")
    assert list(traffic(world).values()) == [100]
    assert [live["spec"]["replicas"] for live in world.deployments("maths").values()] == [0]


async def test_a_pause_changes_no_child_and_no_traffic_and_says_so(world: World) -> None:
    await _fleet(world)
    before, deployments = traffic(world), world.deployments("maths")
    world.store.put(model(uri="pvc://models/adapters/maths2", paused=True, replicas=5))
    await world.settle()
    assert world.condition("SunModel", "maths", "Paused")["status"] == "True"
    assert (traffic(world), world.deployments("maths")) == (before, deployments)
    world.store.put(model(uri="pvc://models/adapters/maths2", replicas=5))
    await world.settle()
    assert world.condition("SunModel", "maths", "Paused") == {}
    assert [live["spec"]["replicas"] for live in world.deployments("maths").values()] == [5]


async def test_a_decoder_that_goes_by_force_ends_the_traffic_and_keeps_the_pods(world: World) -> None:
    await _fleet(world)
    world.store.one("SharedDecoder", "base")["metadata"]["annotations"] = {names.ANNOTATION_FORCE_DELETE: "true"}
    world.store.remove("SharedDecoder", "team", "base")
    await world.settle()
    assert _ready(world) == ("False", "DecoderNotFound")
    assert traffic(world) == {}
    assert len(world.deployments("maths")) == 1


async def test_a_wrong_new_decoder_reference_leaves_the_old_one_serving(world: World) -> None:
    await _fleet(world)
    before = traffic(world)
    world.store.put(model(decoderRef={"name": "typo"}))
    await world.settle()
    assert _ready(world) == ("False", "DecoderNotFound")
    assert traffic(world) == before


async def test_fields_without_effect_are_named(world: World) -> None:
    await _fleet(world, model(rollout={"engineUpgrade": "Automatic"}))
    message = world.condition("SunModel", "maths", "FieldsIgnored")["message"]
    assert "spec.rollout.engineUpgrade (" in message
    assert "SharedDecoder's field decides" in message
    assert _ready(world) == ("True", "Ready")


async def test_what_the_decoder_does_anyway_is_not_called_ignored(world: World) -> None:
    world.store.put(decoder(rollout={"engineUpgrade": "Automatic"}))
    world.store.put(model(rollout={"engineUpgrade": "Automatic"}))
    await world.settle()
    assert not world.condition("SunModel", "maths", "FieldsIgnored")
    assert _ready(world) == ("True", "Ready")


async def test_what_keeps_a_pod_from_running_stands_in_the_condition(world: World) -> None:
    world.healthy = _decodes
    await _fleet(world)
    (revision,) = world.deployments("maths")
    labels = {names.LABEL_MODEL: "maths", names.LABEL_ROLE: "prefill", names.LABEL_REVISION: revision}
    waiting = {"reason": "ImagePullBackOff", "message": "not found"}
    status = {"containerStatuses": [{"name": "engine", "image": "worker:1", "state": {"waiting": waiting}}]}
    world.store.objects["Pod", "team", "p"] = {
        "kind": "Pod", "metadata": {"name": "p", "namespace": "team", "labels": labels}, "status": status,
    }  # fmt: skip
    await world.settle()
    assert _ready(world) == ("False", "ImagePullFailed")
    assert "worker:1" in world.condition("SunModel", "maths", "PrefillReady")["message"]


async def test_an_evicted_pod_holds_no_place(world: World) -> None:
    rollout = {"maxSurge": 0, "maxUnavailable": 1}
    await _fleet(world, model(rollout=rollout))
    (old,) = world.deployments("maths")
    labels = {names.LABEL_MODEL: "maths", names.LABEL_ROLE: "prefill", names.LABEL_REVISION: old}
    # It lies around until somebody deletes it, or the pod garbage collector does at 12,500 of them.
    world.store.objects["Pod", "team", "p"] = {
        "kind": "Pod",
        "metadata": {"name": "p", "namespace": "team", "labels": labels},
        "status": {"phase": "Failed", "reason": "Evicted", "message": "The node was low on resource: memory."},
    }
    world.store.put(model(uri="pvc://models/adapters/maths2", rollout=rollout))
    await world.settle()
    assert _ready(world) == ("True", "Ready")


async def test_the_effective_model_name_stands_in_the_status(world: World) -> None:
    await _fleet(world, model("maths"), model("code", modelName="acme/code"))
    assert world.status("SunModel", "maths")["modelName"] == "maths"
    assert world.status("SunModel", "code")["modelName"] == "acme/code"


async def test_a_decoder_in_a_namespace_that_is_not_served_is_not_asked_for_and_said(world: World) -> None:
    world.store.served = lambda namespace: namespace == "team"
    await _fleet(world, model(decoderRef={"name": "base", "namespace": "elsewhere"}))
    assert _ready(world) == ("False", "DecoderNotFound")
    assert "SUNFLEET_OPERATOR_NAMESPACES" in world.condition("SunModel", "maths", "ResolvedRefs")["message"]
