"""Raw questions to the router: what came over the wire, and how it ended. The ``openai`` client hides just that."""

from __future__ import annotations

import http.client
import json
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

from support.client import DECODE_HEADER, PREFILL_HEADER

Json = dict[str, Any]


@dataclass
class Reply:
    """One answer. ``done``: a whole JSON body, or a stream with its end mark. ``broken``: the connection broke."""

    status: int = 0
    headers: dict[str, str] = field(default_factory=dict)
    body: Any = None
    events: list[Json] = field(default_factory=list)  # of a stream
    text: str = ""
    finish_reason: str = ""
    error: Json | None = None
    done: bool = False
    broken: str = ""
    seconds: float = 0.0

    @property
    def code(self) -> str:
        """Code of the error, empty without one."""
        return str((self.error or {}).get("code", ""))

    @property
    def prefill_pod(self) -> str:
        return self.headers.get(PREFILL_HEADER, "")

    @property
    def decode_pod(self) -> str:
        return self.headers.get(DECODE_HEADER, "")

    @property
    def says_how_it_ended(self) -> bool:
        """An answer that is whole, or an error that says so: anything else would be a silently cut answer."""
        return self.done != bool(self.error or self.broken)


def completion(model: str, prompt: str, **fields: Any) -> Json:
    """A body for ``/v1/completions``."""
    return {"model": model, "prompt": prompt, "max_tokens": 20, **fields}


def ask(
    url: str, body: Json | bytes, *, path: str = "/v1/completions", timeout: float = 60.0,
    on_event: Callable[[int], None] = lambda _: None,
) -> Reply:  # fmt: skip
    """POST and read to the end; ``on_event`` is told the number of each streamed event as it comes."""
    reply, started = Reply(), time.monotonic()
    address = urlsplit(url)
    connection = http.client.HTTPConnection(address.hostname or "", address.port, timeout=timeout)
    raw = body if isinstance(body, bytes) else json.dumps(body).encode()
    try:
        connection.request("POST", address.path + path, raw, {"content-type": "application/json"})
        answer = connection.getresponse()
        reply.status, reply.headers = answer.status, {name.lower(): value for name, value in answer.getheaders()}
        if answer.headers.get_content_type() == "text/event-stream":
            _read_stream(answer, reply, on_event)
        else:
            _read_whole(answer.read(), reply)
    except (OSError, http.client.HTTPException) as error:
        reply.broken = repr(error)
    finally:
        connection.close()
    reply.seconds = time.monotonic() - started
    return reply


def ask_all(url: str, bodies: Sequence[Json], **options: Any) -> list[Reply]:
    """All at once."""
    with ThreadPoolExecutor(len(bodies)) as threads:
        return list(threads.map(lambda body: ask(url, body, **options), bodies))


def _read_whole(raw: bytes, reply: Reply) -> None:
    reply.body = json.loads(raw)
    reply.error = reply.body.get("error")
    if reply.status == 200:
        reply.done = True
        choice = reply.body["choices"][0]
        reply.text, reply.finish_reason = choice.get("text", ""), choice["finish_reason"]


def _read_stream(answer: http.client.HTTPResponse, reply: Reply, on_event: Callable[[int], None]) -> None:
    count = 0
    while line := answer.readline():
        if not line.startswith(b"data: "):
            continue
        data = line[6:].strip()
        if data == b"[DONE]":
            reply.done = True
            continue
        event = json.loads(data)
        reply.events.append(event)
        reply.error = event.get("error") or reply.error
        for choice in event.get("choices", ()):
            reply.text += choice.get("text", "")
            reply.finish_reason = choice.get("finish_reason") or reply.finish_reason
        count += 1
        on_event(count)
