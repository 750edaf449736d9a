"""What the autoscaling suites share: a real Prometheus, an operator that asks it, and one fleet under a GPU budget."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from sunfleet_cluster.images.records import recorded
from sunfleet_cluster.state import StateFolder
from support import scaled
from support.fakes import ApiProxy, create_namespace, secret
from support.kubectl import Kubectl
from support.podlog import PodLog, watched
from support.prometheus import Prometheus, asking_operator, running_prometheus
from support.records import Records
from support.scaled import ScaledFleet
from support.served import router_address

TIMEOUT_SECONDS = 300
_RECORDS = pytest.StashKey[Records]()


def pytest_configure(config: pytest.Config) -> None:
    config.stash[_RECORDS] = Records()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Give these tests their own timeout; one on a test itself wins."""
    for item in items:
        if item.path.is_relative_to(Path(__file__).parent):
            item.add_marker(pytest.mark.timeout(TIMEOUT_SECONDS))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """Print what was measured, and keep it beside the times of the suites."""
    records = config.stash[_RECORDS]
    if records.values:
        terminalreporter.section("autoscaling")
        terminalreporter.write_line(records.text())
        records.write(StateFolder.from_env().root / "times" / "autoscaling.json")


@pytest.fixture(scope="session")
def record(pytestconfig: pytest.Config) -> Callable[[str, float], None]:
    """Keeps a figure under a name that says what it is and its unit."""
    return pytestconfig.stash[_RECORDS].add


@pytest.fixture(scope="session")
def prometheus(kubectl: Kubectl, proxy: ApiProxy, fake_image: str) -> Iterator[Prometheus]:
    """Scrapes the cluster while the operator decides from it."""
    image = recorded(StateFolder.from_env(), "prometheus")
    with (
        running_prometheus(kubectl, image, fake_image, proxy.url) as found,
        asking_operator(kubectl, found.url),
    ):
        yield found


@pytest.fixture(scope="session")
def router_url(kubectl: Kubectl) -> Iterator[str]:
    with router_address(kubectl) as url:
        yield url


@pytest.fixture(scope="session")
def namespace(kubectl: Kubectl, hub_namespace: str, prometheus: Prometheus) -> Iterator[str]:
    """The fleet's, with a Secret that opens the hub."""
    del prometheus  # is there before anything scales
    name = create_namespace(kubectl, "scale")
    kubectl.apply([secret("hub", hub_namespace)], name)
    yield name
    kubectl.run("delete", "namespace", name, "--wait=false", "--ignore-not-found")


@pytest.fixture(scope="session")
def pods(namespace: str, proxy: ApiProxy) -> Iterator[PodLog]:
    """Every state of the fleet's pods, from the first one on."""
    with watched(proxy.url, namespace) as log:
        yield log


@pytest.fixture(scope="session")
def fleet(kubectl: Kubectl, namespace: str, pods: PodLog, proxy: ApiProxy, fake_image: str) -> ScaledFleet:
    """Every object with one pod that serves; one for all modules."""
    del pods  # watches from the beginning
    made = ScaledFleet(kubectl, namespace, scaled.decoder(fake_image), scaled.models(namespace), proxy)
    kubectl.apply(made.manifests, namespace)
    made.wait_ready()
    return made
