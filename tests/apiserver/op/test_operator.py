"""The operator process against a real API server: what people and other programs of a cluster would see."""

from __future__ import annotations

import subprocess
import time
from pathlib import Path
from typing import Any

import pytest
import yaml

from sunfleet_api import names
from sunfleet_api.worker import ResolverReport
from sunfleet_cluster.controlplane import RunningControlPlane
from sunfleet_optest.live import Fleet, Process
from sunfleet_optest.objects import decoder, model, report

# Every step waits for a process of its own; a busy machine makes that slow.
pytestmark = pytest.mark.timeout(300)
DECODER, TASK = ("SharedDecoder", "base"), ("SunModel", "maths")


def _start(fleet: Fleet, *tasks: dict[str, Any]) -> None:
    fleet.apply(decoder(namespace=fleet.namespace))
    manifests = tasks or (model(namespace=fleet.namespace),)
    for task in manifests:
        fleet.apply(task)
    fleet.until_ready(DECODER, *(("SunModel", task["metadata"]["name"]) for task in manifests))


def test_a_task_before_its_decoder_becomes_ready_without_a_touch(fleet: Fleet) -> None:
    fleet.apply(model())
    fleet.until(lambda: fleet.condition(*TASK)[1] == "DecoderNotFound", "the missing decoder is said")
    fleet.apply(decoder())
    fleet.until_ready(DECODER, TASK)
    (entry,) = fleet.get(*TASK)["status"]["traffic"]
    assert (entry["weight"], entry["decoder"]) == (100, f"{fleet.namespace}/base")


def test_kubectl_sees_no_difference_after_reconcile(fleet: Fleet, plane: RunningControlPlane, tmp_path: Path) -> None:
    manifests = tmp_path / "fleet.yaml"
    manifests.write_text(yaml.safe_dump_all([decoder(namespace=fleet.namespace), model(namespace=fleet.namespace)]))
    kubectl = [str(plane.kubectl), f"--kubeconfig={plane.kubeconfig}"]
    subprocess.run([*kubectl, "apply", "-f", str(manifests)], check=True, capture_output=True, timeout=60)
    fleet.until_ready(DECODER, TASK)
    diff = subprocess.run(
        [*kubectl, "diff", "-f", str(manifests)], check=False, capture_output=True, text=True, timeout=60
    )
    assert (diff.returncode, diff.stdout) == (0, ""), diff.stderr


def test_the_operator_owns_nothing_of_a_users_spec(fleet: Fleet) -> None:
    _start(fleet)
    for kind, name in (DECODER, TASK):
        live = fleet.get(kind, name)
        for entry in live["metadata"]["managedFields"]:
            if entry["manager"].startswith("sunfleet"):
                assert "f:spec" not in entry["fieldsV1"], entry
                assert "f:annotations" not in entry["fieldsV1"].get("f:metadata", {})


CHANGES: dict[str, tuple[str, dict[str, Any], str]] = {
    "the engine's image": ("SharedDecoder", {"engine": {"image": "worker:9"}}, "worker:9"),
    "the engine's length": ("SharedDecoder", {"engine": {"maxModelLen": 99}}, "'99'"),
    "an engine argument": ("SharedDecoder", {"engine": {"extraArgs": [{"name": "enforce-eager"}]}}, "enforce-eager"),
    "the decoder's replicas": ("SharedDecoder", {"replicas": 3}, "'replicas': 3"),
    "the decoder's template": ("SharedDecoder", {"template": {"spec": {"nodeSelector": {"zone": "z9"}}}}, "z9"),
    "the task's replicas": ("SunModel", {"replicas": 2}, "'replicas': 2"),
    "the task's drain": ("SunModel", {"rollout": {"drainTimeoutSeconds": 7}}, "'terminationGracePeriodSeconds': 42"),
    "the task's deadline": (
        "SunModel", {"rollout": {"progressDeadlineSeconds": 777}}, "'progressDeadlineSeconds': 777",
    ),
    "the task's template": ("SunModel", {"template": {"metadata": {"labels": {"cost": "c9"}}}}, "c9"),
    "the task's adapter": (
        "SunModel", {"prefill": {"adapter": {"uri": "pvc://models/adapters/other"}}}, "adapters/other",
    ),
}  # fmt: skip


