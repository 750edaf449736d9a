"""The installed operator with rights in one namespace alone: RoleBindings do, and it says what lies beyond them."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from support import fakes
from support.fakes import condition
from support.fleet import ROUTER_NAMESPACE
from support.fleets import Fleet
from support.kubectl import Json, Kubectl
from support.operator_settings import operator_as, operator_with

pytestmark = [pytest.mark.long, pytest.mark.timeout(400)]
ACCOUNT = "sunfleet-operator-of-one"
_RBAC = "rbac.authorization.k8s.io"


def _binding(kind: str, role: str) -> Json:
    return {
        "apiVersion": f"{_RBAC}/v1", "kind": "RoleBinding", "metadata": {"name": ACCOUNT},
        "roleRef": {"apiGroup": _RBAC, "kind": kind, "name": role},
        "subjects": [{"kind": "ServiceAccount", "name": ACCOUNT, "namespace": ROUTER_NAMESPACE}],
    }  # fmt: skip


@pytest.fixture(scope="module")
def fleet(make_fleet: Callable[[str], Fleet], kubectl: Kubectl) -> Iterator[Fleet]:
    """Nothing applied yet; the operator runs as an account that may do its work in this fleet's namespace only."""
    made = make_fleet("of-one")
    account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": ACCOUNT}}
    kubectl.apply([account, _binding("Role", "sunfleet-operator-leader")], ROUTER_NAMESPACE)
    kubectl.apply([_binding("ClusterRole", "sunfleet-operator")], made.namespace)
    try:
        with (
            operator_with(kubectl, {"SUNFLEET_OPERATOR_NAMESPACES": made.namespace}),
            operator_as(kubectl, ACCOUNT),
        ):
            yield made
            for kind in ("sunmodels", "shareddecoders"):  # a namespace that goes later takes them without a finalizer
                kubectl.delete(kind, "--all", "--namespace", made.namespace)
    finally:
        kubectl.delete(f"rolebinding/{ACCOUNT}", f"serviceaccount/{ACCOUNT}", "--namespace", ROUTER_NAMESPACE)


@pytest.fixture(scope="module")
def beyond(fleet: Fleet, make_fleet: Callable[[str], Fleet], kubectl: Kubectl) -> Fleet:  # noqa: ARG001 - its operator
    """A fleet in a namespace that this operator does not serve."""
    made = make_fleet("beyond")
    kubectl.apply(made.manifests, made.namespace)
    return made


def test_its_own_namespace_is_served(fleet: Fleet, kubectl: Kubectl) -> None:
    kubectl.apply(fleet.manifests, fleet.namespace)
    fleet.wait_ready()
    assert condition(fleet.get("sunmodel", "maths"), "RouterSynced")["status"] == "True"
    fakes.patch(kubectl, fleet.namespace, "sunmodel/maths", {"replicas": 2})
    fleet.wait_for("has two pods", "sunmodel", "maths", lambda live: live["status"].get("readyReplicas") == 2, 90)


def test_a_reference_beyond_it_is_said(fleet: Fleet, beyond: Fleet, kubectl: Kubectl) -> None:
    abroad = fakes.sun_model("abroad", "hf://acme/maths", model_name=f"{fleet.namespace}/abroad")
    abroad["spec"]["decoderRef"] = {"name": "base", "namespace": beyond.namespace}
    kubectl.apply([abroad], fleet.namespace)
    seen = fleet.wait_for(
        "says so", "sunmodel", "abroad", lambda live: condition(live, "ResolvedRefs").get("status") == "False"
    )
    assert "SUNFLEET_OPERATOR_NAMESPACES" in condition(seen, "ResolvedRefs")["message"]


def test_other_namespaces_are_left_alone_and_nothing_forbidden_is_asked(beyond: Fleet, kubectl: Kubectl) -> None:
    assert "status" not in beyond.get("shareddecoder", "base")
    assert not kubectl.items("deployments,jobs", "--namespace", beyond.namespace)
    mine = ("--namespace", ROUTER_NAMESPACE, "--selector", "app.kubernetes.io/name=sunfleet-operator")
    log = kubectl.run("logs", *mine, "--tail=-1")
    assert "SunModel" in log
    assert "forbidden" not in log
