"""The Helm chart: the same objects as the kustomization, refused mistakes, and a life on a real API server."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from sunfleet_api.kinds import KINDS
from sunfleet_cluster.controlplane import RunningControlPlane, control_plane
from sunfleet_cluster.kubectl import Kubectl
from sunfleet_cluster.state import StateFolder

ROOT = Path(__file__).resolve().parents[2]
CHART = ROOT / "manifests/helm/sunfleet"
NAMESPACE = "sunfleet-system"
# What Helm says of itself, and what a kustomization has no name for.
HELMS_LABELS = ("instance", "managed-by", "version")
Manifest = dict[str, Any]
Helm = Callable[..., str]


class HelmError(Exception):
    """Helm's own words."""


@pytest.fixture(scope="module")
def helm(tmp_path_factory: pytest.TempPathFactory) -> Helm:
    """``helm ARGUMENTS...`` with a home of its own; raises HelmError."""
    program = StateFolder.from_env().bin / "helm"
    home = str(tmp_path_factory.mktemp("helm"))
    folders = dict.fromkeys(("HELM_CACHE_HOME", "HELM_CONFIG_HOME", "HELM_DATA_HOME"), home)
    environment = {**os.environ, **folders, "NO_PROXY": "*"}

    def run(*arguments: str) -> str:
        command = [str(program), *arguments]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=60)
        if done.returncode:
            raise HelmError(done.stderr)
        return done.stdout

    return run


@pytest.fixture(scope="module")
def template(helm: Helm) -> Callable[..., list[Manifest]]:
    """The objects of the chart with these `--set` arguments."""

    def rendered(*values: str, namespace: str = NAMESPACE) -> list[Manifest]:
        sets = [argument for value in values for argument in ("--set", value)]
        text = helm("template", "sunfleet", str(CHART), "--namespace", namespace, *sets)
        return [each for each in yaml.safe_load_all(text) if each]

    return rendered


def by_name(manifests: list[Manifest]) -> dict[str, Manifest]:
    found = {f"{each['kind']}/{each['metadata']['name']}": each for each in manifests}
    assert len(found) == len(manifests)
    return found


def without_helms_words(manifest: Manifest) -> Manifest:
    labels = manifest["metadata"].get("labels", {})
    for name in ("helm.sh/chart", *(f"app.kubernetes.io/{label}" for label in HELMS_LABELS)):
        labels.pop(name, None)
    return manifest


def test_with_default_values_it_is_the_kustomization(template: Callable[..., list[Manifest]]) -> None:
    kubectl = StateFolder.from_env().bin / "kubectl"
    text = subprocess.run([kubectl, "kustomize", ROOT / "manifests/base"], capture_output=True, text=True, check=True)
    base = by_name([each for each in yaml.safe_load_all(text.stdout) if each["kind"] != "Namespace"])
    chart = by_name([without_helms_words(each) for each in template("crds.keep=false")])
    assert sorted(chart) == sorted(base)
    for name, manifest in chart.items():
        assert manifest == base[name], name


@pytest.fixture(scope="module")
def components(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Manifest]:
    """What all components of the kustomization make, together."""
    folder = tmp_path_factory.mktemp("components")
    parts = [os.path.relpath(each, folder) for each in sorted((ROOT / "manifests/components").iterdir())]
    (folder / "kustomization.yaml").write_text(yaml.safe_dump({"components": parts}))
    kubectl = StateFolder.from_env().bin / "kubectl"
    text = subprocess.run([kubectl, "kustomize", folder], capture_output=True, text=True, check=True)
    return by_name(list(yaml.safe_load_all(text.stdout)))


SWITCHES = {
    "PrometheusRule": "monitoring.alerts=true",
    "PodMonitor": "monitoring.podMonitors=true",
    "ConfigMap": "monitoring.dashboards.create=true",
}


