"""What routers and the operator say of a task's routes."""

from __future__ import annotations

import pytest

from sunfleet_api.routes import Routes, Taken, digest

ONE = Taken("1a2b3c4d", 95, "team/base", "salt-1")
TWO = Taken("5e6f7a8b", 5, "team/base-w4", "salt-2", "team-maths-5e6f7a8b")


def test_the_order_of_routes_does_not_count() -> None:
    assert digest([ONE, TWO]) == digest([TWO, ONE])


@pytest.mark.parametrize("number", range(len(Taken._fields)), ids=Taken._fields)
def test_every_field_of_a_route_counts(number: int) -> None:
    values = list(TWO)
    values[number] = 6 if Taken._fields[number] == "weight" else "another"
    other = Taken._make(values)
    assert digest([ONE, other]) != digest([ONE, TWO])


def test_no_routes_are_told_like_a_task_that_nobody_knows() -> None:
    assert digest([]) == Routes().tasks.get("acme/maths", "")


def test_a_router_serves_the_namespaces_that_it_names_or_all() -> None:
    assert Routes().serves("team")
    assert Routes(namespaces=("team",)).serves("team")
    assert not Routes(namespaces=("team",)).serves("other")
