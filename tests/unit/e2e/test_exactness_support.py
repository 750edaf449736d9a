"""The parts of the exactness suites that must not be wrong themselves: forms of answers, the table, cuts."""

from __future__ import annotations

import http.client
import json
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from support import engines
from support.client import Answer
from support.cuts import CuttingProxy, Proxies
from support.engines import free_ports
from support.exact import Rule, judge, unexplained
from support.judge import Judge
from support.reference import Scores
from support.shapes import of_stream, of_whole
from support.table import Table


def chunk(**fields: Any) -> dict[str, Any]:
    return {"id": "x", "created": 1, "model": "m", "choices": [{"index": 0, **fields}]}


def test_a_stream_has_the_form_of_the_whole_answer() -> None:
    whole = {
        "id": "a", "created": 2, "model": "n", "usage": {"completion_tokens": 2},
        "choices": [{"index": 0, "message": {"role": "assistant", "content": "Hi you"}, "finish_reason": "stop"}],
    }  # fmt: skip
    events = [
        chunk(delta={"role": "assistant", "content": ""}, finish_reason=None),
        chunk(delta={"content": "Hi"}),
        chunk(delta={"content": " you"}, finish_reason="stop"),
        {"id": "x", "choices": [], "usage": {"completion_tokens": 2}},
    ]
    assert of_stream(events) == of_whole(whole)
    events[2]["choices"][0]["delta"]["content"] = " me"
    assert of_stream(events) != of_whole(whole)


def test_tool_calls_come_together_without_their_ids() -> None:
    call = {"id": "1", "type": "function", "function": {"name": "f", "arguments": '{"a":1}'}}
    whole = {
        "choices": [{"index": 0, "message": {"content": None, "tool_calls": [call]}, "finish_reason": "tool_calls"}]
    }
    first = {"index": 0, "id": "9", "type": "function", "function": {"name": "f", "arguments": ""}}
    rest = {"index": 0, "function": {"arguments": '{"a":1}'}}
    events = [
        chunk(delta={"tool_calls": [first]}),
        chunk(delta={"tool_calls": [rest]}),
        chunk(delta={}, finish_reason="tool_calls"),
    ]
    of_tools = of_whole(whole)["choices"][0]["message"]["tool_calls"]
    assert of_stream(events)["choices"][0]["message"]["tool_calls"] == [
        {key: value for key, value in call.items() if key != "id"} for call in of_tools
    ]


def scores(best: list[int], gaps: list[float] | None = None, **fields: Any) -> Scores:
    return Scores(
        prompt_token_ids=[1], token_ids=best, gaps=gaps or [0.0] * len(best),
        **{"text": "ab", "finish_reason": "length", "logprobs": [-1.0] * len(best), **fields},
    )  # fmt: skip


def answered(**fields: Any) -> Answer:
    usage = {"prompt_tokens": 1, "completion_tokens": 2}
    usual = {"text": "ab", "token_ids": [3, 4], "prompt_token_ids": [1], "finish_reason": "length", "usage": usage}
    return Answer(**{**usual, **fields})


def test_the_table_counts_what_was_compared_and_what_was_wrong(tmp_path: Path) -> None:
    verdicts = Judge()
    verdicts.check("1 cold", answered(), scores([3, 4]))
    verdicts.note("1 cold", resumes=2)
    with pytest.raises(AssertionError, match="token 1 of 2: got 4, the reference prefers 5 by"):
        verdicts.check("1 cold", answered(), scores([3, 5], [0.0, 2.0]))
    row = verdicts.table.row("1 cold", "16-bit", "LoRA")
    assert (row.requests, row.tokens, row.mismatches, row.resumes) == (2, 2, 1, 2)
    assert verdicts.table.text().splitlines()[-1].split() == ["all", "2", "2", "1", "0", "2", "0"]
    verdicts.table.write(tmp_path / "table.json")
    assert json.loads((tmp_path / "table.json").read_text())[0]["mismatches"] == 1
    assert Table().rows == []


def test_near_ties_are_counted_and_do_not_end_the_comparison() -> None:
    verdict = judge(answered(), scores([9, 4], [5e-4, 0.0]))
    assert (verdict.outcome, verdict.near_ties, verdict.compared) == ("near-tie", 1, 2)
    with pytest.raises(AssertionError, match="token 1 of 2"):
        judge(answered(), scores([9, 8], [5e-4, 5e-3]))
    assert judge(answered(), scores([9, 8], [5e-4, 0.2]), Rule(0.25, 1.0)).near_ties == 2


