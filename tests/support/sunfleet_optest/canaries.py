"""A task with a canary: what is told of it, its shares, time that passes, figures of its requests."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from sunfleet_operator.figures import ByRevision, Figures
from sunfleet_optest.world import World

GOOD = Figures(500, 0, 500, 5000)


def told(world: World) -> dict[str, Any]:
    """``status.canary`` of the task; empty without one."""
    return dict(world.status("SunModel", "maths").get("canary") or {})


def traffic(world: World, name: str = "maths") -> dict[str, int]:
    """Percent of new requests per revision."""
    return {entry["revision"]: entry["weight"] for entry in world.status("SunModel", name)["traffic"]}


def events(world: World) -> list[str]:
    """Reasons of the Events that speak of canaries."""
    return [event["reason"] for event in world.store.all("Event") if event["reason"].startswith("Canary")]


async def later(world: World, seconds: int = 601) -> None:
    """By default longer than a pause of ten minutes."""
    world.now += timedelta(seconds=seconds)
    await world.settle()


async def measured(world: World, new: str, mine: Figures, theirs: Figures = GOOD) -> None:
    """How the requests of the candidate went, and those of the others."""
    world.measured = ByRevision({new: mine, "old": theirs})
    await world.settle()
