"""What the router's Python costs a request: its own parts, whole, on sockets that are memory.

``PYTHONPATH=bench/router:router:crds python -m sunfleet_router_inside [--scenario a|d] [--profile]``. No kernel, no
threads and no other process are in the figure, so it moves only when the code does; what sockets add is
``make bench-router``'s to measure. The best batch counts: other work on the machine can only make one slower.
"""

from __future__ import annotations

import argparse
import asyncio
import cProfile
import hashlib
import json
import pstats
import socket
import ssl
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import uvloop

from sunfleet_router.server import assemble_parts, settle_memory
from sunfleet_router.settings import RouterSettings
from sunfleet_router.transport.sockets import Listening, P, Tls

_KEY: Final = b"bench-key"
_PROMPT_BYTES: Final = {"a": 64, "d": 32768}
_TOKENS: Final = 16
_CLIENTS: Final = 16


class _End(asyncio.Transport):
    """Our side of a connection whose other side is ``peer``, which is called with what is written."""

    def __init__(self, peer: Callable[[_End, bytes], None]) -> None:
        super().__init__()
        self._peer = peer
        self.protocol: asyncio.Protocol | None = None

    def write(self, data: Any) -> None:
        self._peer(self, data)

    def writelines(self, list_of_data: Any) -> None:
        self._peer(self, b"".join(list_of_data))

    def is_closing(self) -> bool:
        return False

    def pause_reading(self) -> None: ...

    def resume_reading(self) -> None: ...

    def close(self) -> None: ...

    def abort(self) -> None: ...


class _Port:
    """A port that nobody can reach."""

    sockets = ()

    def close(self) -> None: ...


class MemorySockets:
    """Connections to engines that answer at once, in the event loop's next turn."""

    relays = False

    def __init__(self, prefilled: bytes, decoded: bytes) -> None:
        self._prefilled, self._decoded = prefilled, decoded
        self._loop = asyncio.get_running_loop()
        self.make: Callable[[], asyncio.Protocol] | None = None  # a connection of a client

    async def listen(
        self, make: Callable[[], asyncio.Protocol], host: str, port: int, listener: socket.socket | None,
        tls: ssl.SSLContext | None,
    ) -> Listening:  # fmt: skip
        del host, port, listener, tls
        self.make = make
        return _Port()

    async def connect(self, make: Callable[[], P], host: str, port: int, tls: Tls | None) -> P:
        del host, port, tls
        end, protocol = _End(self._engine), make()
        end.protocol = protocol
        protocol.connection_made(end)
        return protocol

    def close(self) -> None: ...

    def _engine(self, end: _End, data: bytes) -> None:
        assert end.protocol is not None  # noqa: S101 set where it is made
        answer = self._prefilled if b'"do_remote_decode":true' in data else self._decoded
        self._loop.call_soon(end.protocol.data_received, answer)


class _Client:
    """Asks again as soon as it is answered, until ``left`` is empty."""

    def __init__(self, sockets: MemorySockets, request: bytes, left: list[int], done: asyncio.Future[None]) -> None:
        assert sockets.make is not None  # noqa: S101 the server listens
        self._loop = asyncio.get_running_loop()
        self._request, self._left, self._done = request, left, done
        self._protocol = sockets.make()
        self._protocol.connection_made(_End(self._answered))

    def ask(self) -> None:
        self._protocol.data_received(self._request)

    def _answered(self, _: _End, data: bytes) -> None:
        if not data.startswith(b"HTTP/1.1 200"):
            raise RuntimeError(f"the router answered {data!r}")
        self._left[0] -= 1
        if self._left[0] >= _CLIENTS:
            self._loop.call_soon(self.ask)
        elif not self._left[0]:
            self._done.set_result(None)


def _message(head: str, body: bytes) -> bytes:
    return f"{head}\r\ncontent-type: application/json\r\ncontent-length: {len(body)}\r\n\r\n".encode() + body


