"""The prefill pod that a decode pod plays to itself: it meets it, reads its KV and goes on from it, as from any other.

The KV is zeros, so what comes out is meaningless; that it comes the whole way is what counts. Only where the engine
holds its KV in host memory: between host and GPU memory it has not been tried.
"""

from __future__ import annotations

import importlib
import time
import uuid
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from typing import Any, Final

import msgspec
import numpy as np
from vllm.distributed.kv_transfer.kv_connector.v1.nixl.metadata import NixlAgentMetadata, NixlHandshakePayload

from sunfleet_worker.hooks.nixl_progress import delay_progress_thread
from sunfleet_worker.lease import LEASE_SECONDS
from sunfleet_worker.selfcheck import sidechannel

_BLOCKS: Final = 2
_HOST_MEMORY: Final = "DRAM"


@dataclass(frozen=True)
class Peer:
    """A prefill engine that can be met at ``port`` on loopback."""

    engine_id: str
    port: int
    ranks: int

    def transfer(self, prompt_tokens: int, *, lease_seconds: float = LEASE_SECONDS) -> dict[str, Any]:
        """The ``kv_transfer_params`` of a prefill's answer, for a prompt of at most two blocks."""
        return {
            "remote_block_ids": [list(range(_BLOCKS))],
            "remote_engine_id": self.engine_id,
            "remote_request_id": f"self-check-{uuid.uuid4().hex}",
            "remote_host": "127.0.0.1",
            "remote_port": self.port,
            "remote_num_tokens": prompt_tokens,
            "remote_blocks_expiry_time": time.perf_counter() + lease_seconds,
            "tp_size": self.ranks,
        }


def can_play(payloads: Sequence[NixlHandshakePayload], buffer_device: str) -> bool:
    """Whether KV of this engine can be played from host memory: one group of plain attention blocks, held there too."""
    layouts = [sidechannel.metadata_of(payload) for payload in payloads]
    return buffer_device == "cpu" and all(
        not any(layout.ssm_sizes) and not any(layout.region_group_ids or ()) for layout in layouts
    )


@asynccontextmanager
async def playing(
    payloads: Sequence[NixlHandshakePayload], buffer_device: str
) -> AsyncIterator[tuple[Peer | None, Peer]]:
    """A twin, an engine like ours with two blocks of KV (``None`` where it cannot be played), and a stranger: the same
    but for its handshake, which says that its version, model or type of KV is another.
    """
    memory = None
    if can_play(payloads, buffer_device):
        memory = _Memory([sidechannel.metadata_of(payload) for payload in payloads])
    try:
        async with _met(payloads, memory, compatibility_hash="another engine's") as stranger:
            if memory is None:
                yield None, stranger
                return
            async with _met(payloads, memory) as twin:
                yield twin, stranger
    finally:
        if memory is not None:
            memory.close()


@asynccontextmanager
async def _met(payloads: Sequence[NixlHandshakePayload], memory: _Memory | None, **changes: str) -> AsyncIterator[Peer]:
    engine_id = f"self-check-{uuid.uuid4().hex}"
    told = {}
    for rank, payload in enumerate(payloads):
        own = replace(sidechannel.metadata_of(payload), engine_id=engine_id)
        layout = memory.described(rank, engine_id) if memory is not None else own
        told[rank] = replace(payload, agent_metadata_bytes=msgspec.msgpack.encode(layout), **changes)
    async with sidechannel.listening(told) as port:
        yield Peer(engine_id, port, len(payloads))


class _Memory:
    """Zeros in the shape of each rank's KV, open for reading."""

    def __init__(self, layouts: Sequence[NixlAgentMetadata]) -> None:
        self._layouts = layouts
        self._blocks = [_BLOCKS * layout.physical_blocks_per_logical_kv_block for layout in layouts]
        sizes = [sum(layout.block_lens) * blocks for layout, blocks in zip(layouts, self._blocks, strict=True)]
        self._buffer = np.zeros(sum(sizes), dtype=np.uint8)
        self._starts = [int(self._buffer.ctypes.data) + sum(sizes[:rank]) for rank in range(len(sizes))]
        delay_progress_thread()
        api: Any = importlib.import_module("nixl._api")
        self._agent = api.nixl_agent(f"self-check-{uuid.uuid4().hex}", api.nixl_agent_config(backends=["UCX"]))
        self._registered = self._agent.register_memory(
            [(int(self._buffer.ctypes.data), self._buffer.nbytes, 0, "")], _HOST_MEMORY
        )

    def described(self, rank: int, engine_id: str) -> NixlAgentMetadata:
        """What a prefill engine with this memory would tell."""
        layout, blocks = self._layouts[rank], self._blocks[rank]
        lengths = [length * blocks for length in layout.block_lens]
        return replace(
            layout,
            engine_id=engine_id,
            agent_metadata=self._agent.get_agent_metadata(),
            kv_caches_base_addr=[self._starts[rank] + sum(lengths[:region]) for region in range(len(lengths))],
            device_id=0,
            num_blocks=blocks,
            block_strides=list(layout.block_lens),
            region_num_blocks=None,
            region_mem_types=None if layout.region_mem_types is None else [_HOST_MEMORY] * len(lengths),
        )

    def close(self) -> None:
        self._agent.deregister_memory(self._registered)
        del self._agent