def test_a_log_probability_gives_away_what_the_token_does_not() -> None:
    """The decoder alone often says the same word, but is not as sure of it."""
    right = scores([3, 4], logprobs=[-0.5, -1.0])
    assert unexplained([], right, Rule(0.15, 0.15)) == []
    assert unexplained([-0.6, -1.1], right, Rule(0.15, 0.15)) == []
    assert unexplained([-0.6, -1.4], right, Rule(0.15, 0.15)) == [1]
    assert unexplained([-0.9, -1.0], scores([3, 9], [0.0, 0.3]), Rule(0.15, 0.15)) == [1]
    with pytest.raises(AssertionError, match=r"log-probability differs by 0\.4"):
        judge(answered(logprobs=[-0.5, -1.4]), right)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"text": "abc"}, "text: got"),
        ({"finish_reason": "stop"}, "finish reason"),
        ({"prompt_token_ids": [1, 1]}, "prompt_token_ids"),
        ({"usage": {"prompt_tokens": 1, "completion_tokens": 3}}, "usage"),
        ({"logprobs": [-1.0]}, "number of"),
        ({"logprobs": [-1.0, -1.1]}, "differs by"),
    ],
)
def test_right_tokens_are_not_enough(fields: dict[str, Any], message: str) -> None:
    judge(answered(), scores([3, 4]))
    with pytest.raises(AssertionError, match=message):
        judge(answered(**fields), scores([3, 4]))


class Engine(BaseHTTPRequestHandler):
    """Answers every request with six events."""

    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["content-length"]))
        events = b"".join(b"data: %d\n\n" % number for number in range(6))
        self.send_response(200)
        self.send_header("content-length", str(len(events)))
        self.end_headers()
        self.wfile.write(events)

    def log_message(self, *_: Any) -> None:
        """Say nothing."""


@pytest.fixture
def proxied() -> Iterator[tuple[Proxies, CuttingProxy]]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Engine)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    with Proxies() as lines:
        proxy = lines.make(cuts=True)
        proxy.target = server.server_port
        yield lines, proxy
    server.shutdown()
    server.server_close()


def read(proxy: CuttingProxy, request_id: str) -> bytes:
    connection = http.client.HTTPConnection("127.0.0.1", proxy.port, timeout=10)
    try:
        connection.request("POST", "/", b"{}", {"x-request-id": request_id})
        return connection.getresponse().read()
    except http.client.IncompleteRead as error:
        return error.partial
    except (ConnectionError, http.client.BadStatusLine):
        return b"nothing"
    finally:
        connection.close()


def test_a_chosen_request_is_cut_after_exactly_so_many_events(proxied: tuple[Proxies, CuttingProxy]) -> None:
    lines, proxy = proxied
    lines.plan.plan("chosen", [2, 0])
    assert read(proxy, "another").count(b"data") == 6
    assert read(proxy, "chosen") == b"data: 0\n\ndata: 1\n\n"
    assert read(proxy, "chosen") == b"nothing"
    assert read(proxy, "chosen").count(b"data") == 6
    assert lines.plan.done == 2


def test_engines_never_get_each_others_ports_nor_those_of_outgoing_connections() -> None:
    """A port is looked up long before its engine binds it."""
    low = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    given = [port for count in (1, 20, 1, 20, 1) * 20 for port in free_ports(count)]
    assert len(set(given)) == len(given)
    assert max(given) < low


def test_a_port_in_use_is_not_given(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]
        monkeypatch.setattr(engines, "_PORTS", range(port, port + 20))
        assert port not in [free_ports(1)[0] for _ in range(8)]


ENDED = """
from support.engines import tidy_up_on_sigterm
import signal
tidy_up_on_sigterm()
try:
    print("started", flush=True)
    signal.pause()
finally:
    print("engines stopped", flush=True)
"""


def test_a_suite_that_is_terminated_stops_its_engines_first() -> None:
    path = os.pathsep.join(str(engines.ROOT / room) for room in ("e2e", "e2e/cluster", "crds"))
    with subprocess.Popen(
        [sys.executable, "-c", ENDED], env={**os.environ, "PYTHONPATH": path}, stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL, text=True,
    ) as suite:  # fmt: skip
        assert suite.stdout is not None
        assert suite.stdout.readline() == "started\n"
        suite.terminate()
        assert suite.stdout.read() == "engines stopped\n"
