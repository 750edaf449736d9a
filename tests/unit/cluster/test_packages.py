"""Debian packages: only what is missing, and no service of theirs runs."""

import io
from pathlib import Path

import pytest

from sunfleet_cluster import packages
from sunfleet_cluster.progress import Progress


def test_nothing_that_is_installed_starts_now_or_with_the_next_boot(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    said: list[str] = []
    lacking = iter([["containerd", "runc"], []])
    monkeypatch.setattr(packages, "run", lambda *command, **_: said.append(" ".join(command)))
    monkeypatch.setattr(packages, "missing", lambda: next(lacking))
    monkeypatch.setattr(packages, "_SYSTEMD", tmp_path)
    packages.ensure(Progress(io.StringIO()))
    update, install, disable = said
    assert update.startswith("apt-get update")
    assert "SYSTEMD_OFFLINE=1" in install
    assert install.endswith(" containerd runc")
    assert disable == "systemctl disable --quiet containerd.service"


def test_a_service_that_was_there_before_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packages, "missing", list)
    monkeypatch.setattr(packages, "run", lambda *_: pytest.fail("there is nothing to do"))
    packages.ensure(Progress(io.StringIO()))
