"""Settings and a fleet's file that cannot be used are refused by name, and the process says so and ends."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from sunfleet_router.__main__ import main
from sunfleet_router.discovery import static
from sunfleet_router.settings import ConfigError


def test_a_variable_that_cannot_be_used_is_named(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("SUNFLEET_ROUTER_METRICS_PORT", "many")
    assert main([]) == 2
    said = capsys.readouterr().err
    assert "SUNFLEET_ROUTER_METRICS_PORT: must be a valid integer" in said
    assert "pydantic" not in said


@pytest.mark.parametrize("flag", ["--port", "--metrics-port", "--admin-port"])
def test_a_port_that_is_taken_ends_the_process_with_what_to_do_about_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], flag: str
) -> None:
    monkeypatch.setenv("SUNFLEET_ROUTER_AUTHENTICATION", "disabled")
    kubeconfig = tmp_path / "kubeconfig"
    kubeconfig.write_text("{clusters: [], contexts: [], users: []}")
    with socket.create_server(("127.0.0.1", 0)) as other:
        taken = other.getsockname()[1]
        ports = {"--port": 0, "--metrics-port": 0, "--admin-port": 0, flag: taken}
        flags = [word for name, number in ports.items() for word in (name, str(number))]
        assert main(["--host", "127.0.0.1", "--kubeconfig", str(kubeconfig), *flags]) == 2
    said = capsys.readouterr().err
    assert f"port {taken} cannot be opened: Address already in use." in said
    assert f"(or {flag})" in said
    assert "Traceback" not in said


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("task: []\n", "task: is no field here: did you mean tasks?"),
        ("tasks: [{}]\n", "tasks[0].name: is missing: add it"),
        ("- a\n", "the whole: must be a mapping of fields"),
    ],
)
def test_what_is_wrong_with_the_fleets_file_is_said_by_field(tmp_path: Path, text: str, said: str) -> None:
    file = tmp_path / "fleet.yaml"
    file.write_text(text)
    with pytest.raises(ConfigError) as refused:
        static.load(file)
    assert said in str(refused.value)
    assert str(refused.value).startswith(f"{file}: ")
    assert "pydantic" not in str(refused.value)


def test_a_fleets_file_that_is_no_text_is_refused_too(tmp_path: Path) -> None:
    file = tmp_path / "fleet.yaml"
    file.write_bytes(b"\xff\xfe\x00\xff")
    with pytest.raises(ConfigError):
        static.load(file)
