"""PrefillTuning: the Job that is made, what its status repeats of it, and how a run ends."""

from __future__ import annotations

import asyncio
import json
from datetime import timedelta
from typing import Any

import pytest

from sunfleet_api import names
from sunfleet_api.prefill_tuning import PrefillTuning
from sunfleet_api.tuning import DATA_PREFIX, JOB_VARIABLE, OUTPUT_PREFIX, PROGRESS_MARK, TuneJob, TuningReport
from sunfleet_operator.index import Index
from sunfleet_operator.observe import observe_decoder, observe_tuning
from sunfleet_operator.types import Key
from sunfleet_optest.objects import BASE_URI, decoder, tuning
from sunfleet_optest.world import World

TUNING = ("PrefillTuning", "maths")
JOB = "maths-tuner"


@pytest.fixture
def world() -> World:
    made = World()
    made.tuned = lambda _: None
    made.store.put(decoder())
    return made


def job_of(world: World) -> dict[str, Any]:
    return world.store.one("Job", JOB)


def pod_spec(world: World) -> dict[str, Any]:
    found: dict[str, Any] = job_of(world)["spec"]["template"]["spec"]
    return found


def told(world: World) -> TuneJob:
    (container,) = pod_spec(world)["containers"]
    return TuneJob.model_validate_json(next(v["value"] for v in container["env"] if v["name"] == JOB_VARIABLE))


def says(world: World, type_: str) -> tuple[str, str, str]:
    found = world.condition(*TUNING, type_)
    return found.get("status", ""), found.get("reason", ""), found.get("message", "")


def progress(step: int, loss: str = "0.81") -> str:
    content = {"step": step, "totalSteps": 100, "loss": loss, "tokensPerSecond": 1200, "updateTime": ""}
    return f"noise\n{PROGRESS_MARK}{json.dumps(content)}\nmore noise"


async def test_a_run_is_one_job_that_mounts_what_it_reads_and_writes(world: World) -> None:
    world.store.put(tuning())
    await world.settle()
    job, spec, work = job_of(world), pod_spec(world), told(world)
    assert job["spec"]["backoffLimit"] == 3
    assert "completionMode" not in job["spec"]
    mounts = {mount["mountPath"]: mount for mount in spec["containers"][0]["volumeMounts"]}
    claims = {v["name"]: v["persistentVolumeClaim"] for v in spec["volumes"] if "persistentVolumeClaim" in v}
    assert claims[mounts[names.WEIGHTS_PATH]["name"]] == {"claimName": "models", "readOnly": True}
    assert mounts[names.WEIGHTS_PATH]["subPath"] == "base"
    assert claims[mounts[names.DATA_PATH]["name"]] == {"claimName": "data", "readOnly": True}
    assert claims[mounts[names.OUTPUT_PATH]["name"]] == {"claimName": "modules"}
    assert (work.data_path, work.output_path) == ("/data/train/maths/train.jsonl", "/output/maths")
    assert work.settings["method"] == "lora"
    assert "init" not in work.settings
    assert spec["automountServiceAccountToken"] is False
    assert says(world, "Progressing")[:2] == ("True", "Running")


async def test_what_is_over_the_network_is_opened_with_each_places_own_secret(world: World) -> None:
    data = {"uri": "hf://org/rows@main", "credentialsSecretRef": {"name": "hub"}}
    output = {"uri": "s3://bucket/maths", "credentialsSecretRef": {"name": "store"}}
    world.store.put(tuning(dataset=data, output=output))
    await world.settle()
    (container,) = pod_spec(world)["containers"]
    assert {(e["prefix"], e["secretRef"]["name"]) for e in container["envFrom"]} == {
        (DATA_PREFIX, "hub"), (OUTPUT_PREFIX, "store"),
    }  # fmt: skip
    assert told(world).data_path == ""
    assert told(world).output_path == "/output/module"
    assert {"name": "output", "emptyDir": {}} in pod_spec(world)["volumes"]


async def test_several_nodes_find_each_other_by_name(world: World) -> None:
    eight = {"containers": [{"name": "tuner", "resources": {"limits": {"nvidia.com/gpu": "8"}}}]}
    world.store.put(tuning(nodes=2, method={"full": {}}, template={"spec": eight}))
    await world.settle()
    spec, work = job_of(world)["spec"], told(world)
    assert (spec["completionMode"], spec["completions"], spec["parallelism"]) == ("Indexed", 2, 2)
    assert pod_spec(world)["subdomain"] == JOB
    service = world.store.one("Service", JOB)["spec"]
    assert service["publishNotReadyAddresses"] is True
    assert service["selector"].items() <= spec["template"]["metadata"]["labels"].items()
    assert work.main_address == f"{JOB}-0.{JOB}:29500"
    assert (work.nodes, work.processes, work.sharded) == (2, 8, True)


