"""How often an engine steps that has nothing to compute and only holds KV.

A prefill pod whose prompts wait to be read, and a decode pod into which a hung prefill pod is still writing, step on:
that is how they notice the end. The engine then steps about 500 times a second, which takes more than one core of a CPU
from whoever works. So the longer nothing else happens, the longer it waits, up to a hundredth of a second. Hand-overs
are read sooner than the wait begins to grow, so it costs an ordinary request nothing.
"""

from __future__ import annotations

from typing import Final

# Steps without a wait of ours: some 50 ms.
_FREE_STEPS: Final = 25
_GROWTH_SECONDS: Final = 0.0005
_LONGEST_SECONDS: Final = 0.01


def wait_before_step(idle_steps: int) -> float:
    """Seconds to wait when this is the ``idle_steps``-th step in a row with nothing to compute."""
    return min(max(0, idle_steps - _FREE_STEPS) * _GROWTH_SECONDS, _LONGEST_SECONDS)