def test_its_rules_monitors_and_dashboards_are_those_of_the_components(
    template: Callable[..., list[Manifest]], components: dict[str, Manifest]
) -> None:
    chart = by_name([without_helms_words(each) for each in template(*SWITCHES.values()) if each["kind"] in SWITCHES])
    assert {each["kind"] for each in chart.values()} == set(SWITCHES)
    assert chart == components


@pytest.mark.parametrize("kind", SWITCHES)
def test_each_of_them_has_its_own_switch(template: Callable[..., list[Manifest]], kind: str) -> None:
    assert {each["kind"] for each in template(SWITCHES[kind])} & set(SWITCHES) == {kind}


def test_a_prometheus_and_a_grafana_that_select_by_label_find_them(template: Callable[..., list[Manifest]]) -> None:
    labels = ("monitoring.labels.release=stack", "monitoring.dashboards.labels.team=serving")
    found = by_name(template(*SWITCHES.values(), *labels, "monitoring.dashboards.annotations.grafana_folder=Sunfleet"))
    for name in ("PrometheusRule/sunfleet", "PodMonitor/sunfleet", "PodMonitor/sunfleet-engines"):
        theirs = found[name]["metadata"]["labels"]
        assert (theirs["release"], theirs["app.kubernetes.io/part-of"]) == ("stack", "sunfleet")
    boards = found["ConfigMap/sunfleet-dashboards"]["metadata"]
    assert boards["labels"].items() >= {"grafana_dashboard": "1", "team": "serving"}.items()
    assert boards["annotations"] == {"grafana_folder": "Sunfleet"}


def test_alerts_link_the_runbook_where_its_address_is_known(template: Callable[..., list[Manifest]]) -> None:
    def pages(*values: str) -> set[tuple[str, str]]:
        (rule,) = [one for one in template("monitoring.alerts=true", *values) if one["kind"] == "PrometheusRule"]
        alerts = [one for group in rule["spec"]["groups"] for one in group["rules"] if "alert" in one]
        return {
            (name, text.removesuffix(f"#{alert['alert'].lower()}"))
            for alert in alerts
            for name, text in alert["annotations"].items()
            if name.startswith("runbook")
        }

    assert pages() == {("runbook", "docs/runbook.md")}
    assert pages("monitoring.runbookUrl=https://git.example/r.md") == {("runbook_url", "https://git.example/r.md")}


def test_peers_of_every_form_are_taken_as_they_are(template: Callable[..., list[Manifest]]) -> None:
    made = template(
        "router.allowFrom[0].ipBlock.cidr=10.0.0.0/8", "router.allowFrom[0].ipBlock.except={10.1.0.0/16}",
        "router.allowFrom[1].podSelector.matchLabels.app=chat",
        "router.allowFrom[1].namespaceSelector.matchExpressions[0].key=team",
        "router.allowFrom[1].namespaceSelector.matchExpressions[0].operator=Exists",
    )  # fmt: skip
    policies = by_name([one for one in made if one["kind"] == "NetworkPolicy"])
    assert policies["NetworkPolicy/sunfleet-router"]["spec"]["ingress"][0]["from"] == [
        {"ipBlock": {"cidr": "10.0.0.0/8", "except": ["10.1.0.0/16"]}},
        {"podSelector": {"matchLabels": {"app": "chat"}},
         "namespaceSelector": {"matchExpressions": [{"key": "team", "operator": "Exists"}]}},
    ]  # fmt: skip


def test_engines_are_scraped_in_the_namespaces_that_are_served_and_the_rest_where_it_is_installed(
    template: Callable[..., list[Manifest]],
) -> None:
    made = template("monitoring.podMonitors=true", "namespaces={team-a,team-b}", namespace="fleet")
    found = by_name([each for each in made if each["kind"] == "PodMonitor"])
    assert found["PodMonitor/sunfleet-engines"]["spec"]["namespaceSelector"] == {"matchNames": ["team-a", "team-b"]}
    assert "namespaceSelector" not in found["PodMonitor/sunfleet"]["spec"]
    assert {each["metadata"]["namespace"] for each in found.values()} == {"fleet"}


