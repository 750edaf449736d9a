"""SIGKILL of the operator in the middle of its work loses nothing."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

import pytest

from support import fakes
from support.fakes import is_ready, uids
from support.fleets import Fleet
from support.kubectl import Kubectl, KubectlError, wait_until

pytestmark = pytest.mark.timeout(240)
OPERATOR = ("--namespace", "sunfleet-system", "--selector", "app.kubernetes.io/name=sunfleet-operator")


def kill_operator(kubectl: Kubectl) -> None:
    """As when its node loses power: no grace, no goodbye. Its Deployment starts another."""
    kubectl.run("delete", "pods", *OPERATOR, "--grace-period=0", "--force", "--wait=false")


def kill_often(kubectl: Kubectl, holds: Callable[[], bool], *, every: float, times: int) -> None:
    """Kill it ``times`` times, ``every`` so many seconds, unless everything is done before."""
    for _ in range(times):
        if holds():
            return
        time.sleep(every)
        kill_operator(kubectl)


def operator_is_back(kubectl: Kubectl) -> None:
    def ready() -> bool:
        pods = kubectl.items("pods", *OPERATOR)
        return any(
            state["type"] == "Ready" and state["status"] == "True"
            for pod in pods
            for state in pod.get("status", {}).get("conditions", [])
        )

    wait_until("an operator is ready", ready, 60)


@pytest.fixture(scope="module")
def fleet(kubectl: Kubectl, make_fleet: Callable[[str], Fleet]) -> Iterator[Fleet]:
    made = make_fleet("kill")
    yield made
    operator_is_back(kubectl)


def test_killed_while_a_fleet_is_made(kubectl: Kubectl, fleet: Fleet) -> None:
    kubectl.apply(fleet.manifests, fleet.namespace)
    kill_often(kubectl, lambda: False, every=1.5, times=4)
    fleet.wait_ready(120)
    for role, model, count in (("decode", "", 1), ("prefill", "maths", 1), ("prefill", "code", 1)):
        assert len(fleet.pods(role, model)) == count
    jobs = kubectl.items("jobs", "--namespace", fleet.namespace)
    assert not [job["metadata"]["name"] for job in jobs if job.get("status", {}).get("active")]


def test_killed_while_idle_it_touches_nothing_afterwards(kubectl: Kubectl, fleet: Fleet) -> None:
    pods = uids([*fleet.pods("decode"), *fleet.pods("prefill")])
    versions = children(kubectl, fleet.namespace)
    kill_operator(kubectl)
    operator_is_back(kubectl)
    time.sleep(3)
    assert uids([*fleet.pods("decode"), *fleet.pods("prefill")]) == pods
    assert children(kubectl, fleet.namespace) == versions


def test_killed_in_a_rollout_it_ends_with_the_new_revision_alone(kubectl: Kubectl, fleet: Fleet) -> None:
    decode = uids(fleet.pods("decode"))
    old = fleet.get("sunmodel", "maths")["status"]["currentRevision"]
    weights = {"weights": {"uri": "hf://acme/maths@v2", "credentialsSecretRef": {"name": "hub"}}}
    fakes.patch(kubectl, fleet.namespace, "sunmodel/maths", {"prefill": weights})

    def done() -> bool:
        thing = fleet.get("sunmodel", "maths")
        return is_ready(thing) and thing["status"]["currentRevision"] != old

    kill_often(kubectl, done, every=1.0, times=3)
    wait_until("the new revision serves", done, 120)
    wait_until("one prefill pod", lambda: len(fleet.pods("prefill", "maths")) == 1, 60)
    assert uids(fleet.pods("decode")) == decode


def test_killed_while_objects_are_deleted_nothing_is_stuck(kubectl: Kubectl, fleet: Fleet) -> None:
    kubectl.run("delete", "shareddecoder/base", "--namespace", fleet.namespace, "--wait=false")
    kill_operator(kubectl)
    kubectl.run("delete", "sunmodels", "--all", "--namespace", fleet.namespace, "--wait=false")
    kill_operator(kubectl)

    def gone() -> bool:
        try:
            return not kubectl.items("shareddecoders,sunmodels,deployments", "--namespace", fleet.namespace)
        except KubectlError:
            return False

    wait_until("everything is gone", gone, 90)


def children(kubectl: Kubectl, namespace: str) -> dict[str, str]:
    """Kind and name of each child -> its generation and UID."""
    kinds = "deployments,services,poddisruptionbudgets,networkpolicies,controllerrevisions,jobs"
    return {
        f"{item['kind']}/{item['metadata']['name']}": f"{item['metadata']['uid']} {item['metadata'].get('generation')}"
        for item in kubectl.items(kinds, "--namespace", namespace)
    }
