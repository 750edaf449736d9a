"""A hub on a real socket, and the command line under test."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from sunfleet_api.worker import ResolverReport
from sunfleet_fakes.hub.server import FakeHub
from sunfleet_weights.cli import main

Run = Callable[..., tuple[int, ResolverReport]]


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeHub]:
    with FakeHub() as server:
        monkeypatch.setenv("HF_ENDPOINT", server.url)
        monkeypatch.delenv("HF_TOKEN", raising=False)
        monkeypatch.setenv("NO_PROXY", "127.0.0.1,localhost")
        yield server


@pytest.fixture
def run(tmp_path: Path) -> Run:
    """Run the command; its exit code and report."""

    def call(*arguments: str) -> tuple[int, ResolverReport]:
        report = tmp_path / "report.json"
        code = main([*arguments, "--report", str(report)])
        raw = report.read_bytes()
        assert len(raw) <= 4096
        return code, ResolverReport.model_validate(json.loads(raw))

    return call