def test_it_passes_helms_own_checks(helm: Helm) -> None:
    assert "0 chart(s) failed" in helm("lint", "--strict", str(CHART))


def images(manifests: list[Manifest]) -> set[str]:
    """All images that an installation pulls."""
    deployments = [each["spec"]["template"]["spec"] for each in manifests if each["kind"] == "Deployment"]
    containers = [container for pod in deployments for container in pod["containers"]]
    told = [each["value"] for each in containers[0].get("env", []) + containers[1].get("env", []) if "value" in each]
    return {container["image"] for container in containers} | {value for value in told if "/" in value}


def test_one_prefix_moves_every_image(template: Callable[..., list[Manifest]]) -> None:
    assert images(template("images.prefix=registry.example/team/", "images.tag=1.2.3")) == {
        f"registry.example/team/{name}:1.2.3" for name in ("operator", "router", "worker", "weights", "tuner")
    }


def test_the_documented_list_of_images_to_mirror_is_complete(helm: Helm) -> None:
    command = next(
        line
        for line in (ROOT / "docs/install.md").read_text().splitlines()
        if line.startswith("helm template sunfleet")
    )
    program, _, rest = command.partition("|")
    rendered = helm(*program.split()[1:3], str(CHART), *program.split()[4:])
    done = subprocess.run(["bash", "-c", rest], input=rendered, capture_output=True, text=True, check=True)
    names = ("operator", "router", "tuner", "weights", "worker")
    assert done.stdout.split() == [f"sunfleet/{name}:0.1.0" for name in names]


def test_a_digest_wins_over_a_tag(template: Callable[..., list[Manifest]]) -> None:
    digest = "sha256:" + "0" * 64
    assert f"sunfleet/router@{digest}" in images(template("images.tag=1.2.3", f"images.router.digest={digest}"))


def test_a_list_of_namespaces_leaves_no_rights_elsewhere(template: Callable[..., list[Manifest]]) -> None:
    objects = template("namespaces={team-a,team-b}")
    assert not [each for each in objects if each["kind"] == "ClusterRoleBinding"]
    bound = {
        (each["metadata"]["namespace"], each["roleRef"]["name"])
        for each in objects
        if each["kind"] == "RoleBinding" and each["roleRef"]["kind"] == "ClusterRole"
    }
    assert bound == {(f"team-{team}", f"sunfleet-{who}") for team in "ab" for who in ("operator", "router")}
    told = [
        env["value"]
        for each in objects
        if each["kind"] == "Deployment"
        for env in each["spec"]["template"]["spec"]["containers"][0]["env"]
        if env["name"].endswith("_NAMESPACES")
    ]
    assert told == ["team-a,team-b"] * 2


def test_a_longer_drain_lengthens_the_pods_grace_period(template: Callable[..., list[Manifest]]) -> None:
    router = by_name(template("router.drainSeconds=3600"))["Deployment/sunfleet-router"]["spec"]["template"]["spec"]
    assert router["terminationGracePeriodSeconds"] == 3620
    assert {"name": "SUNFLEET_ROUTER_DRAIN_TIMEOUT", "value": "3600"} in router["containers"][0]["env"]


def test_without_keys_the_router_is_told_so_and_may_read_no_secret(template: Callable[..., list[Manifest]]) -> None:
    chart = by_name(template("router.authentication=disabled"))
    (container,) = chart["Deployment/sunfleet-router"]["spec"]["template"]["spec"]["containers"]
    assert container["env"] == [{"name": "SUNFLEET_ROUTER_AUTHENTICATION", "value": "disabled"}]
    assert "secrets" not in str(chart["ClusterRole/sunfleet-router"])
    assert "secrets" not in str(chart["Role/sunfleet-router-keys"])


