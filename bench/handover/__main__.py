"""SUN's two legs against vLLM's ordinary prefill/decode flow, side by side on pairs of the same engine and weights.

``PYTHONPATH=bench:crds:e2e:e2e/cluster python -m handover [--requests N] [--prompt TOKENS] [--output TOKENS]``

Both pairs run all the time and take turns, request by request, so that what else the machine does hits both alike. A
figure is the median over requests; what counts is the ratio. Four engines: 8 GiB of memory.
"""

from __future__ import annotations

import argparse
import http.client
import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from sunfleet_api import wire
from sunfleet_cluster.state import StateFolder
from support.engines import BLOCK, ROOT, Engine, free_ports, wait_for_status

Json = dict[str, Any]
SALT = "b" * 32


@dataclass(frozen=True)
class Timed:
    """One request, in seconds. ``first``: until the first token's event; ``each``: between tokens, on average."""

    first: float
    each: float


@dataclass(frozen=True)
class Flow:
    """A pair of servers by port, and which hand-over they speak."""

    name: str
    prefill: int
    decode: int

    def ask(self, prompt: list[int], output: int) -> Timed:
        """Both legs of a greedy completion, the second one streamed."""
        began = time.perf_counter()
        body: Json = {
            "model": wire.ENGINE_MODEL, "prompt": prompt, "max_tokens": output, "temperature": 0, "ignore_eos": True,
            "cache_salt": SALT,
        }  # fmt: skip
        params = {"do_remote_decode": True, "do_remote_prefill": False}
        first_leg = {**body, "max_tokens": 1, "return_token_ids": True, "kv_transfer_params": params}
        answer = json.loads(b"".join(post(self.prefill, first_leg)))
        choice, transfer = answer["choices"][0], answer["kv_transfer_params"]
        if self.name == "sun":
            transfer = wire.decode_params(transfer, choice["prompt_token_ids"], choice["token_ids"], "bench")
            transfer[wire.KEY_PROGRESS] = True
        times = [
            time.perf_counter()
            for line in post(self.decode, {**body, "stream": True, "kv_transfer_params": transfer})
            if line.startswith(b"data: {")
        ]
        if len(times) != output:
            raise RuntimeError(f"{self.name}: {len(times)} events for {output} tokens")
        # Before its first event an ordinary decoder computes one token more than SUN's, which has it already.
        return Timed(times[0] - began, (times[-1] - times[0]) / (len(times) - 1))


def post(port: int, body: Json) -> Iterator[bytes]:
    """Lines of the answer as they come."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=120)
    try:
        connection.request("POST", "/v1/completions", json.dumps(body), {"content-type": "application/json"})
        answer = connection.getresponse()
        if answer.status != 200:
            raise RuntimeError(f"HTTP {answer.status}: {answer.read()[:500]!r}")
        yield from answer
    finally:
        connection.close()


@contextmanager
def sun_pair(state: StateFolder, folder: Path) -> Iterator[Flow]:
    """Our engines with the base as both modules."""
    python, base = state.engine / "bin/python", state.models / "base"
    pair = [Engine(role, role, base, folder / role, python) for role in ("prefill", "decode")]
    with ExitStack() as stack:
        for engine in pair:
            engine.start()
            stack.callback(engine.stop)
        for engine in pair:
            engine.wait_ready()
        yield Flow("sun", pair[0].port, pair[1].port)


@contextmanager
def ordinary_pair(state: StateFolder, folder: Path) -> Iterator[Flow]:
    """vLLM's own servers and scheduler."""
    with ExitStack() as stack:
        ports = [_stock(stack, state, folder / role, role) for role in ("kv_producer", "kv_consumer")]
        yield Flow("ordinary", *ports)


