"""One streamed request as a router keeps it: what was told, and its next leg after a break."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.client import HTTPResponse

from tests.engine.legs import RESPONSE_MODEL, Answer, Json, Pair, Stream, posted

from sunfleet_api import wire
from support.engines import Engine

DONE = b"[DONE]"


@dataclass
class Streaming:
    """A client's request and what it has got so far, over all decode legs.

    ``error`` is that of the last leg, which a client would not see as long as there is another.
    """

    pair: Pair
    path: str
    body: Json
    told: list[int] = field(default_factory=list)
    rows: dict[str, list[object]] | None = None
    events: list[Json] = field(default_factory=list)
    done: bool = False
    error: Json | None = None
    legs: int = 0
    request_id: str = field(default_factory=lambda: uuid.uuid4().hex)
    _prompt: list[int] | None = None

    @property
    def stream(self) -> Stream:
        """What the client sees."""
        return Stream(200, self.events, self.done)

    def leg(self, decode: Engine | None = None, *, until: int | None = None) -> None:
        """Prefill and decode once; leave the decode pod when ``until`` tokens have been told in all."""
        self.error, self.legs = None, self.legs + 1
        body = {**self.body, "stream": True}
        prefilled = self.pair.first_leg(self.path, body, resumed=bool(self.told))
        leg = self.pair.second_leg(body, prefilled, **{wire.KEY_PROGRESS: True})
        if self.events:
            leg["kv_transfer_params"] = self._resumed(prefilled)
        headers = {"x-request-id": self.request_id}
        with posted(decode or self.pair.decode, self.path, leg, headers) as response:
            if "event-stream" not in response.headers.get("content-type", ""):
                self.error = json.loads(response.read())["error"]
                return
            for progress, data in events_of(response):
                self._take(progress, data)
                if self.done or self.error or (until is not None and len(self.told) >= until):
                    return

    def _resumed(self, prefilled: Answer) -> Json:
        transfer = prefilled.body["kv_transfer_params"]
        prompt = prefilled.choice.get("prompt_token_ids") or prefilled.body["prompt_token_ids"]
        output, rows = self.told, self.rows
        if not self.told:
            output, rows = prefilled.token_ids, transfer.get(wire.KEY_OUTPUT_LOGPROBS)
        return wire.resume_params(
            transfer, prompt, output, RESPONSE_MODEL,
            told=len(self.told), logprobs=rows, created=self.events[0]["created"],
        )  # fmt: skip

    def _take(self, progress: wire.Progress, data: bytes) -> None:
        if data == DONE:
            self.done = True
            return
        event = json.loads(data)
        if "error" in event:
            self.error = event["error"]
            return
        self.told += progress.token_ids
        if progress.logprobs is not None:
            self.rows = self.rows or {key: [] for key in progress.logprobs}
            for key, values in progress.logprobs.items():
                self.rows[key] += values
        self.events.append(event)


def events_of(response: HTTPResponse) -> Iterator[tuple[wire.Progress, bytes]]:
    """Whole events with what they tell; an event that was cut off counts for nothing."""
    progress, data = wire.Progress(()), b""
    for line in response:
        if line.startswith(wire.PROGRESS_PREFIX):
            progress = wire.Progress.from_line(line)
        elif line.startswith(b"data: "):
            data = line.removeprefix(b"data: ").strip()
        elif not line.strip() and data:
            yield progress, data
            progress, data = wire.Progress(()), b""
