"""The KV transfer between two fake engines: one HTTP request to the prefill's side channel."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from typing import Any
from urllib.parse import quote

from sunfleet_api import wire
from sunfleet_fakes.engine.ledger import KvEntry
from sunfleet_fakes.engine.request import ApiError, Generation
from sunfleet_fakes.engine.state import Engine

KV_PATH = "/fake/kv"


def transfer_params(engine: Engine, owner: str, dropped: tuple[str, ...]) -> dict[str, Any]:
    """``kv_transfer_params`` of a prefill answer, the fields that NIXL's connector gives."""
    params: dict[str, Any] = {
        "do_remote_prefill": True,
        "do_remote_decode": False,
        "remote_block_ids": engine.ledger.block_ids(owner),
        "remote_engine_id": engine.engine_id,
        "remote_request_id": owner,
        "remote_host": engine.settings.pod_ip,
        "remote_port": engine.side_channel_port,
        "tp_size": engine.settings.tensor_parallel_size,
    }
    return {name: value for name, value in params.items() if name not in dropped}


async def load_kv(engine: Engine, request: Generation) -> KvEntry:
    """Read the KV that the hand-over names. Raises :class:`ApiError` 503 ``sun_kv_load_failed``."""
    params = request.transfer
    missing = wire.missing_fields(params)
    if missing:
        raise _failed(f"kv_transfer_params lacks {', '.join(missing)}")
    try:
        status, body = await _get(str(params["remote_host"]), int(params["remote_port"]), _path(params))
    except (OSError, EOFError, ValueError) as error:
        raise _failed(f"the prefill pod cannot be reached: {error}") from error
    if status != 200:
        raise _failed(str(body.get("error", status)))
    entry = KvEntry(**body)
    if entry.fingerprint != engine.settings.kv_fingerprint:
        raise _failed("the KV fingerprints of prefill and decoder differ")
    return entry


def _path(params: Mapping[str, Any]) -> str:
    names = (str(params["remote_engine_id"]), str(params["remote_request_id"]))
    return "/".join([KV_PATH, *(quote(name, safe="") for name in names)])


async def _get(host: str, port: int, path: str) -> tuple[int, dict[str, Any]]:
    # HTTP/1.0 by hand: an HTTP client would double the fake's start-up time.
    reader, writer = await asyncio.open_connection(host, port)
    try:
        writer.write(f"GET {path} HTTP/1.0\r\nHost: {host}\r\n\r\n".encode())
        await writer.drain()
        head, _, body = (await reader.read()).partition(b"\r\n\r\n")
        return int(head.split()[1]), json.loads(body)
    except IndexError as error:
        raise EOFError("the connection was closed without an answer") from error
    finally:
        writer.close()


def _failed(why: str) -> ApiError:
    return ApiError(
        503, f"the KV of this request could not be loaded: {why}", code="sun_kv_load_failed", kind="ServiceUnavailable"
    )
