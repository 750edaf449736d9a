"""Requests to this pod's own application: everything but the socket is what a router's request meets."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from sunfleet_worker.frontend.gate import App, Message
from sunfleet_worker.frontend.standing import SELF_CHECK


@dataclass(frozen=True)
class Answer:
    """Status and whole body, of a stream too."""

    status: int
    raw: bytes

    @property
    def body(self) -> dict[str, Any]:
        """The JSON object; empty when the body is none."""
        try:
            parsed = json.loads(self.raw)
        except ValueError:
            return {}
        return parsed if isinstance(parsed, dict) else {}

    @property
    def code(self) -> str:
        """The code of an OpenAI error object, empty without one."""
        error = self.body.get("error")
        return str(error.get("code")) if isinstance(error, dict) else ""

    @property
    def words(self) -> str:
        """What came, for people."""
        return f"status {self.status}, {self.raw[:300].decode(errors='replace')}"


async def post(app: App, path: str, body: Mapping[str, Any]) -> Answer:
    """The application's answer to one JSON request."""
    sent: list[Message] = []
    requests = [{"type": "http.request", "body": json.dumps(body).encode(), "more_body": False}]

    async def receive() -> Message:
        if requests:
            return requests.pop()
        await asyncio.Event().wait()  # a client that stays
        raise AssertionError("unreachable")

    async def send(message: Message) -> None:
        sent.append(message)

    await app(_scope(path), receive, send)
    status = next(int(message["status"]) for message in sent if message["type"] == "http.response.start")
    return Answer(status, b"".join(m.get("body", b"") for m in sent if m["type"] == "http.response.body"))


def _scope(path: str) -> dict[str, Any]:
    return {
        "type": "http", "asgi": {"version": "3.0", "spec_version": "2.3"}, "http_version": "1.1", "method": "POST",
        "scheme": "http", "path": path, "raw_path": path.encode(), "root_path": "", "query_string": b"",
        "headers": [(b"host", b"localhost"), (b"content-type", b"application/json")],
        "client": ("127.0.0.1", 0), "server": ("127.0.0.1", 0), SELF_CHECK: True,
    }  # fmt: skip
