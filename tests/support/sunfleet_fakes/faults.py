"""Files over HTTP, with what goes wrong on real lines: errors, delays, cut connections, damaged bytes."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field

from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

Handler = Callable[[Request], Awaitable[Response]]

_PIECE = 64 << 10
_RANGE = re.compile(r"bytes=(\d+)-(\d*)$")


@dataclass
class Faults:
    """What a server does wrong, which tests set at any time, and what it was asked.

    ``cut`` and ``damage`` map a path to how often its download is still cut in the middle or changed in one byte.
    """

    status: int = 0  # answer everything with this
    seconds: float = 0.0  # before every answer
    cut: dict[str, int] = field(default_factory=dict)
    damage: dict[str, int] = field(default_factory=dict)
    requests: list[tuple[str, str, str]] = field(default_factory=list)  # method, path, range

    def told(self, handler: Handler) -> Handler:
        """``handler``, unless everything is to fail."""

        async def endpoint(request: Request) -> Response:
            self.requests.append((request.method, request.url.path, request.headers.get("range", "")))
            await asyncio.sleep(self.seconds)
            if self.status:
                return Response("told to fail", self.status)
            return await handler(request)

        return endpoint

    def downloads(self, path: str) -> list[str]:
        """The ranges of every download of a file so far, empty for whole ones."""
        return [span for method, url, span in self.requests if method == "GET" and url.endswith(f"/{path}")]

    def content(self, request: Request, path: str, content: bytes, headers: dict[str, str]) -> Response:
        """A file or the range of it that was asked for."""
        status = 200
        if match := _RANGE.match(request.headers.get("range", "")):
            start, end = int(match[1]), int(match[2] or len(content) - 1)
            status = 206
            headers = {**headers, "Content-Range": f"bytes {start}-{end}/{len(content)}"}
            content = content[start : end + 1]
        headers = {**headers, "Content-Length": str(len(content)), "Accept-Ranges": "bytes"}
        if request.method == "HEAD":
            return Response(status_code=status, headers=headers)
        if _use_up(self.damage, path):
            content = bytes([content[0] ^ 1]) + content[1:]
        cut = len(content) // 2 if _use_up(self.cut, path) else None
        return StreamingResponse(_pieces(content, cut), status, headers=headers)


def other_origin(request: Request) -> str:
    """This server under another name: storage is another host, and clients treat it as one (no token, no more HEAD)."""
    address, port = request.scope["server"]
    return f"{request.url.scheme}://{'localhost' if request.url.hostname == address else address}:{port}"


def _use_up(counts: dict[str, int], path: str) -> bool:
    if counts.get(path, 0) <= 0:
        return False
    counts[path] -= 1
    return True


async def _pieces(content: bytes, cut: int | None) -> AsyncIterator[bytes]:
    """The content; ends early, so that the server breaks the connection, where ``cut`` says."""
    for at in range(0, len(content[:cut]), _PIECE):
        yield content[:cut][at : at + _PIECE]