def _stock(stack: ExitStack, state: StateFolder, folder: Path, role: str) -> int:
    folder.mkdir(parents=True)
    (folder / "model").symlink_to(state.models / "base")
    port, side_channel = free_ports(1)[0], free_ports(1)[0]
    transfer = {
        "kv_connector": "OrdinaryConnector", "kv_connector_module_path": "handover.ordinary_connector",
        "kv_role": role, "kv_buffer_device": "cpu",
    }  # fmt: skip
    command = [
        str(state.engine / "bin/python"), "-m", "vllm.entrypoints.openai.api_server", "--model", "model",
        "--served-model-name", wire.ENGINE_MODEL, "--host", "127.0.0.1", "--port", str(port), "--dtype", "float32",
        "--block-size", str(BLOCK), "--enforce-eager", "--max-model-len", "1024", "--max-num-batched-tokens", "256",
        "--kv-cache-memory-bytes", str(512 << 20), "--enable-prefix-caching", "--disable-uvicorn-access-log",
        "--kv-transfer-config", json.dumps(transfer),
    ]  # fmt: skip
    paths = os.pathsep.join(str(ROOT / room) for room in ("bench", "crds", "worker_images/vllm"))
    env = {
        "PYTHONPATH": paths, "HF_HUB_OFFLINE": "1", "VLLM_NO_USAGE_STATS": "1", "OMP_NUM_THREADS": "1",
        "OMP_WAIT_POLICY": "PASSIVE", "VLLM_CPU_OMP_THREADS_BIND": "nobind", "UCX_TLS": "tcp,shm,self",
        "VLLM_NIXL_SIDE_CHANNEL_HOST": "127.0.0.1", "VLLM_NIXL_SIDE_CHANNEL_PORT": str(side_channel),
        "HOME": str(folder),
    }  # fmt: skip
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(command, cwd=folder, env={**os.environ, **env}, stdout=log, stderr=subprocess.STDOUT)
    stack.callback(process.wait)
    stack.callback(process.terminate)
    wait_for_status(f"http://127.0.0.1:{port}/health", process, folder / "log")
    return port


def measure(flows: list[Flow], requests: int, prompt: int, output: int) -> dict[str, list[Timed]]:
    """``requests`` of every flow, taking turns; each prompt is new to both."""
    rng, timed = random.Random(0), {flow.name: list[Timed]() for flow in flows}  # noqa: S311
    for number in range(requests + 3):
        ids = [rng.randrange(1000, 40000) for _ in range(prompt)]
        for flow in flows if number % 2 else reversed(flows):
            result = flow.ask(ids, output)
            if number >= 3:  # the first ones meet cold engines
                timed[flow.name].append(result)
        print(f"\r{number + 1}/{requests + 3}", end="", file=sys.stderr, flush=True)
    print(file=sys.stderr)
    return timed


def report(timed: dict[str, list[Timed]], given: argparse.Namespace) -> str:
    """A Markdown table with medians in milliseconds and their ratios, and the spread of ratios of neighbours."""
    lines = [
        f"SUN against the ordinary flow, {datetime.now(UTC):%Y-%m-%d}: {given.requests} requests each, prompts of "
        f"{given.prompt}, answers of {given.output} tokens, {os.cpu_count()} cores.",
        "",
        "| | SUN ms | ordinary ms | ratio of medians | median of ratios, request by request |",
        "|---|---|---|---|---|",
    ]
    for label, field in (("TTFT", "first"), ("TPOT", "each")):
        ours, theirs = ([getattr(one, field) * 1000 for one in timed[name]] for name in ("sun", "ordinary"))
        paired = statistics.median(a / b for a, b in zip(ours, theirs, strict=True))
        a, b = statistics.median(ours), statistics.median(theirs)
        lines.append(f"| {label} | {a:.1f} | {b:.1f} | {a / b:.3f} | {paired:.3f} |")
    return "\n".join(lines)


def main() -> None:
    """Start four engines, measure, print the table."""
    parser = argparse.ArgumentParser(prog="python -m handover", description=__doc__)
    parser.add_argument("--requests", type=int, default=40)
    parser.add_argument("--prompt", type=int, default=200)
    parser.add_argument("--output", type=int, default=40)
    given = parser.parse_args()
    state = StateFolder.from_env()
    with tempfile.TemporaryDirectory() as name, ExitStack() as stack:
        sun = stack.enter_context(sun_pair(state, Path(name) / "sun"))
        ordinary = stack.enter_context(ordinary_pair(state, Path(name) / "ordinary"))
        print(report(measure([sun, ordinary], given.requests, given.prompt, given.output), given))


if __name__ == "__main__":
    main()
