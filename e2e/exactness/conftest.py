"""The demo's fleet of real engines; started when it is not there."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from support.kubectl import Kubectl
from support.running import RunningFleet, running_fleet


@pytest.fixture(scope="session")
def fleet(kubectl: Kubectl) -> Iterator[RunningFleet]:
    with running_fleet(kubectl) as running:
        yield running
