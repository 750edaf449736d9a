"""ServingProfiles against a real API server: both namespaces, an edit that is seen before it rolls, the count."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from sunfleet_apitest.client import Api
from sunfleet_apitest.identity import SYSTEM
from sunfleet_optest.live import Fleet
from sunfleet_optest.objects import decoder, model, profile

pytestmark = pytest.mark.timeout(300)
TASK, DECODER = ("SunModel", "maths"), ("SharedDecoder", "base")
REFS = [{"name": "shared"}, {"name": "own"}]


@pytest.fixture
def system(api: Api) -> Iterator[Fleet]:
    """The operator's own namespace."""
    made = Fleet(api, SYSTEM)
    yield made
    made.delete("ServingProfile", "shared")


def node_selector(fleet: Fleet) -> dict[str, Any]:
    (live,) = fleet.deployments("maths").values()
    found: dict[str, Any] = live["spec"]["template"]["spec"].get("nodeSelector", {})
    return found


def test_a_task_of_ten_lines_follows_its_profiles_when_it_wants_to(fleet: Fleet, system: Fleet) -> None:
    system.apply(profile("shared", template={"spec": {"nodeSelector": {"gpu": "h100"}}}))
    fleet.apply(profile("own", traffic={"maxInFlight": 7}))
    fleet.apply(decoder(namespace=fleet.namespace))
    fleet.apply(model(namespace=fleet.namespace, profileRefs=REFS))
    fleet.until_ready(DECODER, TASK)
    assert node_selector(fleet) == {"gpu": "h100"}
    assert fleet.get(*TASK)["status"]["effectiveTraffic"]["maxInFlight"] == 7
    fleet.until(lambda: fleet.get("ServingProfile", "own")["status"].get("attachedObjects") == 1, "it counts its users")
    assert system.get("ServingProfile", "shared")["status"]["attachedObjects"] == 1

    system.patch("ServingProfile", "shared", {"spec": {"template": {"spec": {"nodeSelector": {"gpu": "b200"}}}}})
    fleet.until(lambda: fleet.condition(*TASK, "ProfilesOutdated")[1] == "ProfileChanged", "the edit is said")
    assert node_selector(fleet) == {"gpu": "h100"}

    fleet.patch(*TASK, {"spec": {"rollout": {"profileUpdates": "Automatic"}}})
    fleet.until(lambda: not fleet.condition(*TASK, "ProfilesOutdated")[1], "the edit is taken over")
    fleet.until(lambda: len(fleet.deployments("maths")) == 1, "it rolled")
    assert node_selector(fleet) == {"gpu": "b200"}
