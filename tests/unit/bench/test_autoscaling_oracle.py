"""What a policy is compared with: the cheapest oracle that attains as much, and no other."""

from __future__ import annotations

from autoscaling.oracle import BINS, HEADROOMS, Point, cheapest, oracles
from sunfleet_cli.sim.policies import Oracle

POINTS = [Point(11.0, 0.90), Point(12.5, 0.96), Point(12.0, 0.95), Point(14.0, 0.99)]


def test_the_cheapest_that_attains_at_least_as_much_is_the_yardstick() -> None:
    assert cheapest(POINTS, 0.94) == Point(12.0, 0.95)
    assert cheapest(POINTS, 0.95) == Point(12.0, 0.95)
    assert cheapest(POINTS, 0.951) == Point(12.5, 0.96)
    assert cheapest(POINTS, 0.995) is None


def test_there_is_an_oracle_for_each_share_of_use_and_length_of_stretch() -> None:
    made = [make([]) for make in oracles()]
    assert len(made) == len(BINS) * len(HEADROOMS)
    assert all(isinstance(one, Oracle) for one in made)
