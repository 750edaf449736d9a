"""What is applied, what is deleted in which order, and how a failed start is explained."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from sunfleet_cluster.install.overlay import NEEDED, kustomization, uninstall_batches
from sunfleet_cluster.install.waiting import complaints, current_pods, hopeless, lacks

ROOT = Path(__file__).resolve().parents[3]
REFS = {name: f"localhost/sunfleet/{name}:0123" for name in NEEDED}


def deployment(*, wanted: int = 1, generation: int = 2, **status: int) -> dict[str, Any]:
    done = {"observedGeneration": 2, "replicas": 1, "updatedReplicas": 1, "availableReplicas": 1}
    return {"metadata": {"generation": generation}, "spec": {"replicas": wanted}, "status": done | status}


def pod(reason: str = "", *, message: str = "", restarts: int = 0) -> dict[str, Any]:
    state = {"waiting": {"reason": reason, "message": message}} if reason else {"running": {}}
    status = {"name": "main", "restartCount": restarts, "ready": not reason, "state": state}
    return {"metadata": {"name": "pod-1"}, "status": {"containerStatuses": [status], "conditions": []}}


def test_the_overlay_names_manifests_relatively_and_every_image(tmp_path: Path) -> None:
    overlay = kustomization(tmp_path / "state", tmp_path / "tree" / "manifests", REFS)
    assert overlay["resources"] == ["../tree/manifests"]
    assert {"name": "sunfleet/router", "newName": "localhost/sunfleet/router", "newTag": "0123"} in overlay["images"]
    patch = yaml.safe_load(overlay["patches"][0]["patch"])
    environment = patch["spec"]["template"]["spec"]["containers"][0]["env"]
    assert {each["name"]: each["value"] for each in environment} == {
        "SUNFLEET_OPERATOR_ENGINE_IMAGE": "localhost/sunfleet/worker:0123",
        "SUNFLEET_OPERATOR_WEIGHTS_IMAGE": "localhost/sunfleet/weights:0123",
        "SUNFLEET_OPERATOR_TUNER_IMAGE": "localhost/sunfleet/tuner:0123",
    }


def test_the_patch_meets_the_operators_manifest() -> None:
    manifest = yaml.safe_load((ROOT / "manifests" / "base" / "operator" / "deployment.yaml").read_text())
    patch = yaml.safe_load(kustomization(ROOT, ROOT / "manifests", REFS)["patches"][0]["patch"])
    assert patch["metadata"]["name"] == manifest["metadata"]["name"]
    assert patch["metadata"]["namespace"] == manifest["metadata"]["namespace"]
    container, patched = (each["spec"]["template"]["spec"]["containers"][0] for each in (manifest, patch))
    assert patched["name"] == container["name"]
    assert {each["name"] for each in patched["env"]} <= {each["name"] for each in container["env"]}


def test_every_crd_is_part_of_the_installation() -> None:
    listed = yaml.safe_load((ROOT / "crds" / "kustomization.yaml").read_text())["resources"]
    assert sorted(listed) == sorted(path.name for path in (ROOT / "crds").glob("serving.*.yaml"))


def test_the_namespace_is_restricted() -> None:
    namespace = yaml.safe_load((ROOT / "manifests" / "base" / "namespace.yaml").read_text())
    assert namespace["metadata"]["labels"]["pod-security.kubernetes.io/enforce"] == "restricted"


def test_crds_go_after_what_runs_and_the_namespace_last() -> None:
    kinds = ["Namespace", "CustomResourceDefinition", "ServiceAccount", "ClusterRole", "Deployment"]
    batches = uninstall_batches([{"kind": kind} for kind in kinds])
    assert [[each["kind"] for each in batch] for batch in batches] == [
        ["Deployment", "ClusterRole", "ServiceAccount"],
        ["CustomResourceDefinition"],
        ["Namespace"],
    ]


def test_a_finished_rollout_lacks_nothing() -> None:
    assert lacks(deployment()) == ""


@pytest.mark.parametrize(
    ("unfinished", "words"),
    [
        (deployment(generation=3), "not seen"),
        (deployment(updatedReplicas=0), "0 of 1 pods updated"),
        (deployment() | {"status": {}}, "not seen"),
        (deployment(wanted=2, replicas=2, updatedReplicas=2), "1 of 2 pods available"),
        # The old pod still answers: counting only available pods would call this done.
        (deployment(replicas=2), "1 old pods"),
    ],
)
def test_an_unfinished_rollout_says_what_it_lacks(unfinished: dict[str, Any], words: str) -> None:
    assert words in lacks(unfinished)


def test_a_starting_pod_is_waited_for() -> None:
    assert hopeless([pod(), pod("ContainerCreating"), pod("CrashLoopBackOff", restarts=1)]) == ""


@pytest.mark.parametrize("broken", [pod("ImagePullBackOff", message="not found"), pod("CrashLoopBackOff", restarts=3)])
def test_a_pod_that_will_never_start_ends_the_wait(broken: dict[str, Any]) -> None:
    assert hopeless([pod(), broken]).startswith("pod pod-1: ")


def test_only_pods_of_the_revision_that_is_rolled_out_count() -> None:
    def revision(number: int) -> dict[str, Any]:
        return {"deployment.kubernetes.io/revision": str(number)}

    def replica_set(owner: str, number: int, label: str) -> dict[str, Any]:
        labels = {"pod-template-hash": label}
        return {"metadata": {"annotations": revision(number), "labels": labels, "ownerReferences": [{"name": owner}]}}

    deployments = [{"metadata": {"name": "one", "annotations": revision(2)}}]
    replica_sets = [replica_set("one", 1, "old"), replica_set("one", 2, "new"), replica_set("other", 2, "foreign")]
    pods = [{"metadata": {"labels": {"pod-template-hash": label}}} for label in ("old", "new", "foreign")]
    assert current_pods(deployments, replica_sets, [*pods, {"metadata": {}}]) == [pods[1]]


def test_complaints_name_pod_container_and_reason() -> None:
    unschedulable = pod()
    unschedulable["status"]["conditions"] = [
        {"type": "PodScheduled", "status": "False", "message": "0/1 nodes are available"},
        {"type": "Ready", "status": "True"},
    ]
    assert complaints([unschedulable, pod("ImagePullBackOff", message="not found")]) == [
        "pod-1: PodScheduled=False: 0/1 nodes are available",
        "pod-1/main: waiting: ImagePullBackOff, not found",
    ]
