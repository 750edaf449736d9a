"""RouterSynced on the real cluster: the operator hears the installed routers through the policies that hold there."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from support import fakes
from support.fakes import condition, is_ready
from support.fleet import ROUTER_NAMESPACE
from support.fleets import Fleet
from support.kubectl import Kubectl

pytestmark = [pytest.mark.long, pytest.mark.timeout(400)]
_ROUTER = ("deployment/sunfleet-router", "--namespace", ROUTER_NAMESPACE)


@pytest.fixture(scope="module")
def fleet(make_fleet: Callable[[str], Fleet], kubectl: Kubectl) -> Fleet:
    made = make_fleet("synced")
    kubectl.apply(made.manifests, made.namespace)
    made.wait_ready()
    return made


@pytest.fixture
def without_routers(kubectl: Kubectl) -> Iterator[Callable[[], None]]:
    """The routers are gone; calling it brings them back."""
    replicas = kubectl.get(*_ROUTER)["spec"]["replicas"]

    def back() -> None:
        kubectl.run("scale", *_ROUTER, f"--replicas={replicas}")
        kubectl.run("rollout", "status", *_ROUTER, "--timeout=120s", timeout=130)

    kubectl.run("scale", *_ROUTER, "--replicas=0")
    try:
        yield back
    finally:
        back()


def test_what_is_ready_is_what_the_routers_act_on(fleet: Fleet) -> None:
    for kind, name in (("shareddecoder", "base"), ("sunmodel", "maths"), ("sunmodel", "code")):
        assert condition(fleet.get(kind, name), "RouterSynced")["reason"] == "RoutesTaken"


def test_new_traffic_is_taken_over_without_a_transition(fleet: Fleet) -> None:
    before = condition(fleet.get("sunmodel", "maths"), "RouterSynced")
    revision = fleet.get("sunmodel", "maths")["status"]["currentRevision"]
    prefill = {"weights": {"uri": "hf://acme/maths@v2", "credentialsSecretRef": {"name": "hub"}}}
    fakes.patch(fleet.kubectl, fleet.namespace, "sunmodel/maths", {"prefill": prefill})
    seen = fleet.wait_for(
        "another revision serves", "sunmodel", "maths",
        lambda live: is_ready(live) and live["status"]["currentRevision"] != revision, 120,
    )  # fmt: skip
    after = condition(seen, "RouterSynced")
    assert (after["status"], after["lastTransitionTime"]) == ("True", before["lastTransitionTime"])


def test_a_fleet_without_routers_says_so_and_recovers(fleet: Fleet, without_routers: Callable[[], None]) -> None:
    for kind, name in (("sunmodel", "maths"), ("shareddecoder", "base")):
        fleet.wait_for(
            "is not Ready", kind, name, lambda live: condition(live, "Ready").get("reason") == "NoRouter", 120
        )
    without_routers()
    fleet.wait_ready()
    assert condition(fleet.get("sunmodel", "maths"), "RouterSynced")["reason"] == "RoutesTaken"
