"""The two legs of a request as the router sends them, and what came back."""

from __future__ import annotations

import http.client
import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from sunfleet_api import wire
from support.engines import Engine

Json = dict[str, Any]
RESPONSE_MODEL = "acme/task"
TIMEOUT_SECONDS = 120


@dataclass
class Answer:
    """Status and body of a request that was not streamed."""

    status: int
    body: Json

    @property
    def choice(self) -> Json:
        assert self.status == 200, (self.status, self.body)
        choice: Json = self.body["choices"][0]
        return choice

    @property
    def token_ids(self) -> list[int]:
        ids: list[int] = self.choice["token_ids"]
        return ids

    @property
    def text(self) -> str:
        text: str = self.choice["message"]["content"] if "message" in self.choice else self.choice["text"]
        return text

    @property
    def ended(self) -> bool:
        """Whether a prefill leg's token is the whole answer, so that it hands nothing over."""
        return self.choice["finish_reason"] != "length" and not self.body["kv_transfer_params"]

    @property
    def error(self) -> Json:
        error: Json = self.body["error"]
        return error


@dataclass
class Stream:
    """Status, data events in order (JSON), and whether ``[DONE]`` ended them."""

    status: int
    events: list[Json]
    done: bool

    @property
    def text(self) -> str:
        return "".join(_delta(choice) for event in self.events for choice in event.get("choices", ()))

    @property
    def finish_reason(self) -> str | None:
        reasons = [choice["finish_reason"] for event in self.events for choice in event.get("choices", ())]
        return next((reason for reason in reversed(reasons) if reason), None)

    @property
    def chunks(self) -> list[str]:
        """Texts of the chunks that carry some, in order."""
        deltas = (_delta(choice) for event in self.events for choice in event.get("choices", ()))
        return [delta for delta in deltas if delta]


def _delta(choice: Json) -> str:
    text: str = choice["delta"].get("content") or "" if "delta" in choice else choice["text"]
    return text


@dataclass(frozen=True)
class Pair:
    """A task's prefill pod, the decode pod, and the task's salt."""

    prefill: Engine
    decode: Engine
    salt: str

    def first_leg(self, path: str, body: Json, *, resumed: bool = False) -> Answer:
        """The client's ``body`` as the prefill leg; ``resumed`` when its token will be dropped."""
        leg = {key: value for key, value in body.items() if key not in {"stream", "stream_options"}}
        leg |= {
            "model": wire.ENGINE_MODEL,
            "max_tokens": 1,
            "return_token_ids": True,
            "cache_salt": self.salt,
            # The router answers requests for one token from this leg; here the decode pod shall answer them too.
            "kv_transfer_params": wire.prefill_params(body.get("max_tokens"), resumed=resumed)
            | {"do_remote_decode": True},
        }
        return post(self.prefill, path, leg)

    def second_leg(self, body: Json, prefilled: Answer, **changes: Any) -> Json:
        """The decode leg's body. ``changes`` are set in its ``kv_transfer_params``; ``None`` removes a field."""
        prompt = prefilled.choice.get("prompt_token_ids") or prefilled.body["prompt_token_ids"]
        params = wire.decode_params(prefilled.body["kv_transfer_params"], prompt, prefilled.token_ids, RESPONSE_MODEL)
        kept = {key: value for key, value in (params | changes).items() if value is not None}
        ids = {} if body.get("stream") else {"return_token_ids": True}
        return {**body, **ids, "model": wire.ENGINE_MODEL, "cache_salt": self.salt, "kv_transfer_params": kept}

    def ask(self, path: str, body: Json) -> Answer:
        """Both legs, not streamed; the first one's answer if nothing is left to decode."""
        prefilled = self.first_leg(path, body)
        if prefilled.ended:
            return prefilled
        return post(self.decode, path, self.second_leg(body, prefilled))

    def stream(self, path: str, body: Json) -> Stream:
        """Both legs, the second one streamed; the first one's answer as one event if nothing is left to decode."""
        streamed = {**body, "stream": True}
        prefilled = self.first_leg(path, streamed)
        if prefilled.ended:
            return Stream(200, [prefilled.body], done=True)
        return post_stream(self.decode, path, self.second_leg(streamed, prefilled))

    def complete(self, prompt: list[int], max_tokens: int, **sampling: Any) -> Answer:
        """A greedy completion of token ids."""
        return self.ask("/v1/completions", completion(prompt, max_tokens, **sampling))


def completion(prompt: list[int] | str, max_tokens: int, **sampling: Any) -> Json:
    return {"prompt": prompt, "max_tokens": max_tokens, "temperature": 0, **sampling}


def chat(messages: list[dict[str, str]], max_tokens: int, **sampling: Any) -> Json:
    return {"messages": messages, "max_tokens": max_tokens, "temperature": 0, **sampling}


def post(engine: Engine, path: str, body: Mapping[str, Any] | bytes) -> Answer:
    with posted(engine, path, body) as response:
        raw = response.read()
        return Answer(response.status, json.loads(raw) if raw else {})


def post_stream(engine: Engine, path: str, body: Mapping[str, Any]) -> Stream:
    with posted(engine, path, body) as response:
        if "event-stream" not in response.headers.get("content-type", ""):
            return Stream(response.status, [json.loads(response.read())], done=False)
        data = [line[6:].strip() for line in response if line.startswith(b"data: ")]
        done = bool(data) and data[-1] == b"[DONE]"
        return Stream(response.status, [json.loads(item) for item in data if item != b"[DONE]"], done)


def release(engine: Engine, prefilled: Answer) -> int:
    """Give back the KV that a prefill pod holds for a hand-over; the status."""
    return post(engine, wire.RELEASE_PATH, {"kv_transfer_params": prefilled.body["kv_transfer_params"]}).status


def leave_after(engine: Engine, path: str, body: Mapping[str, Any], events: int) -> None:
    """Start a stream and close the connection after so many events."""
    with posted(engine, path, body) as response:
        for line in response:
            events -= line.startswith(b"data: ")
            if events <= 0:
                return


@contextmanager
def posted(
    engine: Engine, path: str, body: Mapping[str, Any] | bytes, headers: Mapping[str, str] | None = None
) -> Iterator[http.client.HTTPResponse]:
    """Send a request and close the connection on leaving, whatever has been read by then."""
    connection = http.client.HTTPConnection("127.0.0.1", engine.port, timeout=TIMEOUT_SECONDS)
    raw = body if isinstance(body, bytes) else json.dumps(body).encode()
    try:
        connection.request("POST", path, raw, {"content-type": "application/json", **(headers or {})})
        yield connection.getresponse()
    finally:
        connection.close()


def metric(engine: Engine, name: str, **labels: str) -> float:
    """Sum of a metric's samples that have these labels."""
    connection = http.client.HTTPConnection("127.0.0.1", engine.port, timeout=TIMEOUT_SECONDS)
    try:
        connection.request("GET", "/metrics")
        lines = connection.getresponse().read().decode().splitlines()
    finally:
        connection.close()
    wanted = [f'{key}="{value}"' for key, value in labels.items()]
    samples = [line for line in lines if line.split("{")[0].split(" ")[0] == name and all(w in line for w in wanted)]
    return sum(float(line.rsplit(" ", 1)[1]) for line in samples)
