"""The connection to the API server dies without a word, or is away for longer than the Lease lasts."""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest
import yaml

from sunfleet_apitest.client import Api
from sunfleet_operator.main import EXIT_LEASE_LOST
from sunfleet_optest.link import Link
from sunfleet_optest.live import Fleet, Process
from sunfleet_optest.objects import decoder, model

from .conftest import LEASE_SECONDS, make_process, wait_leading

pytestmark = pytest.mark.timeout(300)
DECODER, TASK = ("SharedDecoder", "base"), ("SunModel", "maths")
CODE, LATE, SHORT_LIVED = ("SunModel", "code"), ("SunModel", "late"), ("SunModel", "gone")
OUTAGE_SECONDS = 120.0


@pytest.fixture(scope="module")
def link(identity: Path) -> Iterator[Link]:
    (cluster,) = yaml.safe_load(identity.read_text())["clusters"]
    with Link(urlsplit(cluster["cluster"]["server"]).port or 443) as made:
        yield made


@pytest.fixture
def behind(link: Link, identity: Path, operator: Process) -> Iterator[Process]:
    """An operator that reaches the API server through the link, instead of the one that all tests share."""
    config = yaml.safe_load(identity.read_text())
    config["clusters"][0]["cluster"]["server"] = f"https://127.0.0.1:{link.port}"
    path = identity.parent / "link.kubeconfig"
    path.write_text(json.dumps(config))
    assert operator.stop() == 0
    made = make_process(identity, "behind")
    made.env = {
        **made.env,
        "KUBECONFIG": str(path),
        "SUNFLEET_OPERATOR_WATCH_SILENCE_SECONDS": "3",
        "SUNFLEET_OPERATOR_REQUEST_TIMEOUT_SECONDS": "5",
    }
    made.start()
    wait_leading(made)
    yield made
    link.mend()
    if made.child is not None and made.child.poll() is None:
        made.stop()
    operator.start()
    wait_leading(operator)


@pytest.fixture
def fleet(behind: Process, api: Api, namespace: str) -> Iterator[Fleet]:
    made = Fleet(api, namespace)
    yield made
    made.clear()


def test_connections_that_fall_silent_lose_neither_the_lease_nor_an_event(
    fleet: Fleet, behind: Process, link: Link
) -> None:
    fleet.apply(decoder())
    fleet.until_ready(DECODER)
    link.silence()
    fleet.apply(model())
    fleet.until_ready(DECODER, TASK)
    assert behind.child is not None
    assert behind.child.poll() is None


def test_an_api_server_that_is_away_ends_the_process_and_a_new_one_goes_on(
    fleet: Fleet, behind: Process, link: Link
) -> None:
    fleet.apply(decoder())
    fleet.until_ready(DECODER)
    link.sever()
    fleet.apply(model())
    assert behind.child is not None
    assert behind.child.wait(3 * LEASE_SECONDS) == EXIT_LEASE_LOST
    behind.start()  # as kubelet does
    fleet.until(lambda: behind.healthy() is not None, "the new process answers")
    figures = behind.healthy() or {}
    assert (figures["ok"], figures["leading"]) == (True, False)  # to start it again would help nobody
    link.mend()
    wait_leading(behind)
    fleet.until_ready(DECODER, TASK)


@pytest.mark.long
def test_after_two_minutes_without_the_api_server_everything_is_as_it_should_be(
    fleet: Fleet, behind: Process, link: Link
) -> None:
    """The process is started again whenever it ends, as kubelet does it; users go on changing objects meanwhile."""
    fleet.apply(decoder())
    for task in ("maths", "code", "gone"):
        fleet.apply(model(task))
    fleet.until_ready(DECODER, TASK, CODE, SHORT_LIVED)
    untouched = _deployments(fleet, "base", "code")
    link.sever()
    fleet.apply(model(uri="pvc://models/adapters/maths2"))
    fleet.apply(model("late"))
    fleet.delete(*SHORT_LIVED)
    ends = 0
    for code in _ends(behind, OUTAGE_SECONDS):
        assert code == EXIT_LEASE_LOST
        behind.start()
        ends += 1
    assert ends
    link.mend()
    wait_leading(behind)
    fleet.until_ready(DECODER, TASK, CODE, LATE)
    fleet.until(lambda: len(fleet.deployments("maths")) == 1, "the old revision is gone")
    assert _deployments(fleet, "base", "code") == untouched


def _deployments(fleet: Fleet, *owners: str) -> dict[str, tuple[str, int]]:
    """UID and generation of the Deployments of these objects."""
    found = {name: live for owner in owners for name, live in fleet.deployments(owner).items()}
    return {name: (live["metadata"]["uid"], live["metadata"]["generation"]) for name, live in found.items()}


def _ends(process: Process, seconds: float) -> Iterator[int]:
    """Exit code of each end of the process within that time."""
    deadline = time.monotonic() + seconds
    while (left := deadline - time.monotonic()) > 0:
        assert process.child is not None
        try:
            yield process.child.wait(left)
        except subprocess.TimeoutExpired:
            return
