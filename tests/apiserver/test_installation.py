"""The installation on a real API server with real controllers and no node: what is applied, and that nothing stays."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from sunfleet_api import names
from sunfleet_cluster.controlplane import control_plane
from sunfleet_cluster.images.records import record_refs
from sunfleet_cluster.install.fleet import NAMESPACE, Fleet
from sunfleet_cluster.install.overlay import NEEDED
from sunfleet_cluster.kubectl import Kubectl
from sunfleet_cluster.progress import Progress
from sunfleet_cluster.state import StateFolder

ROOT = Path(__file__).resolve().parents[2]
OURS = "--selector=app.kubernetes.io/part-of=sunfleet"


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    folder = tmp_path_factory.mktemp("installation")
    state = StateFolder(folder / "state")
    record_refs(state, {name: f"localhost/sunfleet/{name}:0123" for name in NEEDED})
    with control_plane(folder / "plane", controllers=True) as plane:
        yield Fleet(ROOT, state, Kubectl(str(plane.kubectl), plane.kubeconfig), Progress())


def versions(fleet: Fleet) -> dict[str, str]:
    """Our objects and the generation of what was asked for."""
    kinds = "deployments,services,serviceaccounts,roles,rolebindings,poddisruptionbudgets,networkpolicies"
    found = [
        *fleet.kubectl.items(kinds, f"--namespace={NAMESPACE}", OURS),
        *fleet.kubectl.items("clusterroles,clusterrolebindings", OURS),
        *fleet.kubectl.items("customresourcedefinitions"),
    ]
    return {
        f"{each['kind']}/{each['metadata']['name']}": str(
            each["metadata"].get("generation") or each["metadata"]["resourceVersion"]
        )
        for each in found
    }


def test_the_same_installation_twice_changes_nothing(fleet: Fleet) -> None:
    fleet.apply()
    first = versions(fleet)
    fleet.apply()
    assert versions(fleet) == first
    assert {"Deployment/sunfleet-operator", "Deployment/sunfleet-router"} <= set(first)


def test_pods_of_the_installation_are_admitted_to_the_restricted_namespace(fleet: Fleet) -> None:
    fleet.apply()
    pods: list[str] = []
    while len(set(pods)) < 2:  # made by the controllers a moment later; the test's time limit ends the wait
        pods = [pod["metadata"]["labels"]["app.kubernetes.io/component"] for pod in fleet.kubectl.items("pods", "-A")]
    assert set(pods) == {"operator", "router"}


def test_the_documented_way_out_of_a_wrong_uninstall_takes_our_finalizer_and_no_other(
    fleet: Fleet, tmp_path: Path
) -> None:
    fleet.apply()
    manifest = yaml.safe_load((ROOT / "manifests/samples/gpu/decoder.yaml").read_text())
    theirs = ["example.com/first", names.FINALIZER, "example.com/last"]
    manifest["metadata"] |= {"namespace": "default", "finalizers": theirs}
    (tmp_path / "decoder.json").write_text(json.dumps(manifest))
    fleet.kubectl("create", "--filename", str(tmp_path / "decoder.json"))
    fleet.kubectl("delete", "shareddecoder", manifest["metadata"]["name"], "--namespace=default", "--wait=false")
    text = (ROOT / "docs/install.md").read_text()
    script = "sunfleet_finalizers() {" + text.partition("```sh\nsunfleet_finalizers() {")[2].partition("```")[0]
    (tmp_path / "kubectl").symlink_to(fleet.kubectl.binary)
    environment = {"PATH": f"{tmp_path}:/usr/bin:/bin", "KUBECONFIG": str(fleet.kubectl.kubeconfig), "NO_PROXY": "*"}
    for _ in range(2):
        subprocess.run(["bash", "-euo", "pipefail", "-c", script], env=environment, check=True, timeout=60)
    (live,) = fleet.kubectl.items("shareddecoders", "--namespace=default")
    assert live["metadata"]["finalizers"] == ["example.com/first", "example.com/last"]
    patch = '{"metadata": {"finalizers": null}}'
    fleet.kubectl(
        "patch", "shareddecoder", live["metadata"]["name"], "--namespace=default", "--type=merge", f"--patch={patch}"
    )


def test_uninstalling_leaves_nothing_and_may_be_repeated(fleet: Fleet) -> None:
    fleet.apply()
    fleet.kubectl.apply("--filename", str(ROOT / "manifests" / "samples" / "gpu"))
    fleet.uninstall()
    fleet.uninstall()
    kinds = "namespaces,clusterroles,clusterrolebindings,priorityclasses"
    assert fleet.kubectl("get", kinds, OURS, "--output=name") == ""
    assert not fleet.kubectl.items("customresourcedefinitions")