def test_every_mutable_field_reaches_the_live_child(fleet: Fleet) -> None:
    _start(fleet)
    for what, (kind, spec, expected) in CHANGES.items():
        name = dict((DECODER, TASK))[kind]
        fleet.patch(kind, name, {"spec": spec})
        fleet.until(
            lambda name=name, expected=expected: any(  # type: ignore[misc]
                expected in str(live["spec"]) for live in fleet.deployments(name).values()
            ),
            what,
        )
        fleet.until_ready(DECODER, TASK)


def test_a_failing_resolver_is_told_and_a_mended_uri_recovers(fleet: Fleet) -> None:
    fleet.resolve = lambda uri: (
        ResolverReport(error_reason="NotFound", error_message="nothing there") if "wrong" in uri else report(uri)
    )
    fleet.apply(decoder())
    fleet.apply(model(uri="pvc://models/adapters/wrong"))
    fleet.until(lambda: fleet.condition(*TASK)[1] == "NotFound", "the resolver's reason")
    assert "nothing there" in fleet.condition(*TASK)[2]
    fleet.apply(model(uri="pvc://models/adapters/right"))
    fleet.until_ready(TASK)


def test_the_younger_of_two_equal_model_names_is_refused(fleet: Fleet) -> None:
    shared = f"acme/{fleet.namespace}"
    _start(fleet, model(modelName=shared))
    time.sleep(1.1)  # creation times are whole seconds; of two objects of one second the name decides
    fleet.apply(model("code", modelName=shared))
    fleet.until(lambda: fleet.condition("SunModel", "code")[1] == "ModelNameConflict", "the conflict")
    assert fleet.ready(*TASK)


def test_a_decoder_in_use_outlives_its_deletion(fleet: Fleet) -> None:
    _start(fleet)
    fleet.delete(*DECODER)
    fleet.until(lambda: fleet.condition(*DECODER, "DeletionBlocked")[0] == "True", "the block is said")
    assert fleet.ready(*TASK)
    fleet.delete(*TASK)
    fleet.until(lambda: fleet.gone(*DECODER), "the decoder goes after its last task")


def test_changing_one_task_leaves_every_other_deployment_as_it_was(fleet: Fleet) -> None:
    _start(fleet, model("maths"), model("code"))
    before = {name: live["metadata"] for name, live in fleet.deployments().items() if not name.startswith("maths")}
    assert len(before) == 2
    fleet.patch(*TASK, {"spec": {"prefill": {"adapter": {"uri": "pvc://models/adapters/other"}}}})
    fleet.until(lambda: "adapters/other" in str(fleet.deployments("maths")), "the new revision")
    fleet.until_ready(TASK)
    fleet.until(lambda: len(fleet.deployments("maths")) == 1, "the old revision goes")
    after = fleet.deployments()
    for name, metadata in before.items():
        assert after[name]["metadata"]["uid"] == metadata["uid"]
        assert after[name]["metadata"]["generation"] == metadata["generation"]


def test_downloads_with_a_cache_an_authority_and_a_login_are_accepted_and_left_alone(fleet: Fleet) -> None:
    download = {
        "cache": {"claimName": "weights-cache", "sizeLimit": "500Gi"},
        "caBundle": {"configMapRef": {"name": "company"}},
        "proxy": {"url": "http://proxy:3128"},
    }
    uri = "oci://registry.example/acme/base@sha256:" + "c" * 64
    source = {"uri": uri, "credentialsSecretRef": {"name": "login"}, "download": download}
    fleet.apply(decoder(model=source))
    fleet.apply(model())
    fleet.until_ready(DECODER, TASK)
    (live,) = fleet.deployments("base").values()
    spec = live["spec"]["template"]["spec"]
    assert [c.get("restartPolicy") for c in spec["initContainers"]] == [None, "Always"]
    assert {"company", "login", "weights-cache"} <= {
        (v.get("configMap") or {}).get("name")
        or (v.get("secret") or {}).get("secretName")
        or (v.get("persistentVolumeClaim") or {}).get("claimName")
        for v in spec["volumes"]
    }
    fleet.patch(*DECODER, {"spec": {"allowedModels": {"namespaces": {"from": "All"}}}})
    generation = fleet.get(*DECODER)["metadata"]["generation"]
    fleet.until(lambda: fleet.get(*DECODER)["status"]["observedGeneration"] == generation, "another look")
    (after,) = fleet.deployments("base").values()
    assert after["metadata"]["generation"] == live["metadata"]["generation"]


