"""Two processes: one works, the other one waits and takes over."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from sunfleet_apitest.client import Api
from sunfleet_optest.live import Fleet, Process
from sunfleet_optest.objects import decoder

from .conftest import LEASE_SECONDS, make_process, wait_leading

pytestmark = pytest.mark.timeout(300)


def test_the_standby_is_healthy_waits_and_takes_over_from_a_killed_leader(
    operator: Process, identity: Path, api: Api, namespace: str
) -> None:
    second = make_process(identity, "second")
    second.start()
    try:
        deadline = time.monotonic() + 60
        while second.healthy() is None and time.monotonic() < deadline:
            time.sleep(0.1)
        assert (second.healthy() or {})["ok"] is True
        time.sleep(LEASE_SECONDS + 1)  # longer than the Lease: a leader that renews keeps it
        assert (second.healthy() or {})["leading"] is False
        operator.kill()
        wait_leading(second)
        fleet = Fleet(api, namespace)
        fleet.apply(decoder())
        fleet.until_ready(("SharedDecoder", "base"))
    finally:
        second.stop()
        operator.start()
        wait_leading(operator)
