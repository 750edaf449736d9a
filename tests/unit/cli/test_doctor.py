"""What doctor finds, and what it says to do."""

from __future__ import annotations

import copy
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner
from kubernetes.client import AuthorizationV1Api, V1SelfSubjectAccessReview, V1SubjectAccessReviewStatus

from sunfleet_api.crd import crd
from sunfleet_api.kinds import KINDS
from sunfleet_cli.checkup import LEAST_KUBERNETES, Facts, findings
from sunfleet_cli.cluster import Cluster
from sunfleet_cli.commands import look
from sunfleet_cli.main import cli


def deployment(component: str, ready: int, image: str = "", **more: str) -> dict[str, Any]:
    labels = {"app.kubernetes.io/component": component, **more}
    meta = {"name": f"sunfleet-{component}", "namespace": "sunfleet-system", "labels": labels}
    spec = {"replicas": 2, "template": {"spec": {"containers": [{"image": image}]}}}
    return {"metadata": meta, "spec": spec, "status": {"readyReplicas": ready}}


def task(name: str, **conditions: str) -> dict[str, Any]:
    told = [{"type": type_, "status": status, "reason": "Because"} for type_, status in conditions.items()]
    return {"kind": "SunModel", "metadata": {"name": name, "namespace": "team"}, "status": {"conditions": told}}


GOOD = Facts(
    version="v1.33.0",
    crds={model.KIND.crd_name: crd(kind) for kind, model in KINDS.items()},
    nodes=[{"status": {"allocatable": {"nvidia.com/gpu": "8"}}}, {"status": {"allocatable": {}}}],
    deployments=[deployment("operator", 2), deployment("router", 2)],
    objects=[task("maths", Ready="True", ScalingReady="True"), task("code", Ready="True")],
    command="0.1.0",
    allowed={"list sunmodels": True},
)


def verdicts(facts: Facts) -> dict[str, str]:
    return {one.check: one.verdict for one in findings(facts)}


def test_a_whole_fleet_is_well() -> None:
    assert set(verdicts(GOOD).values()) == {"ok"}
    assert len(verdicts(GOOD)) == len(KINDS) + 7


def test_without_an_api_server_nothing_else_is_asked() -> None:
    (only,) = findings(Facts(refused={"version": "refused"}))
    assert (only.verdict, only.message) == ("failed", "refused")


@pytest.mark.parametrize(
    ("version", "verdict"),
    [("v1.28.9", "failed"), ("v1.29.0", "ok"), ("v1.33.1-eks-1a2b", "ok"), ("v2.0.0", "ok"), ("unknown", "ok")],
)
def test_a_kubernetes_that_is_too_old_is_said(version: str, verdict: str) -> None:
    assert verdicts(replace(GOOD, version=version))["API server"] == verdict


def test_the_chart_and_the_doctor_want_the_same_kubernetes() -> None:
    chart = Path(__file__).resolve().parents[3] / "manifests/helm/sunfleet/Chart.yaml"
    assert yaml.safe_load(chart.read_text())["kubeVersion"] == ">={}.{}.0-0".format(*LEAST_KUBERNETES)


def test_a_crd_that_is_missing_or_of_another_version_is_named() -> None:
    name = KINDS["SunModel"].KIND.crd_name
    assert GOOD.crds is not None
    older = copy.deepcopy(dict(GOOD.crds))
    del older[name]["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"]["canary"]
    assert verdicts(replace(GOOD, crds=older))["CRD SunModel"] == "warning"
    none = {key: value for key, value in GOOD.crds.items() if key != name}
    assert verdicts(replace(GOOD, crds=none))["CRD SunModel"] == "failed"


@pytest.mark.parametrize(("ready", "verdict"), [(2, "ok"), (1, "warning"), (0, "failed")])
def test_programs_are_judged_by_their_ready_pods(ready: int, verdict: str) -> None:
    changed = replace(GOOD, deployments=[deployment("operator", ready), deployment("router", 2)])
    assert verdicts(changed)["operator"] == verdict
    assert verdicts(replace(GOOD, deployments=[]))["router"] == "failed"


