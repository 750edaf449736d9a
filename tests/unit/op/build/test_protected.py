"""Overlays that would make a pod of another KV contract are refused and named; all others are not."""

from __future__ import annotations

from typing import Any

import pytest

from sunfleet_operator.build.protected import protected_changes
from sunfleet_optest.objects import decoder, model
from sunfleet_optest.world import World

ENGINE = "containers[engine]"


def overlay(**engine: Any) -> dict[str, Any]:
    return {"spec": {"containers": [{"name": "engine", **engine}]}}


def env(name: str, value: str = "x") -> dict[str, Any]:
    return overlay(env=[{"name": name, "value": value}])


@pytest.mark.parametrize(
    ("changed", "named"),
    [
        (env("SUNFLEET_WORKER_BLOCK_SIZE", "64"), f"{ENGINE}.env[SUNFLEET_WORKER_BLOCK_SIZE]"),
        (env("SUNFLEET_WORKER_TENSOR_PARALLEL_SIZE", "2"), f"{ENGINE}.env[SUNFLEET_WORKER_TENSOR_PARALLEL_SIZE]"),
        (env("SUNFLEET_WORKER_KV_CACHE_DTYPE", "fp8"), f"{ENGINE}.env[SUNFLEET_WORKER_KV_CACHE_DTYPE]"),
        (env("SUNFLEET_WORKER_POD_IP"), f"{ENGINE}.env[SUNFLEET_WORKER_POD_IP]"),
        (env("SUNFLEET_WORKER_NEW"), f"{ENGINE}.env[SUNFLEET_WORKER_NEW]"),
        (
            overlay(env=[{"name": "SUNFLEET_WORKER_DTYPE", "$patch": "delete"}]),
            f"{ENGINE}.env[SUNFLEET_WORKER_DTYPE]",
        ),
        (overlay(image="another/worker:1"), f"{ENGINE}.image"),
        (overlay(command=["vllm", "serve"]), f"{ENGINE}.command"),
        (overlay(args=["--dtype=float16"]), f"{ENGINE}.args"),
        (
            overlay(volumeMounts=[{"name": "mine", "mountPath": "/weights/model"}]),
            f"{ENGINE}.volumeMounts[/weights/model]",
        ),
        (overlay(volumeMounts=[{"name": "mine", "mountPath": "/weights/"}]), f"{ENGINE}.volumeMounts[/weights/]"),
        (
            overlay(volumeMounts=[{"name": "mine", "mountPath": "/weights/model/config.json"}]),
            f"{ENGINE}.volumeMounts[/weights/model/config.json]",
        ),
        ({"spec": {"volumes": [{"name": "weights", "hostPath": {"path": "/mine"}}]}}, "volumes[weights]"),
        (
            {"spec": {"initContainers": [{"name": "fetch-adapter", "args": ["fetch", "hf://other/one"]}]}},
            "initContainers[fetch-adapter]",
        ),
        ({"spec": {"containers": [{"name": "engine", "$patch": "delete"}]}}, ENGINE),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_decides_about_kv_cannot_be_overlaid(changed: dict[str, Any], named: str) -> None:
    assert protected_changes(changed) == (named,)


def test_replacing_the_whole_pod_names_everything_that_is_lost() -> None:
    lost = protected_changes(overlay(**{"$patch": "replace", "image": "mine"}))
    assert {f"{ENGINE}.image", f"{ENGINE}.env[SUNFLEET_WORKER_DTYPE]", f"{ENGINE}.volumeMounts[/weights/model]"} <= {
        *lost
    }


@pytest.mark.parametrize(
    "harmless",
    [
        {},
        {"metadata": {"labels": {"team": "a"}}, "spec": {"nodeSelector": {"gpu": "h100"}, "tolerations": [{}]}},
        overlay(resources={"limits": {"nvidia.com/gpu": "2"}}, imagePullPolicy="Always"),
        overlay(env=[{"name": "NCCL_DEBUG", "value": "INFO"}, {"name": "UCX_NET_DEVICES", "value": "mlx5_0:1"}]),
        env("SUNFLEET_WORKER_SELF_CHECK", "false"),
        overlay(
            envFrom=[{"configMapRef": {"name": "site"}}], volumeMounts=[{"name": "site", "mountPath": "/opt/site"}]
        ),
        overlay(volumeMounts=[{"name": "site", "mountPath": "/weights-of-others"}]),
        {"spec": {"containers": [{"name": "sidecar", "image": "log:1", "args": ["-v"], "env": [{"name": "A"}]}]}},
        {"spec": {"initContainers": [{"name": "fetch-weights", "resources": {"limits": {"cpu": "4"}}}]}},
        {"spec": {"volumes": [{"name": "shm", "emptyDir": {"medium": "Memory", "sizeLimit": "8Gi"}}]}},
    ],
    ids=str,
)
def test_every_other_overlay_passes(harmless: dict[str, Any]) -> None:
    assert protected_changes(harmless) == ()


async def test_a_task_whose_template_changes_the_contract_says_why_and_starts_no_pod() -> None:
    world = World()
    world.store.put(decoder())
    world.store.put(model(template=env("SUNFLEET_WORKER_BLOCK_SIZE", "64")))
    await world.settle()
    found = world.condition("SunModel", "maths", "KVCompatible")
    assert (found["status"], found["reason"]) == ("False", "TemplateChangesContract")
    assert "SUNFLEET_WORKER_BLOCK_SIZE" in found["message"]
    assert "spec.engine of the SharedDecoder" in found["message"]
    assert world.condition("SunModel", "maths", "Ready")["reason"] == "TemplateChangesContract"
    assert world.status("SunModel", "maths").get("traffic", []) == []
    assert [live["metadata"]["labels"].get("serving.sunfleet.dev/role") for live in world.store.all("Deployment")] == [
        "decode"
    ]


async def test_a_task_that_serves_goes_on_when_such_a_template_comes() -> None:
    world = World()
    world.store.put(decoder())
    world.store.put(model())
    await world.settle()
    before = world.status("SunModel", "maths")
    world.store.put(model(template=overlay(image="another/worker:1")))
    await world.settle()
    after = world.status("SunModel", "maths")
    assert world.condition("SunModel", "maths", "KVCompatible")["reason"] == "TemplateChangesContract"
    assert (after["currentRevision"], after["traffic"]) == (before["currentRevision"], before["traffic"])


async def test_a_decoder_whose_template_changes_the_contract_keeps_what_it_has() -> None:
    world = World()
    world.store.put(decoder())
    world.store.put(model())
    await world.settle()
    before = world.status("SharedDecoder", "base")
    world.store.put(decoder(template=overlay(image="another/worker:1")))
    await world.settle()
    found = world.condition("SharedDecoder", "base", "KVContractKnown")
    assert (found["status"], found["reason"]) == ("False", "TemplateChangesContract")
    after = world.status("SharedDecoder", "base")
    assert (after["updateRevision"], after["kvFingerprint"]) == (before["updateRevision"], before["kvFingerprint"])
    assert world.condition("SunModel", "maths", "Ready")["status"] == "True"


async def test_a_new_decoder_with_such_a_template_starts_nothing() -> None:
    world = World()
    world.store.put(decoder(template=overlay(command=["sh"])))
    await world.settle()
    assert world.condition("SharedDecoder", "base", "Ready")["reason"] == "TemplateChangesContract"
    assert not list(world.store.all("Deployment"))
