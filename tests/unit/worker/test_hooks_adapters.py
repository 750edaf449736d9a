"""Adapters in the engine's own registry: one whose dropping failed once is dropped by the next try."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from sunfleet_worker.adapters.engine import EngineAdapters


class Memory:
    """What the engine holds; fails once."""

    def __init__(self) -> None:
        self.held, self.fails = {7}, True

    async def remove_lora(self, number: int) -> bool:
        if self.fails:
            self.fails = False
            raise RuntimeError("the engine is busy")
        self.held.discard(number)
        return True


async def test_an_adapter_whose_drop_failed_leaves_the_engine_with_the_next_try() -> None:
    memory: Any = Memory()
    models: Any = SimpleNamespace(lora_requests={"team.maths-1": SimpleNamespace(lora_int_id=7)})
    adapters = EngineAdapters(models, memory)
    with pytest.raises(RuntimeError):
        await adapters.drop("team.maths-1")
    for _ in range(2):
        await adapters.drop("team.maths-1")
        assert (memory.held, models.lora_requests) == (set(), {})
