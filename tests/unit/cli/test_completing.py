"""What shells and kubectl offer, and that a cluster that does not answer costs no more than the offer."""

from __future__ import annotations

import logging
import shutil
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from time import monotonic
from typing import Any

import click
import pytest
import yaml
from kubernetes.config import kube_config

from sunfleet_cli.cluster import Cluster, current_namespace
from sunfleet_cli.commands import completing
from sunfleet_cli.commands.completing import for_kubectl
from sunfleet_cli.main import cli

LIVE: Mapping[str, Sequence[str]] = {"sunmodels": ("maths", "code"), "shareddecoders": ("base",)}


class FakeCluster:
    """Has objects in namespace "team" of context "home"."""

    def __init__(self, context: str | None, *, retries: int) -> None:
        assert retries == 0
        if context == "nowhere":
            raise click.ClickException("no cluster to ask")
        self.context = context

    def every(self, plural: str, namespace: str, *, newer: bool, wait: float) -> list[dict[str, Any]]:
        assert newer
        assert wait <= 3
        found = LIVE.get(plural, ()) if namespace == "team" else ()
        return [{"metadata": {"name": name}} for name in found]


@pytest.fixture(autouse=True)
def _cluster(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(completing, "Cluster", FakeCluster)
    monkeypatch.setattr(completing, "current_namespace", lambda context: "elsewhere" if context == "away" else "team")


CASES: dict[str, tuple[Sequence[str], Sequence[str]]] = {
    "a command": (["expl"], ["explain", ":4"]),
    "a choice": (["status", "-o", "y"], ["yaml", ":4"]),
    "every object": (["explain", ""], ["sun/maths", "sun/code", "sdec/base", ":4"]),
    "objects of a kind": (["explain", "sun/m"], ["sun/maths", ":4"]),
    "a kind as it was begun": (["explain", "shareddecoder/"], ["shareddecoder/base", ":4"]),
    "objects of a namespace that was said before": (["explain", "-n", "other", "sun/"], [":4"]),
    "objects of a context's namespace": (["explain", "--context", "away", "sun/"], [":4"]),
    "no cluster": (["explain", "--context", "nowhere", ""], [":4"]),
    "a task to talk to": (["chat", "sun/c"], ["sun/code", ":4"]),
    "a file": (["simulate", "--trace", ""], [":0"]),
}


@pytest.mark.parametrize("case", CASES, ids=str)
def test_kubectl_is_offered_what_fits(case: str) -> None:
    words, expected = CASES[case]
    assert [line.partition("\t")[0] for line in for_kubectl(cli, words)] == list(expected)


def test_contexts_come_from_the_kubeconfig_and_one_that_is_none_offers_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "config"
    monkeypatch.setattr(kube_config, "KUBE_CONFIG_DEFAULT_LOCATION", str(file))
    assert for_kubectl(cli, ["top", "--context", ""]) == [":4"]
    each = [{"name": name, "context": {"cluster": "c", "user": "u"}} for name in ("home", "work")]
    server = [{"name": "c", "cluster": {"server": "https://127.0.0.1:1"}}]
    whole = {"current-context": "home", "clusters": server, "users": [{"name": "u", "user": {}}], "contexts": each}
    file.write_text(yaml.safe_dump(whole))
    assert for_kubectl(cli, ["top", "--context", "w"]) == ["work", ":4"]


@pytest.fixture
def kubeconfig(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Read by what reads it in earnest."""
    file = tmp_path / "config"
    monkeypatch.setattr(kube_config, "KUBE_CONFIG_DEFAULT_LOCATION", str(file))
    monkeypatch.setattr(completing, "Cluster", Cluster)
    monkeypatch.setattr(completing, "current_namespace", current_namespace)
    return file


@pytest.mark.parametrize("content", [b"[]", b"\xff\xfe\xff", b"a: [", b"", b"contexts: 3"], ids=repr)
def test_a_kubeconfig_that_is_none_offers_nothing(kubeconfig: Path, content: bytes) -> None:
    kubeconfig.write_bytes(content)
    for words in (["explain", ""], ["chat", "sun/"], ["top", "--context", ""]):
        assert for_kubectl(cli, words) == [":4"]


def test_an_api_server_that_says_nothing_costs_a_person_seconds(kubeconfig: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:  # the system takes connections; nobody reads
        server = {"server": f"http://127.0.0.1:{silent.getsockname()[1]}"}
        context = {"name": "c", "context": {"cluster": "c", "user": "u"}}
        whole = {"clusters": [{"name": "c", "cluster": server}], "users": [{"name": "u", "user": {}}]}
        kubeconfig.write_text(yaml.safe_dump({"current-context": "c", "contexts": [context], **whole}))
        begun = monotonic()
        assert for_kubectl(cli, ["explain", ""]) == [":4"]
        assert monotonic() - begun < 5


def test_what_the_client_logs_does_not_stand_in_the_line_that_is_typed(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    class Talking(FakeCluster):
        def every(self, plural: str, namespace: str, *, newer: bool, wait: float) -> list[dict[str, Any]]:
            logging.getLogger("urllib3").error("broken")
            return super().every(plural, namespace, newer=newer, wait=wait)

    monkeypatch.setattr(completing, "Cluster", Talking)
    assert "sun/maths" in for_kubectl(cli, ["explain", ""])
    assert not caplog.records
    logging.getLogger("urllib3").error("afterwards")
    assert caplog.messages == ["afterwards"]


def test_bash_completes_with_the_script_that_is_printed() -> None:
    """In a real bash, as a person who presses the key."""
    bash, here = shutil.which("bash"), Path(sys.executable).parent
    assert bash
    script = (
        f'PATH="{here}:$PATH"; source <(sunfleet completion bash); COMP_WORDS=(sunfleet simulate --pol); COMP_CWORD=2; '
        '_sunfleet_completion sunfleet; echo "${COMPREPLY[@]}"'
    )
    done = subprocess.run([bash, "-c", script], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.split() == ["--policy"]
