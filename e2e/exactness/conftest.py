"""The demo's fleet of real engines, started when it is not there, and the table of what was compared."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from sunfleet_cluster.state import StateFolder
from support.engines import tidy_up_on_sigterm
from support.judge import Judge
from support.kubectl import Kubectl
from support.running import RunningFleet, running_fleet

_JUDGE = pytest.StashKey[Judge]()
_SEED_OPTION = "--hypothesis-seed"
TIMEOUT_SECONDS = 900  # the first test of a folder waits for its engines


def pytest_configure(config: pytest.Config) -> None:
    config.stash[_JUDGE] = Judge()
    tidy_up_on_sigterm()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Give these tests their own timeout; one on a test itself wins."""
    for item in items:
        if item.path.is_relative_to(Path(__file__).parent):
            item.add_marker(pytest.mark.timeout(TIMEOUT_SECONDS))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """Print the table, and keep it beside the times of the suites."""
    judge = config.stash[_JUDGE]
    table = judge.table
    if table.rows:
        terminalreporter.section("exactness")
        terminalreporter.write_line(table.text())
        for decoder, far in judge.furthest.items():
            terminalreporter.write_line(
                f"{decoder}: furthest from the reference: {far.gap:.1e} in logits, {far.logprob:.1e} in log-probability"
            )
        table.write(StateFolder.from_env().root / "times" / "exactness.json")


@pytest.fixture(scope="session")
def judge(pytestconfig: pytest.Config) -> Judge:
    return pytestconfig.stash[_JUDGE]


@pytest.fixture(scope="session")
def seed(pytestconfig: pytest.Config) -> int:
    """Of everything random in this run; printed at once, so that whatever ends the run leaves it in the log."""
    given = pytestconfig.getoption(_SEED_OPTION)
    chosen = int(given) if given else random.SystemRandom().randrange(2**32)
    reporter = pytestconfig.pluginmanager.get_plugin("terminalreporter")
    assert reporter is not None
    reporter.write_line(f"\nseed {chosen}: repeat with {_SEED_OPTION}={chosen}")
    return chosen


@pytest.fixture(scope="session")
def fleet(kubectl: Kubectl) -> Iterator[RunningFleet]:
    with running_fleet(kubectl) as running:
        yield running
