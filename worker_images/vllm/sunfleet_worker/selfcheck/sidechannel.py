"""The engines' handshake: what a pod tells its peers of its KV, asked as a peer asks, and played as a peer plays it."""

from __future__ import annotations

import asyncio
import hashlib
import json
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress

import msgspec
import zmq
import zmq.asyncio
from vllm.distributed.kv_transfer.kv_connector.v1.nixl.metadata import (
    GET_META_MSG,
    NixlAgentMetadata,
    NixlHandshakePayload,
)
from vllm.utils.network_utils import make_zmq_path, make_zmq_socket

_HOST = "127.0.0.1"


async def ask(host: str, port: int, ranks: int) -> tuple[NixlHandshakePayload, ...]:
    """What each tensor-parallel rank behind a side channel says of itself. The caller bounds the time."""
    context = zmq.asyncio.Context()
    socket = make_zmq_socket(context, make_zmq_path("tcp", host, port), zmq.REQ, bind=False, linger=0)
    try:
        return tuple([await _ask_rank(socket, rank) for rank in range(ranks)])
    finally:
        socket.close(linger=0)
        context.term()


async def _ask_rank(socket: zmq.asyncio.Socket, rank: int) -> NixlHandshakePayload:
    await socket.send(msgspec.msgpack.encode((GET_META_MSG, 0, rank)))
    payload, _ = await socket.recv_multipart()
    return msgspec.msgpack.decode(payload, type=NixlHandshakePayload)


def metadata_of(payload: NixlHandshakePayload) -> NixlAgentMetadata:
    return msgspec.msgpack.decode(payload.agent_metadata_bytes, type=NixlAgentMetadata)


def kv_contract(payloads: Sequence[NixlHandshakePayload]) -> str:
    """32 hex digits for what decides whether another engine can read this one's KV, as the running engine has it.

    The engines themselves compare the hash in it (versions, model, types, attention backend); the rest they would take
    unequal, in ways that nothing here proves.
    """
    facts = [_facts(payload.compatibility_hash, metadata_of(payload)) for payload in payloads]
    return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()[:32]


def _facts(compatibility: str, layout: NixlAgentMetadata) -> dict[str, object]:
    return {
        "hash": compatibility,
        "block_size": layout.block_size,
        "block_lens": layout.block_lens,
        "blocks_per_logical": layout.physical_blocks_per_logical_kv_block,
        "layout": layout.kv_cache_layout,
        "backend": layout.attn_backend_name,
        "groups": layout.region_group_ids,
    }


@asynccontextmanager
async def listening(payloads: Mapping[int, NixlHandshakePayload]) -> AsyncIterator[int]:
    """Play the side channel of an engine with one payload for each rank; gives the port on loopback."""
    context = zmq.asyncio.Context()
    socket = context.socket(zmq.ROUTER)
    port = socket.bind_to_random_port(f"tcp://{_HOST}")
    serving = asyncio.create_task(_serve(socket, payloads))
    try:
        yield port
    finally:
        serving.cancel()
        with suppress(asyncio.CancelledError):
            await serving
        socket.close(linger=0)
        context.term()


async def _serve(socket: zmq.asyncio.Socket, payloads: Mapping[int, NixlHandshakePayload]) -> None:
    encoded = {rank: msgspec.msgpack.encode(payload) for rank, payload in payloads.items()}
    while True:
        identity, _, message = await socket.recv_multipart()
        _, _, rank = msgspec.msgpack.decode(message)
        now = msgspec.msgpack.encode(time.perf_counter())
        await socket.send_multipart((identity, b"", encoded[rank], now))
