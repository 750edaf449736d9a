"""docker and buildah are asked for the same build; the host's network settings reach it as secrets only."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from sunfleet_cluster.images.builders import Buildah, BuildRequest, Docker
from sunfleet_cluster.images.network import BUNDLE_IN_BUILD, assignments, build_secrets
from sunfleet_cluster.images.rootfs import PACKAGES, base_ref, rootfs_command
from sunfleet_cluster.images.settings import HostNetwork

REQUEST = BuildRequest(
    dockerfile=Path("router/Dockerfile"),
    context=Path("/tree"),
    ref="localhost/sunfleet/router:1",
    log=Path("/log"),
    args={"VERSION": "1", "BASE_IMAGE": "base:1"},
    secrets={"ca-bundle": Path("/ca.pem")},
)
VARIABLES = [str(field.validation_alias) for field in HostNetwork.model_fields.values()]


@pytest.fixture(autouse=True)
def _own_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)


def test_both_builders_get_the_same_file_arguments_and_secrets() -> None:
    shared = [
        "--file", "/tree/router/Dockerfile", "--tag", "localhost/sunfleet/router:1",
        "--build-arg", "BASE_IMAGE=base:1", "--build-arg", "VERSION=1",
        "--secret", "id=ca-bundle,src=/ca.pem", "/tree",
    ]  # fmt: skip
    for command in (Buildah().build_command(REQUEST), Docker().build_command(REQUEST)):
        assert command[-len(shared) :] == shared


def test_buildah_needs_no_registry_and_keeps_layers() -> None:
    command = Buildah().build_command(REQUEST)
    assert {"--pull-never", "--layers"} <= set(command)


def test_indexes_and_authorities_become_secrets(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    bundle = tmp_path / "bundle.pem"
    bundle.touch()
    monkeypatch.setenv("SSL_CERT_FILE", str(bundle))
    monkeypatch.setenv("UV_DEFAULT_INDEX", "https://user:pass word@index.example/simple")
    with build_secrets(HostNetwork()) as secrets:
        assert secrets["ca-bundle"] == bundle
        environment = secrets["network-env"]
        program = 'set -a; . "$0"; printf "%s\\n" "$SSL_CERT_FILE" "$UV_DEFAULT_INDEX" "$PIP_INDEX_URL"'
        shell = subprocess.run(["sh", "-c", program, environment], capture_output=True, text=True, check=True)
        assert environment.parent.stat().st_mode & 0o077 == 0
    url = "https://user:pass word@index.example/simple"
    assert shell.stdout.splitlines() == [BUNDLE_IN_BUILD, url, url]
    assert not environment.exists()


def test_an_index_of_pip_is_not_overwritten_by_that_of_uv(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("UV_DEFAULT_INDEX", "corp=https://uv.example/simple?a=b")
    assert HostNetwork().index_variables["PIP_INDEX_URL"] == "https://uv.example/simple?a=b"
    monkeypatch.setenv("PIP_INDEX_URL", "https://pip.example/simple")
    assert HostNetwork().index_variables["PIP_INDEX_URL"] == "https://pip.example/simple"


def test_a_bundle_that_is_not_there_is_not_used(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "none.pem"))
    assert HostNetwork().ca_bundle != tmp_path / "none.pem"


def test_values_are_quoted_for_the_shell() -> None:
    assert assignments({"B": "x", "A": "it's $HOME"}) == "A='it'\"'\"'s $HOME'\nB=x\n"


def test_the_base_holds_what_the_dockerfiles_and_the_engine_need() -> None:
    command = rootfs_command(Path("/base.tar"))
    assert command[-2:] == ["bookworm", "/base.tar"]
    assert {"python3", "python3-venv", "libnuma1", "libgomp1"} <= set(PACKAGES)
    assert base_ref() == base_ref()


def test_a_mirror_comes_last() -> None:
    assert rootfs_command(Path("/base.tar"), "http://mirror.example/debian")[-1] == "http://mirror.example/debian"
