"""The engine's own servers, without anything of ours: the reference for whatever the OpenAI API can be asked for, and
the ordinary prefill/decode flow that SUN must not be mistaken for.
"""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from sunfleet_api import wire
from support import device
from support.engines import BLOCK, MAX_MODEL_LEN, ROOT, STEP_TOKENS, end, free_ports, wait_for_status
from support.local_fleet import LocalFleet

TASK = "same"
PARSERS = {"enable-auto-tool-choice": "", "tool-call-parser": "hermes"}  # extra arguments of every engine here
KV_CACHE_BYTES = 512 << 20


@dataclass(frozen=True)
class Servers:
    """Where the same request gets the same answer."""

    fleet: LocalFleet
    stock_url: str

    @property
    def sunfleet_url(self) -> str:
        return self.fleet.router.url


@dataclass(frozen=True)
class StockServer:
    url: str
    pid: int  # of the API server, the parent of the engine's other processes


@contextmanager
def stock_server(
    python: Path, weights: Path, folder: Path, flags: Mapping[str, str], env: Mapping[str, str] | None = None
) -> Iterator[StockServer]:
    """The engine's own server, ready. ``flags``: more arguments, or others than here."""
    folder.mkdir(parents=True)
    # A relative path: engines that hand KV over to each other compare it as a string.
    (folder / "model").symlink_to(weights)
    port = free_ports(1)[0]
    everything: dict[str, str] = {
        "model": "model", "host": "127.0.0.1", "port": str(port), "dtype": "float32", "block-size": str(BLOCK),
        "max-model-len": str(MAX_MODEL_LEN), "kv-cache-memory-bytes": str(KV_CACHE_BYTES),
        "generation-config": "vllm", "disable-uvicorn-access-log": "", **flags,
    }  # fmt: skip
    everything |= device.engine_flags(device.chosen(), everything["dtype"])
    if device.chosen() == "cpu":
        everything["enforce-eager"] = ""  # as engine pods on a CPU are
    words = [word for name, value in everything.items() for word in (f"--{name}", value) if word]
    rooms = os.pathsep.join(str(ROOT / room) for room in ("e2e", "crds", "worker_images/vllm"))
    quiet = {
        "PYTHONPATH": rooms,
        "HF_HUB_OFFLINE": "1", "VLLM_NO_USAGE_STATS": "1", "OMP_NUM_THREADS": "1", "OMP_WAIT_POLICY": "PASSIVE",
        "VLLM_CPU_OMP_THREADS_BIND": "nobind", "HOME": str(folder), **(env or {}),
    }  # fmt: skip
    command = [str(python), "-m", "support.patient_server", *words]
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(
            command, cwd=folder, env={**os.environ, **quiet}, stdout=log, stderr=subprocess.STDOUT,
            start_new_session=True,  # as engines of Sunfleet have: the kernel shares the cores out by session
        )  # fmt: skip
    try:
        url = f"http://127.0.0.1:{port}"
        wait_for_status(f"{url}/health", process, folder / "log")
        yield StockServer(url, process.pid)
    finally:
        end(process)


@contextmanager
def ordinary_server(
    python: Path,
    weights: Path,
    folder: Path,
    role: str,
    *,
    flags: Mapping[str, str] | None = None,
    connector: Mapping[str, int] | None = None,
) -> Iterator[StockServer]:
    """One side of vLLM's own prefill/decode flow, ready. ``role``: ``kv_producer`` or ``kv_consumer``; ``connector``:
    extra settings of :mod:`support.ordinary_connector`.
    """
    transfer = {
        "kv_connector": "OrdinaryConnector", "kv_connector_module_path": "support.ordinary_connector",
        "kv_role": role, "kv_buffer_device": device.chosen(), "kv_connector_extra_config": dict(connector or {}),
    }  # fmt: skip
    given = {
        "served-model-name": wire.ENGINE_MODEL, "max-num-batched-tokens": str(STEP_TOKENS),
        "enable-prefix-caching": "", "kv-transfer-config": json.dumps(transfer), **(flags or {}),
    }  # fmt: skip
    env = {
        "UCX_TLS": "tcp,shm,self",
        "VLLM_NIXL_SIDE_CHANNEL_HOST": "127.0.0.1",
        "VLLM_NIXL_SIDE_CHANNEL_PORT": str(free_ports(1)[0]),
    }
    with stock_server(python, weights, folder, given, env) as server:
        yield server
