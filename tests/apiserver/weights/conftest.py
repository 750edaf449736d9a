"""A real S3 server (versitygw) over a folder of this machine."""

from __future__ import annotations

import json
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from obstore.store import S3Store

from sunfleet_api.worker import ResolverReport
from sunfleet_cluster import programs
from sunfleet_cluster.progress import Progress
from sunfleet_cluster.state import StateFolder
from sunfleet_weights.cli import main

BUCKET = "acme"
_KEY, _SECRET = "sunfleet-test", "sunfleet-test-secret"
_STARTS_WITHIN = 20.0  # seconds

Run = Callable[..., tuple[int, ResolverReport]]


@pytest.fixture(scope="session")
def s3_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Where the server answers, with one bucket."""
    folder = StateFolder.from_env().bin
    programs.build([programs.OBJECT_STORE], folder, Progress())
    data, about = tmp_path_factory.mktemp("objects"), tmp_path_factory.mktemp("about")
    (data / BUCKET).mkdir()
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    environment = {"ROOT_ACCESS_KEY": _KEY, "ROOT_SECRET_KEY": _SECRET, "VGW_REGION": "us-east-1"}
    # What it knows of objects beside their bytes goes into files: not every file system has extended attributes.
    command: list[str | Path] = [
        folder / "versitygw", "--port", f"127.0.0.1:{port}", "--quiet", "posix", "--sidecar", about, data,
    ]  # fmt: skip
    with subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE) as process:
        try:
            _wait_until_it_answers(process, port)
            yield f"http://127.0.0.1:{port}"
        finally:
            process.kill()


def _wait_until_it_answers(process: subprocess.Popen[bytes], port: int) -> None:
    deadline = time.monotonic() + _STARTS_WITHIN
    while True:
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
        except OSError:
            if process.poll() is not None or time.monotonic() > deadline:
                assert process.stderr is not None
                process.kill()
                pytest.fail(f"versitygw does not start: {process.stderr.read().decode()[-2000:]}")
            time.sleep(0.05)
        else:
            return


@pytest.fixture
def bucket(s3_url: str, monkeypatch: pytest.MonkeyPatch) -> S3Store:
    """The bucket; the environment is that of a pod whose Secret opens it."""
    monkeypatch.setenv("AWS_ENDPOINT_URL", s3_url)
    monkeypatch.setenv("AWS_REGION", "us-east-1")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", _KEY)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", _SECRET)
    return S3Store(BUCKET, client_options={"allow_http": True})


@pytest.fixture
def run(tmp_path: Path) -> Run:
    """Run the weights' command; its exit code and report."""

    def call(*arguments: str) -> tuple[int, ResolverReport]:
        report = tmp_path / "report.json"
        code = main([*arguments, "--report", str(report)])
        return code, ResolverReport.model_validate(json.loads(report.read_bytes()))

    return call