async def test_one_claim_that_holds_data_and_output_is_one_volume(world: World) -> None:
    world.store.put(tuning(dataset={"uri": "pvc://modules/rows.jsonl"}))
    await world.settle()
    claims = [v["persistentVolumeClaim"] for v in pod_spec(world)["volumes"] if "persistentVolumeClaim" in v]
    assert sorted(claim["claimName"] for claim in claims) == ["models", "modules"]
    assert {"claimName": "modules"} in claims


async def test_a_module_may_start_from_other_weights_than_the_decoders(world: World) -> None:
    world.store.put(tuning(initFrom={"uri": "hf://org/start@main", "credentialsSecretRef": {"name": "hub"}}))
    await world.settle()
    assert told(world).settings["init"] == names.INIT_PATH
    (fetch,) = pod_spec(world)["initContainers"]
    assert fetch["args"] == ["fetch", "hf://org/start@main", "--to", names.INIT_PATH]


async def test_a_dataset_of_several_configurations_is_read_in_the_one_that_is_named(world: World) -> None:
    rows, other = {"uri": "hf://org/rows@v1", "subset": "main"}, {"uri": "hf://org/other", "subset": "plain"}
    world.store.put(tuning(dataset=rows, validation=other))
    await world.settle()
    assert told(world).settings.items() >= {"subset": "main", "validation_subset": "plain"}.items()


async def test_extra_settings_reach_the_tuner_but_not_those_that_the_spec_decides(world: World) -> None:
    world.store.put(tuning(hyperparameters={"learningRate": "1e-3", "extra": {"warmup_percent": "5"}}))
    await world.settle()
    assert (told(world).settings["learning_rate"], told(world).settings["warmup_percent"]) == ("1e-3", "5")
    world.store.put(tuning("other", hyperparameters={"extra": {"output": "/elsewhere"}}))
    await world.settle()
    found = world.condition("PrefillTuning", "other", "Progressing")
    assert (found["status"], found["reason"]) == ("False", "InvalidHyperparameters")
    assert "output" in found["message"]
    assert "other-tuner" not in [job["metadata"]["name"] for job in world.store.all("Job")]


async def test_progress_is_written_at_most_every_half_minute(world: World) -> None:
    world.store.put(tuning())
    await world.settle()
    stamp = world.now.strftime("%Y-%m-%dT%H:%M:%SZ")
    world.store.logs[f"{JOB}-pod"] = progress(10).replace('"updateTime": ""', f'"updateTime": "{stamp}"')
    await world.reconcile()
    assert world.status(*TUNING)["progress"]["step"] == 10
    world.store.logs[f"{JOB}-pod"] = progress(12)
    await world.reconcile()
    assert world.status(*TUNING)["progress"]["step"] == 10
    assert (await world.plan(*TUNING)).requeue_after == 30
    world.now += timedelta(seconds=40)
    await world.reconcile()
    assert world.status(*TUNING)["progress"] == {
        "step": 12, "totalSteps": 100, "loss": "0.81", "tokensPerSecond": 1200, "updateTime": "",
    }  # fmt: skip


async def test_a_run_that_ended_well_names_its_artifact(world: World) -> None:
    world.tuned = lambda _: TuningReport(
        digest="sha256:made", decoder_digest="sha256:decoder", golden=True, metrics={"steps": "100"}
    )
    world.store.put(tuning())
    await world.settle()
    artifact = world.status(*TUNING)["artifact"]
    assert artifact["uri"] == "pvc://modules/maths"
    assert (artifact["digest"], artifact["decoderDigest"]) == ("sha256:made", "sha256:decoder")
    assert artifact["goldenPromptsUri"] == "pvc://modules/maths", "verification takes the folder of golden.json"
    assert says(world, "Complete")[0] == "True"
    assert world.status(*TUNING)["completionTime"] == "2026-01-01T13:00:00Z"
    assert "Completed" in [event["reason"] for event in world.store.all("Event")]


async def test_a_run_that_ended_is_not_started_again_when_its_job_goes(world: World) -> None:
    world.tuned = lambda _: TuningReport(digest="sha256:made")
    world.store.put(tuning())
    await world.settle()
    before = world.status(*TUNING)
    world.store.remove("Job", "team", JOB)
    await world.settle()
    assert [job["metadata"]["name"] for job in world.store.all("Job")] == []
    assert world.status(*TUNING) == before


