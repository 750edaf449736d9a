"""The other APIs' answers, whole or streamed, in one form that two servers' answers can be compared in."""

from __future__ import annotations

import http.client
import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

from support.shapes import cleaned

Json = dict[str, Any]

# Ids, times and signatures differ between any two answers; caches decide how many prompt tokens were cached.
_IGNORED = frozenset(
    {"id", "call_id", "signature", "item_id", "bytes", "status", "namespace", "summary", "annotations"}
)
_EMPTY: tuple[Any, ...] = (None, [])


@dataclass(frozen=True)
class Said:
    """One answer: its status, and its body or the data of its events."""

    status: int
    body: Json
    events: list[Json] = field(default_factory=list)


def post(url: str, path: str, body: Json, timeout: float = 120.0) -> Said:
    """POST and read to the end."""
    address = urlsplit(url)
    connection = http.client.HTTPConnection(address.hostname or "", address.port, timeout=timeout)
    try:
        connection.request("POST", path, json.dumps(body).encode(), {"content-type": "application/json"})
        answer = connection.getresponse()
        raw = answer.read().decode()
        if answer.headers.get_content_type() != "text/event-stream":
            return Said(answer.status, json.loads(raw))
        lines = [line[6:] for line in raw.splitlines() if line.startswith("data: ") and line != "data: [DONE]"]
        return Said(answer.status, {}, [json.loads(line) for line in lines])
    finally:
        connection.close()


def of_response(said: Said) -> Json:
    """What a response says; of a stream its last event, which its deltas must add up to."""
    if not said.events:
        return _response(said.body)
    last = said.events[-1]
    assert last["type"] == "response.completed", last
    shaped = _response(last["response"])
    texts = [event["delta"] for event in said.events if event["type"] == "response.output_text.delta"]
    parts = [part for item in shaped["output"] for part in item.get("content", ()) if part["type"] == "output_text"]
    assert "".join(texts) == "".join(part["text"] for part in parts)
    return shaped


def of_message(said: Said) -> Json:
    """What a message says; a stream is put together first."""
    return _message(_assembled(said.events) if said.events else said.body)


def _response(body: Json) -> Json:
    usage = body["usage"]
    return {
        "status": body["status"],
        "incomplete_details": body.get("incomplete_details"),
        "output": cleaned(body["output"], _IGNORED, _EMPTY),
        "tokens": (usage["input_tokens"], usage["output_tokens"], usage["total_tokens"]),
    }


def _message(body: Json) -> Json:
    usage = body["usage"]
    cached = (usage.get("cache_read_input_tokens") or 0) + (usage.get("cache_creation_input_tokens") or 0)
    return {
        "content": cleaned(body["content"], _IGNORED, _EMPTY),
        "stop": (body["stop_reason"], body.get("stop_sequence")),
        "tokens": (usage["input_tokens"] + cached, usage["output_tokens"]),
    }


def _assembled(events: Sequence[Json]) -> Json:
    begun, *rest = events
    body: Json = {**begun["message"], "content": []}
    for event in rest:
        if event["type"] == "content_block_start":
            body["content"].append({**event["content_block"], "arguments": ""})
        elif event["type"] == "content_block_delta":
            _add(body["content"][event["index"]], event["delta"])
        elif event["type"] == "message_delta":
            body |= {**event["delta"], "usage": event["usage"]}
    for block in body["content"]:
        arguments = block.pop("arguments")
        if arguments:
            block["input"] = _parsed(arguments)
    assert rest[-1]["type"] == "message_stop", rest[-1]
    return body


def _parsed(arguments: str) -> Any:
    """A call that ``max_tokens`` cut off within its arguments stays text: a stream has said it by then."""
    try:
        return json.loads(arguments)
    except json.JSONDecodeError:
        return arguments


def _add(block: Json, delta: Json) -> None:
    for name in ("text", "thinking"):
        if name in delta:
            block[name] += delta[name]
    block["arguments"] += delta.get("partial_json", "")
