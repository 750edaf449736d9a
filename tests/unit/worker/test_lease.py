"""How long KV is kept and how long reading it may take."""

from __future__ import annotations

import pytest

from sunfleet_worker.lease import DEADLINE_SECONDS, LEASE_SECONDS, MARGIN_SECONDS, read_in_time


def test_a_hand_over_that_comes_at_once_is_given_up_before_its_lease_can_end() -> None:
    assert 0 < DEADLINE_SECONDS < LEASE_SECONDS - MARGIN_SECONDS


@pytest.mark.parametrize(
    ("now", "offset", "in_time"),
    [
        (0.0, 0.0, True),
        (100.0 - MARGIN_SECONDS, 0.0, True),
        (100.1 - MARGIN_SECONDS, 0.0, False),
        (5000.0, -4950.0, True),  # the prefill pod's clock says 50
        (10.0, 90.0, False),  # it says 100
    ],
)
def test_kv_is_in_time_by_the_prefill_pods_clock(now: float, offset: float, in_time: bool) -> None:
    assert read_in_time(now, offset, lease_end=100.0) is in_time