async def test_a_job_that_goes_before_the_end_is_made_again_and_goes_on(world: World) -> None:
    world.store.put(tuning())
    await world.settle()
    world.store.remove("Job", "team", JOB)
    await world.settle()
    assert job_of(world)["status"]["active"] == 1


async def test_a_failure_that_a_pod_explains_is_the_runs(world: World) -> None:
    world.tuned = lambda _: TuningReport(error_reason="OutOfMemory", error_message="step 3: out of memory. Try ...")
    world.store.put(tuning())
    await world.settle()
    assert says(world, "Failed") == ("True", "OutOfMemory", "step 3: out of memory. Try ...")
    assert says(world, "Complete")[:2] == ("False", "OutOfMemory")
    assert {e["type"] for e in world.store.all("Event") if e["reason"] == "OutOfMemory"} == {"Warning"}


@pytest.mark.parametrize(
    ("pod", "reason", "message"),
    [
        (
            {"containerStatuses": [
                {"name": "tuner", "state": {"terminated": {"exitCode": 137, "reason": "OOMKilled"}}}]},
            "OutOfMemory", "want of memory",
        ),
        (
            {"containerStatuses": [{"name": "tuner", "state": {"terminated": {"exitCode": 1, "message": "a\nlast"}}}]},
            "TuningFailed", "exit code 1: last",
        ),
        (
            {"initContainerStatuses": [{"name": "fetch-weights", "state": {"terminated": {
                "exitCode": 1, "message": '{"error_reason": "AuthenticationFailed", "error_message": "no key"}'}}}]},
            "AuthenticationFailed", "no key",
        ),
        ({"reason": "Evicted", "message": "disk pressure"}, "Evicted", "disk pressure"),
    ],
)  # fmt: skip
async def test_a_run_that_is_given_up_says_why_its_last_pod_failed(
    world: World, pod: dict[str, Any], reason: str, message: str
) -> None:
    world.store.put(tuning())
    await world.settle()
    world.store.one("Pod", f"{JOB}-pod")["status"] = {"phase": "Failed", **pod}
    end = {"type": "Failed", "status": "True", "reason": "BackoffLimitExceeded", "message": "too many"}
    job_of(world)["status"] = {"failed": 4, "conditions": [end]}
    await world.reconcile()
    status, said, text = says(world, "Failed")
    assert (status, said) == ("True", reason)
    assert message in text
    assert "given up after 4 attempts" in text


async def test_a_deadline_is_named(world: World) -> None:
    world.store.put(tuning(activeDeadlineSeconds=60))
    await world.settle()
    assert job_of(world)["spec"]["activeDeadlineSeconds"] == 60
    end = {"type": "Failed", "status": "True", "reason": "DeadlineExceeded", "message": "too long"}
    job_of(world)["status"] = {"conditions": [end]}
    await world.reconcile()
    assert says(world, "Failed")[1] == "DeadlineExceeded"


async def test_what_holds_a_pod_up_is_told_while_the_run_goes_on(world: World) -> None:
    world.store.put(tuning())
    await world.settle()
    no_room = {"type": "PodScheduled", "status": "False", "message": "0/3 nodes: Insufficient nvidia.com/gpu"}
    world.store.one("Pod", f"{JOB}-pod")["status"] = {"phase": "Pending", "conditions": [no_room]}
    await world.reconcile()
    assert says(world, "Progressing")[:2] == ("True", "Unschedulable")
    assert "Insufficient" in says(world, "Progressing")[2]


async def test_suspend_stops_the_job_and_lets_it_go_on(world: World) -> None:
    world.store.put(tuning())
    await world.settle()
    world.store.put(tuning(suspend=True))
    await world.reconcile()
    assert job_of(world)["spec"]["suspend"] is True
    assert says(world, "Suspended")[0] == "True"
    world.store.put(tuning())
    await world.reconcile()
    assert job_of(world)["spec"]["suspend"] is False
    assert says(world, "Suspended") == ("", "", "")
    world.store.put(tuning(ttlSecondsAfterFinished=5))
    await world.reconcile()
    assert job_of(world)["spec"]["ttlSecondsAfterFinished"] == 5


