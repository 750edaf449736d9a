"""A quantised decoder: the Job that makes it, what is served afterwards, what adapters and tuning run over."""

from __future__ import annotations

import json
from datetime import timedelta
from typing import Any

import pytest

from sunfleet_api import names
from sunfleet_api.tuning import JOB_VARIABLE, QuantizeJob, TuneJob, TuningReport
from sunfleet_optest.objects import BASE_URI, decoder, model, tuning
from sunfleet_optest.world import World

BASE = ("SharedDecoder", "base")
QUANTISED = "pvc://modules/base-w4"
ASKED = {"scheme": "W4A16", "groupSize": 64, "outputUri": QUANTISED}


@pytest.fixture
def world() -> World:
    return World()


def job_of(world: World) -> dict[str, Any] | None:
    jobs = world.store.all("Job")
    return next((job for job in jobs if job["metadata"]["labels"][names.LABEL_ROLE] == names.ROLE_QUANTIZER), None)


def told(container: dict[str, Any]) -> str:
    return str(next(variable["value"] for variable in container["env"] if variable["name"] == JOB_VARIABLE))


async def test_the_pool_waits_for_the_job_and_then_runs_what_it_made(world: World) -> None:
    world.tuned = lambda _: None
    world.store.put(decoder(quantization=ASKED))
    await world.settle()
    assert world.condition(*BASE, "WeightsReady")["reason"] == "Quantizing"
    assert list(world.store.all("Deployment")) == []
    job = job_of(world)
    assert job is not None
    (container,) = job["spec"]["template"]["spec"]["containers"]
    work = QuantizeJob.model_validate_json(told(container))
    assert (work.bits, work.group_size, work.base_path) == (4, 64, names.WEIGHTS_PATH)
    assert work.output_path == "/output/base-w4"

    world.tuned = lambda _: TuningReport(digest="sha256:made")
    await world.settle()
    status = world.status(*BASE)
    assert world.condition(*BASE, "Ready")["status"] == "True"
    assert status["model"] == {
        "resolvedUri": BASE_URI, "digest": f"sha256:{BASE_URI}", "quantizedDigest": f"sha256:{QUANTISED}",
    }  # fmt: skip
    assert status["decoderDigest"] == f"sha256:{QUANTISED}"
    (live,) = world.deployments("base").values()
    claims = [v["persistentVolumeClaim"]["claimName"] for v in live["spec"]["template"]["spec"]["volumes"] if
              "persistentVolumeClaim" in v]  # fmt: skip
    assert claims == ["modules"]
    assert job_of(world) is None


async def test_it_is_made_once_whatever_becomes_of_job_and_status(world: World) -> None:
    world.store.put(decoder(quantization=ASKED))
    await world.settle()
    world.store.one("SharedDecoder", "base").pop("status")
    before = len(world.store.writes)
    await world.settle()
    assert [write for write in world.store.writes[before:] if "quantize" in write] == []


async def test_an_adapter_runs_over_the_16_bit_checkpoint(world: World) -> None:
    world.store.put(decoder(quantization=ASKED))
    world.store.put(model())
    await world.settle()
    (live,) = world.deployments("maths").values()
    spec = live["spec"]["template"]["spec"]
    mounts = {mount["mountPath"]: mount["name"] for mount in spec["containers"][0]["volumeMounts"]}
    volumes = {volume["name"]: volume for volume in spec["volumes"]}
    assert volumes[mounts[names.WEIGHTS_PATH]]["persistentVolumeClaim"]["claimName"] == "models"
    assert world.status("SunModel", "maths")["kvFingerprint"] == world.status(*BASE)["kvFingerprint"]


async def test_tuning_against_it_starts_from_the_16_bit_checkpoint(world: World) -> None:
    world.store.put(decoder(quantization=ASKED))
    world.store.put(tuning())
    await world.settle()
    spec = world.store.one("Job", "maths-tuner")["spec"]["template"]["spec"]
    assert TuneJob.model_validate_json(told(spec["containers"][0])).settings["init"] == names.INIT_PATH
    mounts = {m["mountPath"]: (m["name"], m.get("subPath")) for m in spec["containers"][0]["volumeMounts"]}
    volumes = {v["name"]: v.get("persistentVolumeClaim", {}).get("claimName") for v in spec["volumes"]}
    where = {path: (volumes[name], inside) for path, (name, inside) in mounts.items()}
    assert where[names.WEIGHTS_PATH] == ("modules", "base-w4")
    assert where[names.INIT_PATH] == ("models", "base")


async def test_a_job_that_failed_says_why_and_is_tried_again_after_a_while(world: World) -> None:
    world.tuned = lambda _: TuningReport(error_reason="InvalidCheckpoint", error_message="group 64 does not fit")
    world.store.put(decoder(quantization=ASKED))
    await world.settle()
    found = world.condition(*BASE, "WeightsReady")
    assert (found["status"], found["reason"]) == ("False", "InvalidCheckpoint")
    assert "group 64 does not fit" in found["message"]
    world.now += timedelta(hours=2)
    world.tuned = lambda _: TuningReport(digest="sha256:made")
    await world.settle()
    assert world.condition(*BASE, "Ready")["status"] == "True"


async def test_calibration_is_read_with_the_same_secret(world: World) -> None:
    world.tuned = lambda _: None
    texts = {"uri": "s3://store/texts.jsonl", "samples": 64}
    world.store.put(decoder(quantization={**ASKED, "calibration": texts, "credentialsSecretRef": {"name": "s3"}}))
    await world.settle()
    job = job_of(world)
    assert job is not None
    (container,) = job["spec"]["template"]["spec"]["containers"]
    work = json.loads(told(container))
    assert (work["data"], work["samples"]) == ("s3://store/texts.jsonl", 64)
    assert {entry["secretRef"]["name"] for entry in container["envFrom"]} == {"s3"}


async def test_calibration_may_be_one_configuration_of_a_dataset_and_without_one_the_job_keeps_its_name(
    world: World,
) -> None:
    world.tuned = lambda _: None
    texts = {"uri": "hf://org/texts@v1", "samples": 64}
    found = {}
    for name, subset in (("plain", {}), ("several", {"subset": "main"})):
        world.store.put(decoder(name, quantization={**ASKED, "calibration": {**texts, **subset}}))
        await world.settle()
        (job,) = [one for one in world.store.all("Job") if one["metadata"]["name"].startswith(f"{name}-quantize-")]
        work = QuantizeJob.model_validate_json(told(job["spec"]["template"]["spec"]["containers"][0]))
        found[job["metadata"]["name"]] = work.subset
    assert list(found.values()) == ["", "main"]
    assert next(iter(found)) == "plain-quantize-2f6c469c"


@pytest.mark.parametrize("uri", ["hf://org/w4", "pvc://modules", "oci://ghcr.io/w4:1"])
async def test_an_output_that_cannot_be_written_is_refused(world: World, uri: str) -> None:
    world.store.put(decoder(quantization={**ASKED, "outputUri": uri}))
    await world.settle()
    found = world.condition(*BASE, "WeightsReady")
    assert (found["reason"], uri in found["message"]) == ("InvalidSpec", True)
    assert job_of(world) is None


async def test_a_decoder_without_it_keeps_its_revision(world: World) -> None:
    world.store.put(decoder())
    await world.settle()
    assert set(world.deployments("base")) == {world.status(*BASE)["currentRevision"]}
    assert world.status(*BASE)["model"]["quantizedDigest"] == ""
