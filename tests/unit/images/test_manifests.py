"""What operators of a cluster expect of the manifests, for every Deployment alike."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

BASE = Path(__file__).resolve().parents[3] / "manifests" / "base"
Manifest = dict[str, Any]


def resources(folder: Path) -> list[Manifest]:
    """The objects that the kustomization in `folder` lists, CRDs left out."""
    found: list[Manifest] = []
    for name in yaml.safe_load((folder / "kustomization.yaml").read_text())["resources"]:
        path = folder / name
        if path.is_dir():
            found += resources(path) if path.is_relative_to(BASE) and ".." not in name else []
        else:
            found += yaml.safe_load_all(path.read_text())
    return found


ALL = resources(BASE)
DEPLOYMENTS = [each for each in ALL if each["kind"] == "Deployment"]
EACH = pytest.mark.parametrize("deployment", DEPLOYMENTS, ids=lambda each: each["metadata"]["name"])


def of(kind: str, deployment: Manifest) -> list[Manifest]:
    """Objects of `kind` that select the Deployment's pods."""
    labels = deployment["spec"]["template"]["metadata"]["labels"].items()
    return [each for each in ALL if each["kind"] == kind and selected(each["spec"]).items() <= labels]


def selected(spec: Manifest) -> dict[str, str]:
    selector: dict[str, Any] = spec.get("podSelector") or spec["selector"]
    found: dict[str, str] = selector.get("matchLabels", selector)
    return found


def test_every_file_is_part_of_the_installation() -> None:
    files = {path.relative_to(BASE) for path in BASE.rglob("*.yaml")}
    listed = {
        (path.parent / name).relative_to(BASE)
        for path in BASE.rglob("kustomization.yaml")
        for name in yaml.safe_load(path.read_text())["resources"]
        if name.endswith(".yaml")
    }
    assert {path for path in files if path.name != "kustomization.yaml"} == listed


@EACH
def test_pods_are_restricted_probed_and_sized(deployment: Manifest) -> None:
    pod = deployment["spec"]["template"]["spec"]
    assert pod["securityContext"] == {
        "runAsNonRoot": True, "runAsUser": 65532, "runAsGroup": 65532, "seccompProfile": {"type": "RuntimeDefault"},
    }  # fmt: skip
    for container in pod["containers"]:
        assert container["securityContext"] == {
            "allowPrivilegeEscalation": False, "readOnlyRootFilesystem": True, "capabilities": {"drop": ["ALL"]},
        }  # fmt: skip
        assert {"startupProbe", "livenessProbe", "readinessProbe"} <= set(container)
        assert set(container["resources"]["requests"]) == {"cpu", "memory"}
        assert "memory" in container["resources"]["limits"]
    assert all("sizeLimit" in volume["emptyDir"] for volume in pod["volumes"])


@EACH
def test_one_node_can_fail_or_be_drained(deployment: Manifest) -> None:
    pod = deployment["spec"]["template"]["spec"]
    assert deployment["spec"]["replicas"] >= 2
    assert "kubernetes.io/hostname" in {each["topologyKey"] for each in pod["topologySpreadConstraints"]}
    (budget,) = of("PodDisruptionBudget", deployment)
    assert budget["spec"]["maxUnavailable"] == 1
    assert pod["priorityClassName"] in {each["metadata"]["name"] for each in ALL if each["kind"] == "PriorityClass"}


@EACH
def test_nothing_can_be_reached_but_what_a_service_offers_and_by_the_operator_the_admin_port(
    deployment: Manifest,
) -> None:
    """Each router says for itself which routes it has: no service could ask all of them."""
    (policy,) = of("NetworkPolicy", deployment)
    assert policy["spec"]["policyTypes"] == ["Ingress"]
    opened = {port["port"] for rule in policy["spec"]["ingress"] for port in rule["ports"]}
    offered = {port["targetPort"] for service in of("Service", deployment) for port in service["spec"]["ports"]}
    operator = [{"podSelector": {"matchLabels": {"app.kubernetes.io/name": "sunfleet-operator"}}}]
    admin = [rule for rule in policy["spec"]["ingress"] if {"port": "admin"} in rule["ports"]]
    assert admin in ([], [{"from": operator, "ports": [{"port": "admin"}]}])
    assert opened - ({"admin"} if admin else set()) == offered
    (container,) = deployment["spec"]["template"]["spec"]["containers"]
    assert opened <= {port["name"] for port in container["ports"]}


@EACH
def test_metrics_are_for_prometheus_alone(deployment: Manifest) -> None:
    (policy,) = of("NetworkPolicy", deployment)
    (rule,) = (rule for rule in policy["spec"]["ingress"] if {"port": "metrics"} in rule["ports"])
    assert rule["ports"] == [{"port": "metrics"}]
    (peer,) = rule["from"]
    assert peer["podSelector"] == {"matchLabels": {"app.kubernetes.io/name": "prometheus"}}


def test_everything_can_be_found_by_one_label() -> None:
    assert all(each["metadata"]["labels"]["app.kubernetes.io/part-of"] == "sunfleet" for each in ALL)