async def test_another_image_of_the_operator_changes_no_run_that_has_begun(world: World) -> None:
    world.store.put(tuning())
    await world.settle()
    world.defaults = type(world.defaults)("worker:2", world.defaults.fetcher, tuner_image="tuner:2")
    before = len(world.store.writes)
    await world.reconcile()
    assert [write for write in world.store.writes[before:] if "Job" in write and "maths" in write] == []


async def test_it_waits_for_a_decoder_that_is_not_there_and_starts_when_it_is(world: World) -> None:
    world.store.remove("SharedDecoder", "team", "base")
    world.store.put(tuning())
    await world.settle()
    assert says(world, "ResolvedRefs")[:2] == ("False", "DecoderNotFound")
    assert (await world.plan(*TUNING)).requeue_after == 30
    world.store.put(decoder())
    await world.settle()
    assert says(world, "Progressing")[1] == "Running"


async def test_a_decoder_of_another_namespace_says_who_may_tune_against_it(world: World) -> None:
    world.store.put(decoder(namespace="platform", model={"uri": "hf://org/base@main"}))
    world.store.put(tuning(decoderRef={"name": "base", "namespace": "platform"}))
    await world.settle()
    status, reason, message = says(world, "ResolvedRefs")
    assert (status, reason) == ("False", "NotAllowedByDecoder")
    assert "PrefillTunings of namespace team" in message
    everybody = {"namespaces": {"from": "All"}}
    world.store.put(decoder(namespace="platform", model={"uri": "hf://org/base@main"}, allowedModels=everybody))
    await world.settle()
    assert says(world, "Progressing")[1] == "Running"


async def test_a_claim_of_another_namespace_cannot_be_mounted(world: World) -> None:
    world.store.put(decoder(namespace="platform", allowedModels={"namespaces": {"from": "All"}}))
    world.store.put(tuning(decoderRef={"name": "base", "namespace": "platform"}))
    await world.settle()
    assert says(world, "ResolvedRefs")[1] == "VolumeClaimNotFound"
    assert BASE_URI in says(world, "ResolvedRefs")[2]


async def test_a_path_of_the_decoder_needs_a_volume_of_the_template(world: World) -> None:
    hold = {"volumes": [{"name": "disk", "nfs": {"server": "n", "path": "/"}}]}
    engine = {"containers": [{"name": "engine", "volumeMounts": [{"name": "disk", "mountPath": "/disk"}]}]}
    world.store.put(decoder("path", model={"uri": "file:///disk/base"}, template={"spec": {**hold, **engine}}))
    world.store.put(tuning(decoderRef={"name": "path"}))
    await world.settle()
    assert says(world, "ResolvedRefs")[1] == "VolumeNotFound"


async def test_a_deleted_run_leaves_nothing_behind(world: World) -> None:
    world.store.put(tuning(nodes=2))
    await world.settle()
    world.store.remove("PrefillTuning", "team", "maths")
    left = [live for kind in ("Job", "Service") for live in world.store.all(kind)]
    assert [live["metadata"]["name"] for live in left if live["metadata"]["name"].startswith("maths")] == []


async def test_a_run_made_again_waits_until_the_job_of_the_first_is_gone(world: World) -> None:
    world.store.put(tuning())
    await world.settle()
    del world.store.objects["PrefillTuning", "team", "maths"]
    world.store.put(tuning())
    await world.reconcile()
    assert says(world, "Progressing")[1] == "Pending"
    assert (await world.plan(*TUNING)).before == ()


def test_a_status_is_read_back_as_it_was_written() -> None:
    live = tuning() | {"status": {"progress": {"step": 3, "totalSteps": 9, "loss": "0.5"}}}
    assert PrefillTuning.parse(live).status.progress is not None


@pytest.mark.parametrize("kind", ["PrefillTuning", "SharedDecoder"])
async def test_pods_are_read_after_the_job_whose_end_they_explain(world: World, kind: str) -> None:
    """Read side by side, a Job could be seen ended with pods that had not said how, and the digest was lost."""
    world.store.put(tuning())
    await world.settle()
    order: list[str] = []
    listed = world.store.list

    async def noted(kind: str, *args: Any, **more: Any) -> Any:
        order.append(f"{kind} begins")
        await asyncio.sleep(0)
        found = await listed(kind, *args, **more)
        order.append(f"{kind} ends")
        return found

    world.store.list = noted  # type: ignore[method-assign]
    if kind == "PrefillTuning":
        assert await observe_tuning(world.store, Key(kind, "team", "maths")) is not None
    else:
        assert await observe_decoder(world.store, Index(), Key(kind, "team", "base")) is not None
    assert order.index("Job ends") < order.index("Pod begins")
