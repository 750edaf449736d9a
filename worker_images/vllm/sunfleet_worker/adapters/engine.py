"""Loading and dropping in the engine, through its own registry of adapters: its routes for that stay closed."""

from __future__ import annotations

from pathlib import Path

from vllm.engine.protocol import EngineClient
from vllm.entrypoints.openai.models.serving import OpenAIServingModels
from vllm.entrypoints.serve.engine.protocol import ErrorResponse
from vllm.entrypoints.serve.lora.protocol import LoadLoRAAdapterRequest

from sunfleet_worker.adapters.keeper import LoadError


class EngineAdapters:
    """:class:`sunfleet_worker.adapters.keeper.Engine` of a running engine."""

    def __init__(self, models: OpenAIServingModels, engine: EngineClient) -> None:
        self._models, self._engine = models, engine

    async def load(self, name: str, path: Path) -> None:
        """Into the engine's memory; its name can be asked for afterwards."""
        if name in self._models.lora_requests:
            return
        answer = await self._models.load_lora_adapter(LoadLoRAAdapterRequest(lora_name=name, lora_path=str(path)))
        if isinstance(answer, ErrorResponse):
            raise LoadError(answer.error.message)

    async def drop(self, name: str) -> None:
        """Out of memory, then out of the registry, whose entry a second try needs; fine when it is not there."""
        known = self._models.lora_requests.get(name)
        if known is not None:
            await self._engine.remove_lora(known.lora_int_id)
            self._models.lora_requests.pop(name, None)