def _answers(prompt_bytes: int) -> tuple[bytes, bytes]:
    """Of a prefill engine and of a decode engine, as the bench's own engines write them."""
    ids = [7, *(1000 + index % 30000 for index in range(1, prompt_bytes // 4))]
    transfer = {
        "do_remote_prefill": True, "do_remote_decode": False, "remote_block_ids": list(range((len(ids) + 15) // 16)),
        "remote_engine_id": "engine", "remote_request_id": "cmpl-1", "remote_host": "127.0.0.1", "remote_port": 5600,
        "tp_size": 1,
    }  # fmt: skip

    def whole(text: str, tokens: list[int] | None, prompt: list[int] | None, kv: Any) -> bytes:
        choice = {"index": 0, "text": text, "logprobs": None, "finish_reason": "length", "stop_reason": None,
                  "token_ids": tokens, "prompt_logprobs": None, "prompt_token_ids": prompt}  # fmt: skip
        usage = {"prompt_tokens": len(ids), "total_tokens": len(ids) + _TOKENS, "completion_tokens": _TOKENS,
                 "prompt_tokens_details": None}  # fmt: skip
        answer = {"id": "cmpl-1", "object": "text_completion", "created": 1_700_000_000, "model": "mock",
                  "choices": [choice], "service_tier": None, "system_fingerprint": None, "usage": usage,
                  "kv_transfer_params": kv}  # fmt: skip
        return _message("HTTP/1.1 200 OK", json.dumps(answer, separators=(",", ":")).encode())

    return whole(" w207", [207], ids, transfer), whole(" w207" * _TOKENS, None, None, None)


def _request(prompt_bytes: int) -> bytes:
    prompt = ("#12345 " + "word " * (prompt_bytes // 5))[:prompt_bytes]
    body = json.dumps({"model": "mock", "prompt": prompt, "max_tokens": _TOKENS}, separators=(",", ":")).encode()
    head = "POST /v1/completions HTTP/1.1\r\nhost: 127.0.0.1:8080\r\nauthorization: Bearer " + _KEY.decode()
    return _message(head, body)


def _fleet(folder: Path) -> Path:
    def endpoints(role: str, first: int) -> list[dict[str, object]]:
        info = {"role": role, "kv_capacity_tokens": 1_000_000_000, "block_size": 16, "max_model_len": 131_072,
                "kv_fingerprint": "bench"}  # fmt: skip
        return [{"url": f"http://127.0.0.1:{first + number}", "info": info} for number in range(2)]

    config = folder / "fleet.json"
    fleet = {
        "decoders": [{"name": "bench/base", "endpoints": endpoints("decode", 8201)}],
        "tasks": [{"name": "mock", "decoder": "bench/base", "prefill": endpoints("prefill", 8101),
                   "traffic": {"maxInFlight": 10_000}}],
        "keys": [{"name": "bench", "sha256": hashlib.sha256(_KEY).hexdigest(), "tasks": "*"}],
    }  # fmt: skip
    config.write_text(json.dumps(fleet), encoding="utf-8")
    return config


async def measure(scenario: str, batches: int, each: int, profile: cProfile.Profile | None) -> list[float]:
    """Microseconds of CPU a request, one figure for each batch of ``each`` requests."""
    size = _PROMPT_BYTES[scenario]
    sockets = MemorySockets(*_answers(size))
    with tempfile.TemporaryDirectory() as folder:
        parts = assemble_parts(RouterSettings(config=_fleet(Path(folder))), sockets)
    discovery = asyncio.get_running_loop().create_task(parts.discovery.run())
    await parts.front.start("", 0)
    settle_memory()
    found = []
    for batch in range(batches + 1):
        done, left = asyncio.get_running_loop().create_future(), [each]
        clients = [_Client(sockets, _request(size), left, done) for _ in range(_CLIENTS)]
        if profile and batch:
            profile.enable()
        began = time.process_time()
        for client in clients:
            client.ask()
        await done
        found.append((time.process_time() - began) / each * 1e6)
        if profile:
            profile.disable()
    discovery.cancel()
    await parts.front.stop(0)
    return found[1:]  # the first one warms up


def main() -> int:
    parser = argparse.ArgumentParser(prog="sunfleet_router_inside", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--scenario", choices=tuple(_PROMPT_BYTES), default="a")
    parser.add_argument("--batches", type=int, default=30)
    parser.add_argument("--each", type=int, default=800)
    parser.add_argument("--profile", action="store_true", help="where it goes, by function")
    given = parser.parse_args()
    profile = cProfile.Profile() if given.profile else None
    found = uvloop.run(measure(given.scenario, given.batches, given.each, profile))
    sys.stdout.write(
        f"{given.scenario}: {min(found):.1f} us a request (best of {given.batches} batches; "
        f"median {statistics.median(found):.1f})\n"
    )
    if profile:
        pstats.Stats(profile, stream=sys.stdout).sort_stats("tottime").print_stats(70)
    return 0


if __name__ == "__main__":
    sys.exit(main())
