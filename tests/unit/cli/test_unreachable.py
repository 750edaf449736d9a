"""An API server that is not there, a kubeconfig that is none: one line that says so, and no traceback."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner, Result
from kubernetes.config import kube_config

from sunfleet_cli.main import cli

COMMANDS = {
    "status": ["status"],
    "status of a namespace": ["status", "-n", "team"],
    "explain": ["explain", "sun/maths"],
    "top": ["top"],
    "chat with a SunModel": ["chat", "sun/maths", "hello"],
    "chat through the API server": ["chat", "maths", "hello"],
}


@pytest.fixture
def nobody() -> Iterator[str]:
    """A port that is held, and refuses."""
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        yield f"http://127.0.0.1:{held.getsockname()[1]}"


@pytest.fixture
def kubeconfig(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    file = tmp_path / "config"
    monkeypatch.setattr(kube_config, "KUBE_CONFIG_DEFAULT_LOCATION", str(file))
    return file


def write(file: Path, server: str) -> None:
    content = {
        "apiVersion": "v1", "kind": "Config", "current-context": "c",
        "clusters": [{"name": "c", "cluster": {"server": server}}], "users": [{"name": "u", "user": {}}],
        "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
    }  # fmt: skip
    file.write_text(yaml.safe_dump(content))


def ended(*words: str) -> Result:
    result = CliRunner().invoke(cli, words)
    assert isinstance(result.exception, SystemExit), result.exception
    assert result.exit_code == 1
    return result


@pytest.mark.parametrize("command", COMMANDS)
def test_an_api_server_that_does_not_answer_is_one_line(kubeconfig: Path, nobody: str, command: str) -> None:
    write(kubeconfig, nobody)
    said = ended(*COMMANDS[command]).output
    assert "the API server does not answer: " in said
    assert "refused" in said
    assert "Max retries" not in said


def test_the_doctor_says_so_too(kubeconfig: Path, nobody: str) -> None:
    write(kubeconfig, nobody)
    said = ended("doctor").output
    assert "API server" in said
    assert "does not answer: " in said


NO_KUBECONFIG = [
    None, b"a: [", b"{}", b"[]", b"3", b"\xff\xfe\xff", b"{contexts: [3], clusters: [], users: []}", b"[" * 100_000,
]  # fmt: skip


@pytest.mark.parametrize("content", NO_KUBECONFIG, ids=lambda content: str(content)[:9])
@pytest.mark.parametrize("command", [["status"], ["explain", "sun/maths"], ["top"], ["doctor"]], ids=" ".join)
def test_a_kubeconfig_that_is_none_is_one_line(kubeconfig: Path, content: bytes | None, command: list[str]) -> None:
    if content is not None:
        kubeconfig.write_bytes(content)
    assert "no cluster to ask: " in ended(*command).output
