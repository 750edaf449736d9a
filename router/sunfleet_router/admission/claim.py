"""A request's wish for decode room. Pure."""

from __future__ import annotations

import math
from dataclasses import dataclass

from sunfleet_router.fleet.snapshot import Task
from sunfleet_router.policies.decode import DecodeFacts


@dataclass(slots=True)  # not frozen, see Ask
class Claim:
    """Wants room on a pod of ``decoder``, until the loop's time ``deadline``.

    ``priority`` as the engine has it: the lower, the sooner. ``resumed``: its client has got a part of the answer.
    """

    task: Task
    decoder: str
    facts: DecodeFacts
    prompt_tokens: int  # part of the facts' tokens; for the queue's metric
    size: int = 0  # bytes of the request that are held while it waits
    priority: int = 0
    deadline: float = math.inf
    resumed: bool = False
