"""The engine's own server, without anything of ours: the reference for whatever the OpenAI API can be asked for."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from support.engines import BLOCK, MAX_MODEL_LEN, free_ports, wait_for_status
from support.local_fleet import LocalFleet

TASK = "same"
PARSERS = {"enable-auto-tool-choice": "", "tool-call-parser": "hermes"}  # extra arguments of every engine here


@dataclass(frozen=True)
class Servers:
    """Where the same request gets the same answer."""

    fleet: LocalFleet
    stock_url: str

    @property
    def sunfleet_url(self) -> str:
        return self.fleet.router.url


@contextmanager
def stock_server(python: Path, weights: Path, folder: Path) -> Iterator[str]:
    """The engine's own server, without anything of ours; yields its URL."""
    folder.mkdir()
    port = free_ports(1)[0]
    flags = [word for name, value in PARSERS.items() for word in (f"--{name}", value) if word]
    command = [
        str(python), "-m", "vllm.entrypoints.openai.api_server", "--model", str(weights), "--port", str(port),
        "--served-model-name", TASK, "--dtype", "float32", "--block-size", str(BLOCK), "--enforce-eager",
        "--max-model-len", str(MAX_MODEL_LEN), "--kv-cache-memory-bytes", str(512 << 20), "--host", "127.0.0.1",
        "--generation-config", "vllm", "--enable-prompt-tokens-details", *flags,
    ]  # fmt: skip
    env = {
        "HF_HUB_OFFLINE": "1", "VLLM_NO_USAGE_STATS": "1", "OMP_NUM_THREADS": "1", "OMP_WAIT_POLICY": "PASSIVE",
        "VLLM_CPU_OMP_THREADS_BIND": "nobind", "HOME": str(folder),
    }  # fmt: skip
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(command, cwd=folder, env={**os.environ, **env}, stdout=log, stderr=subprocess.STDOUT)
    try:
        url = f"http://127.0.0.1:{port}"
        wait_for_status(f"{url}/health", process, folder / "log")
        yield url
    finally:
        process.terminate()
        process.wait(timeout=60)
