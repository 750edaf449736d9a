"""A stand-in for a fleet's OpenAI API on loopback, whose answers a test can foretell."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


@dataclass
class Asked:
    """Where it listens, and (path, body) of every request so far."""

    url: str
    requests: list[tuple[str, dict[str, Any]]] = field(default_factory=list)


@contextmanager
def openai_stand_in() -> Iterator[Asked]:
    """Answers with the number of messages, or the length of the prompt; it has every model but ``none``."""
    with ThreadingHTTPServer(("127.0.0.1", 0), _Handler) as server:
        asked = Asked(f"http://127.0.0.1:{server.server_port}")
        server.asked = asked  # type: ignore[attr-defined]
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield asked
        finally:
            server.shutdown()
            thread.join()


class _Handler(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        self.server.asked.requests.append((self.path, body))  # type: ignore[attr-defined]
        if body["model"] == "none":
            self._send(404, {"error": {"message": "The model does not exist", "code": "model_not_found"}})
        elif "messages" in body:
            self._answer({"message": {"role": "assistant", "content": str(len(body["messages"]))}})
        else:
            self._answer({"text": str(len(body["prompt"]))})

    def _answer(self, part: dict[str, Any]) -> None:
        self._send(200, {"choices": [{"index": 0, "finish_reason": "stop", **part}]})

    def _send(self, status: int, content: dict[str, Any]) -> None:
        raw = json.dumps(content).encode()
        self.send_response(status)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(raw)))
        self.end_headers()
        self.wfile.write(raw)

    def log_message(self, *_: Any) -> None:
        pass
