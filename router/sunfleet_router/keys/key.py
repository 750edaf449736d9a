"""An API key as the router knows it: whose it is and what it may do, never the key itself. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Final

from sunfleet_router.errors import InvalidRequestError
from sunfleet_router.fleet.snapshot import Rate

_ANY_RATE: Final = Rate()
_ALL: Final = "*"


@dataclass(frozen=True, slots=True)
class Key:
    """``tasks`` are names or patterns such as ``acme/*``; limits are those of all routers together."""

    name: str  # in metrics and logs
    tasks: tuple[str, ...]
    max_in_flight: int | None = None
    rate: Rate = _ANY_RATE
    priority: int = 0  # the most urgent that it may ask for: the lower, the sooner

    def allows(self, task: str) -> bool:
        return task in self.tasks or _ALL in self.tasks or any(fnmatchcase(task, pattern) for pattern in self.tasks)

    def check_priority(self, wanted: int) -> None:
        """Anyone may stand back; raises :class:`InvalidRequestError` for one that pushes ahead without leave."""
        if wanted < self.priority:
            raise InvalidRequestError(
                f"'priority' must be at least {self.priority} with this API key: a lower number is served sooner.",
                param="priority", code="priority_not_allowed",
            )  # fmt: skip


# Whoever comes where keys are not asked for.
ANYONE: Final = Key("", (_ALL,))