def test_scale_reads_and_writes_our_object_and_reaches_the_child(fleet: Fleet) -> None:
    _start(fleet)
    for kind, name in (DECODER, TASK):
        path = f"{fleet.path(kind, name)}/scale"
        assert names.LABEL_ROLE in fleet.api.get(path)["status"]["selector"]
        fleet.api.merge(path, {"spec": {"replicas": 3}})
        fleet.until(
            lambda name=name: [d["spec"]["replicas"] for d in fleet.deployments(name).values()] == [3],  # type: ignore[misc]
            "three replicas",
        )
        fleet.until(
            lambda path=path: fleet.api.get(path)["status"].get("replicas") == 3,  # type: ignore[misc]
            "three replicas in the status",
        )
    (live,) = fleet.deployments("maths").values()
    owners = {
        e["manager"] for e in live["metadata"]["managedFields"] if "f:replicas" in e["fieldsV1"].get("f:spec", {})
    }
    assert owners == {names.SCALE_FIELD_MANAGER}


def test_a_pod_template_that_the_api_server_refuses_is_said_and_mending_it_helps(fleet: Fleet) -> None:
    fleet.apply(decoder(template={"spec": {"containers": [{"name": "engine", "imagePullPolicy": "Sometimes"}]}}))
    fleet.until(lambda: fleet.condition(*DECODER)[1] == "ChildRefused", "the refusal")
    assert "imagePullPolicy" in fleet.condition(*DECODER)[2]
    fleet.apply(decoder())
    fleet.until_ready(DECODER)


def test_a_fleet_at_rest_is_not_written_to_and_neither_is_it_after_a_restart(fleet: Fleet, operator: Process) -> None:
    _start(fleet)
    fleet.until(lambda: fleet.items("apis/batch/v1", "jobs") == [], "resolver Jobs are gone")
    versions = _versions(fleet)
    assert operator.stop() == 0
    operator.start()
    _lead(fleet, operator)
    fleet.until(lambda: operator.metrics().count('reconciles_total{kind="SunModel",result="ok"}') > 0, "a resync")
    fleet.apply(model("probe", modelName=f"probe-{fleet.namespace}"))
    fleet.until_ready(("SunModel", "probe"))
    after = _versions(fleet)
    # The decoder's status counts the new task; nothing else may have moved.
    changed = {key for key in versions if versions[key] != after[key]}
    assert changed <= {("SharedDecoder", "base")}


def _versions(fleet: Fleet) -> dict[tuple[str, str], str]:
    found = {("Deployment", name): live["metadata"]["resourceVersion"] for name, live in fleet.deployments().items()}
    found |= {(kind, name): fleet.get(kind, name)["metadata"]["resourceVersion"] for kind, name in (DECODER, TASK)}
    for group, plural in (("apis/apps/v1", "controllerrevisions"), ("api/v1", "services")):
        for live in fleet.items(group, plural):
            found[plural, live["metadata"]["name"]] = live["metadata"]["resourceVersion"]
    return found


def _lead(fleet: Fleet, process: Process) -> None:
    fleet.until(lambda: bool((process.healthy() or {}).get("leading")), "leading")


@pytest.mark.parametrize("seconds", [0.0, 0.05, 0.2, 0.5])
def test_killed_in_the_middle_of_its_work_it_goes_on_after_a_restart(
    fleet: Fleet, operator: Process, seconds: float
) -> None:
    fleet.apply(decoder())
    fleet.apply(model())
    if seconds:
        with pytest.raises(AssertionError):
            fleet.until(lambda: False, "time to work", seconds)
    operator.kill()
    operator.start()
    _lead(fleet, operator)
    fleet.until_ready(DECODER, TASK)
    assert len(fleet.deployments("maths")) == len(fleet.deployments("base")) == 1