VERSIONS: dict[str, tuple[dict[str, Any], str]] = {
    "a tag of this version": ({"image": "sunfleet/router:0.1.7"}, "ok"),
    "a tag of another one": ({"image": "registry.example:5000/sunfleet/router:v0.2.0"}, "warning"),
    "what the chart says": ({"image": "sunfleet/router:main", "app.kubernetes.io/version": "0.2.0"}, "warning"),
    "the tag before the chart": (
        {"image": "sunfleet/router:0.1.0@sha256:1.2.3", "app.kubernetes.io/version": "0.2.0"}, "ok",
    ),
    "no version at all": ({"image": "registry.example:5000/sunfleet/router"}, "ok"),
}  # fmt: skip


@pytest.mark.parametrize("case", VERSIONS, ids=str)
def test_a_program_of_another_minor_version_than_the_command_is_said(case: str) -> None:
    more, verdict = VERSIONS[case]
    facts = replace(GOOD, deployments=[deployment("operator", 2), deployment("router", 2, **more)])
    (found,) = [one for one in findings(facts) if one.check == "router"]
    assert found.verdict == verdict
    assert more["image"] in found.message
    assert ("this command is 0.1.0" in found.message) == (verdict == "warning")


def test_objects_that_do_not_serve_and_those_that_lack_metrics_are_named() -> None:
    wrong = [task("maths", Ready="False", ScalingReady="False"), task("new")]
    said = {one.check: one for one in findings(replace(GOOD, objects=[*wrong, *(GOOD.objects or ())]))}
    assert said["objects"].verdict == said["scaling"].verdict == "warning"
    assert "2 of 4 are Ready; SunModel team/maths: Because" in said["objects"].message
    assert "1 of 2 scale as they should; SunModel team/maths: Because" in said["scaling"].message
    nothing = verdicts(replace(GOOD, objects=[]))
    assert nothing["objects"] == "ok"
    assert "scaling" not in nothing


def test_what_may_not_be_read_is_a_warning_and_not_a_fault() -> None:
    blind = replace(GOOD, crds=None, nodes=None, deployments=None, objects=None, refused={"nodes": "403 Forbidden"})
    assert set(verdicts(blind).values()) == {"ok", "warning"}
    assert "403 Forbidden" in {one.message for one in findings(blind)}
    assert verdicts(replace(GOOD, nodes=[]))["GPUs"] == "warning"
    assert verdicts(replace(GOOD, allowed={"create sunmodels": False}))["may create sunmodels"] == "warning"


@pytest.mark.parametrize(("held", "top"), [("portforward", True), ("proxy", True), ("log", False)])
def test_metrics_can_be_reached_by_a_forwarded_port_or_through_the_proxy(
    monkeypatch: pytest.MonkeyPatch, held: str, top: bool
) -> None:
    def asked(_: object, review: V1SelfSubjectAccessReview, **__: object) -> V1SelfSubjectAccessReview:
        wish = review.spec.resource_attributes
        assert wish is not None
        allowed = (wish.resource, wish.subresource) == ("pods", held)
        return V1SelfSubjectAccessReview(spec=review.spec, status=V1SubjectAccessReviewStatus(allowed=allowed))

    monkeypatch.setattr("sunfleet_cli.cluster.connected", lambda *_: None)
    monkeypatch.setattr(AuthorizationV1Api, "create_self_subject_access_review", asked)
    may = {what: allowed for what, allowed in Cluster().allowed("system").items() if what.startswith("reach")}
    assert may == {"reach routers' metrics (top)": top, "reach routers (chat, measure)": False}


def test_the_exit_code_says_whether_something_has_to_be_mended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(look, "examine", lambda *_: GOOD)
    good = CliRunner().invoke(cli, ["doctor"])
    assert good.exit_code == 0
    assert "8 on 1 of 2 nodes" in good.output
    monkeypatch.setattr(look, "examine", lambda *_: replace(GOOD, deployments=[]))
    bad = CliRunner().invoke(cli, ["doctor", "-o", "json"])
    assert bad.exit_code == 1
    assert any(one["verdict"] == "failed" for one in json.loads(bad.output))