@pytest.mark.parametrize(
    ("mistake", "named"),
    [
        ("router.replica=3", "replica"),
        ("router.replicas=-1", "/router/replicas"),
        ("router.logLevel=LOUD", "/router/logLevel"),
        ("router.authentication=none", "/router/authentication"),
        ("images.router.digest=abc", "/images/router/digest"),
        ("namespaces={Team_A}", "/namespaces/0"),
        ("router.service.type=Internal", "/router/service/type"),
        ("monitoring.podMonitors=yes", "/monitoring/podMonitors"),
        ("monitoring.dashboards.label.a=b", "label"),
        # The API server drops a field that it does not know: of these, what is left would let everybody in.
        ("monitoring.from[0].namespaceSelector.matchLabel.a=b", "/monitoring/from/0/namespaceSelector"),
        ("router.allowFrom[0].podSelectr.matchLabels.a=b", "/router/allowFrom/0"),
        ("router.allowFrom[0].namespaceSelector.matchExpressions[0].key=a", "/router/allowFrom/0/namespaceSelector"),
        ("router.allowFrom[0].ipBlock.cidr=10.0.0.0/8,router.allowFrom[0].podSelector.matchLabels.a=b",
         "/router/allowFrom/0"),
        ("operator.tolerations[0].operater=Exists", "/operator/tolerations/0"),
        ("router.affinity.podAfinity.a=b", "/router/affinity"),
        ("monitoring.runbookUrl=docs/runbook.md", "/monitoring/runbookUrl"),
    ],
)  # fmt: skip
def test_a_mistake_in_the_values_is_refused_by_name(
    template: Callable[..., list[Manifest]], mistake: str, named: str
) -> None:
    with pytest.raises(HelmError, match=re.escape(named)):
        template(mistake)


@pytest.fixture(scope="module")
def plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningControlPlane]:
    """A control plane of its own: the chart brings CRDs and ClusterRoles."""
    with control_plane(tmp_path_factory.mktemp("chart")) as running:
        Kubectl(str(running.kubectl), running.kubeconfig)("create", "namespace", NAMESPACE)
        yield running


def test_monitors_without_their_kind_are_refused_before_anything_is_made(
    helm: Helm, plane: RunningControlPlane
) -> None:
    where = ("--namespace", NAMESPACE, "--kubeconfig", str(plane.kubeconfig))
    with pytest.raises(HelmError, match='no matches for kind "PodMonitor"'):
        helm("install", "sunfleet", str(CHART), "--set", "monitoring.podMonitors=true,crds.install=false", *where)
    kubectl = Kubectl(str(plane.kubectl), plane.kubeconfig)
    assert not kubectl.items("deployments,clusterroles,services", "-A", "--selector=app.kubernetes.io/part-of=sunfleet")
    helm("uninstall", "sunfleet", "--ignore-not-found", *where)  # the name of a failed release is taken


def test_it_is_installed_changed_and_taken_away(helm: Helm, plane: RunningControlPlane) -> None:
    """The CRDs stay, and with them what people asked for; a second installation takes them over."""
    kubectl = Kubectl(str(plane.kubectl), plane.kubeconfig)
    where = ("--namespace", NAMESPACE, "--kubeconfig", str(plane.kubeconfig))

    def replicas() -> int:
        path = "--output=jsonpath={.spec.replicas}"
        return int(kubectl("get", "deployment/sunfleet-router", f"--namespace={NAMESPACE}", path))

    helm("install", "sunfleet", str(CHART), *where)
    assert replicas() == 2
    helm("upgrade", "sunfleet", str(CHART), "--set", "router.replicas=5", *where)
    assert replicas() == 5
    helm("uninstall", "sunfleet", *where)
    assert not kubectl.items("deployments,clusterroles,services", "-A", "--selector=app.kubernetes.io/part-of=sunfleet")
    crds = [each["metadata"]["name"] for each in kubectl.items("customresourcedefinitions")]
    assert crds == sorted(model.KIND.crd_name for model in KINDS.values())
    helm("install", "sunfleet", str(CHART), *where)
    assert replicas() == 2
