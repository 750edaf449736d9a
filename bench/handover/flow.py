"""One pair of engines and the hand-over that it speaks: both legs of a request, timed."""

from __future__ import annotations

import http.client
import json
import time
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from statistics import median
from typing import Any
from urllib.parse import urlsplit

from sunfleet_api import wire

Json = dict[str, Any]
SALT = "b" * 32
TIMEOUT_SECONDS = 120


@dataclass(frozen=True)
class Timed:
    """One request, in seconds. ``first``: until the first token's event; ``each``: between tokens, on average.

    ``handover``: the part of ``first`` from sending the decode leg on, in which the KV moves. ``gap``: the median one
    between two events, so neither the first, in which SUN's KV moves, nor one that several tokens share.
    ``all``: until the last.
    """

    first: float
    handover: float
    each: float
    gap: float
    all: float


@dataclass(frozen=True)
class Flow:
    """``name``: ``sun`` or ``ordinary``. ``prefill`` and ``decode``: URLs."""

    name: str
    prefill: str
    decode: str

    def ask(self, prompt: list[int], output: int) -> Timed:
        """Both legs of a greedy completion, the second one streamed.

        Before its first event an ordinary decoder computes one token more than SUN's, which has it already.
        """
        began = time.perf_counter()
        body: Json = {
            "model": wire.ENGINE_MODEL, "prompt": prompt, "max_tokens": output, "temperature": 0, "ignore_eos": True,
            "cache_salt": SALT,
        }  # fmt: skip
        transfer = self._prefilled(body)
        leg = {**body, "stream": True, "kv_transfer_params": transfer}
        sent = time.perf_counter()
        times = [time.perf_counter() for line in post(self.decode, leg) if line.startswith(b"data: {")]
        if len(times) < 2:
            raise RuntimeError(f"{self.name}: {len(times)} events for {output} tokens")
        # By tokens and not by events: one that shows no text yet comes with the next.
        each, gap = (times[-1] - times[0]) / (output - 1), median(later - one for one, later in pairwise(times))
        return Timed(times[0] - began, times[0] - sent, each, gap, times[-1] - began)

    def _prefilled(self, body: Json) -> Json:
        """The first leg; ``kv_transfer_params`` of the second."""
        params = {"do_remote_decode": True, "do_remote_prefill": False}
        leg = {**body, "max_tokens": 1, "return_token_ids": True, "kv_transfer_params": params}
        answer = json.loads(b"".join(post(self.prefill, leg)))
        choice, given = answer["choices"][0], answer["kv_transfer_params"]
        if self.name != "sun":
            return {**given, "do_remote_prefill": True, "do_remote_decode": False}
        transfer = wire.decode_params(given, choice["prompt_token_ids"], choice["token_ids"], "bench")
        return {**transfer, wire.KEY_PROGRESS: True}


def post(url: str, body: Json) -> Iterator[bytes]:
    """Lines of the answer as they come."""
    address = urlsplit(url)
    connection = http.client.HTTPConnection(address.hostname or "", address.port, timeout=TIMEOUT_SECONDS)
    try:
        connection.request("POST", "/v1/completions", json.dumps(body), {"content-type": "application/json"})
        answer = connection.getresponse()
        if answer.status != 200:
            raise RuntimeError(f"HTTP {answer.status}: {answer.read()[:500]!r}")
        yield from answer
    finally:
        connection.close()
