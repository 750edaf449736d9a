"""The demo's fleet of real engines, started when it is not there, and the table of what was compared."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from sunfleet_cluster.state import StateFolder
from support.judge import Judge
from support.kubectl import Kubectl
from support.running import RunningFleet, running_fleet

_JUDGE = pytest.StashKey[Judge]()


def pytest_configure(config: pytest.Config) -> None:
    config.stash[_JUDGE] = Judge()


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """Print the table, and keep it beside the times of the suites."""
    table = config.stash[_JUDGE].table
    if table.rows:
        terminalreporter.section("exactness")
        terminalreporter.write_line(table.text())
        table.write(StateFolder.from_env().root / "times" / "exactness.json")


@pytest.fixture(scope="session")
def judge(pytestconfig: pytest.Config) -> Judge:
    return pytestconfig.stash[_JUDGE]


@pytest.fixture(scope="session")
def fleet(kubectl: Kubectl) -> Iterator[RunningFleet]:
    with running_fleet(kubectl) as running:
        yield running
