"""What shells and kubectl offer, and that a cluster that does not answer costs no more than the offer."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import click
import pytest
import yaml
from kubernetes.config import kube_config

from sunfleet_cli.commands import completing
from sunfleet_cli.commands.completing import for_kubectl
from sunfleet_cli.main import cli

LIVE: Mapping[str, Sequence[str]] = {"sunmodels": ("maths", "code"), "shareddecoders": ("base",)}


class FakeCluster:
    """Has objects in namespace "team" of context "home"."""

    def __init__(self, context: str | None) -> None:
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
