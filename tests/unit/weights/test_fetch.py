"""``fetch``: a folder is whole and checked, or it is not there; and nothing is loaded twice."""

from __future__ import annotations

import errno
import os
import shutil
import signal
import subprocess
import sys
import time
from collections import namedtuple
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest
from huggingface_hub import file_download

from sunfleet_api.worker import ResolverReport
from sunfleet_fakes.checkpoints import adapter_files, model_files, tensors, write
from sunfleet_fakes.hub.server import FakeHub
from sunfleet_weights.hold import MARKER

Run = Callable[..., tuple[int, ResolverReport]]
BIG = 24 << 20  # the client counts pieces of 10 MiB


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.name != MARKER}


def without_docs(files: dict[str, bytes]) -> dict[str, bytes]:
    return {name: raw for name, raw in files.items() if name != "README.md"}


@pytest.mark.parametrize("files", [model_files(1), adapter_files(1, "sha256:abc")])
def test_the_folder_holds_what_an_engine_needs(hub: FakeHub, run: Run, tmp_path: Path, files: dict[str, bytes]) -> None:
    commit = hub.commit("acme/base", files)
    code, report = run("fetch", "hf://acme/base", "--to", str(tmp_path / "model"))
    assert (code, report.resolved_uri) == (0, f"hf://acme/base@{commit}")
    assert contents(tmp_path / "model") == without_docs(files)


def test_a_second_run_loads_nothing(hub: FakeHub, run: Run, tmp_path: Path) -> None:
    hub.commit("acme/base", model_files(1))
    for _ in range(2):
        assert run("fetch", "hf://acme/base", "--to", str(tmp_path / "model"))[0] == 0
    assert len(hub.downloads("config.json")) == 1


def test_another_revision_replaces_every_file(hub: FakeHub, run: Run, tmp_path: Path) -> None:
    hub.commit("acme/base", {**model_files(1), "vocab.txt": b"old"})
    run("fetch", "hf://acme/base", "--to", str(tmp_path / "model"))
    hub.commit("acme/base", model_files(2))
    run("fetch", "hf://acme/base", "--to", str(tmp_path / "model"))
    assert contents(tmp_path / "model") == without_docs(model_files(2))


def test_a_cut_connection_is_taken_up_where_it_broke(
    hub: FakeHub, run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The client waits a second before it goes on.
    monkeypatch.setattr(file_download, "time", SimpleNamespace(**{**vars(time), "sleep": lambda _: None}))
    hub.commit("acme/base", {**model_files(1), "model.safetensors": tensors(1, BIG)})
    hub.state.cut["model.safetensors"] = 2
    assert run("fetch", "hf://acme/base", "--to", str(tmp_path / "model"))[0] == 0
    assert (tmp_path / "model/model.safetensors").read_bytes() == tensors(1, BIG)
    ranges = hub.downloads("model.safetensors")
    assert len(ranges) == 3
    assert all(span.startswith("bytes=") for span in ranges[1:])


def test_a_damaged_file_is_loaded_again(hub: FakeHub, run: Run, tmp_path: Path) -> None:
    hub.commit("acme/base", model_files(1))
    hub.state.damage = {"model.safetensors": 1, "config.json": 1}
    assert run("fetch", "hf://acme/base", "--to", str(tmp_path / "model"))[0] == 0
    assert contents(tmp_path / "model") == without_docs(model_files(1))


def test_a_file_that_stays_damaged_fails_and_leaves_nothing_to_load(hub: FakeHub, run: Run, tmp_path: Path) -> None:
    hub.commit("acme/base", model_files(1))
    hub.state.damage = {"model.safetensors": 99}
    code, report = run("fetch", "hf://acme/base", "--to", str(tmp_path / "model"))
    assert (code, report.error_reason) == (1, "ChecksumMismatch")
    assert [path.name for path in (tmp_path / "model").iterdir()] == [".sunfleet-partial"]


def test_files_of_an_interrupted_run_are_not_loaded_again(hub: FakeHub, run: Run, tmp_path: Path) -> None:
    hub.commit("acme/base", model_files(1))
    hub.state.damage = {"model.safetensors": 2}
    run("fetch", "hf://acme/base", "--to", str(tmp_path / "model"))
    assert run("fetch", "hf://acme/base", "--to", str(tmp_path / "model"))[0] == 0
    assert len(hub.downloads("tokenizer.json")) == 1


def test_sigterm_ends_a_download_at_once(hub: FakeHub, tmp_path: Path) -> None:
    hub.commit("acme/base", model_files(1))
    hub.state.seconds = 30
    command = [sys.executable, "-m", "sunfleet_weights", "fetch", "hf://acme/base", "--to", str(tmp_path / "model")]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    with subprocess.Popen(command, env=environment, stderr=subprocess.DEVNULL) as process:
        deadline = time.monotonic() + 30
        while not hub.state.requests:
            assert time.monotonic() < deadline
            time.sleep(0.05)
        process.send_signal(signal.SIGTERM)
        assert process.wait(5) == 128 + signal.SIGTERM


def test_a_full_volume_is_said_before_loading(
    hub: FakeHub, run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    usage = namedtuple("usage", "total used free")
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage(1, 1, 0))
    hub.commit("acme/base", model_files(1))
    code, report = run("fetch", "hf://acme/base", "--to", str(tmp_path / "model"))
    assert (code, report.error_reason) == (1, "NotEnoughSpace")
    assert hub.downloads("model.safetensors") == []


@pytest.mark.parametrize(
    ("number", "reason", "mend"),
    [
        (errno.ENOSPC, "NotEnoughSpace", "more room"),
        (errno.EDQUOT, "NotEnoughSpace", "more room"),
        (errno.EROFS, "TargetInUse", "writable for user 65532"),
        (errno.EIO, "DiskFailed", "look at the volume"),
    ],
)
def test_what_a_disk_refuses_on_the_way_is_a_report_like_any_other(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int, reason: str, mend: str
) -> None:
    def refused(_: Path, target: Path) -> None:
        raise OSError(number, os.strerror(number), str(target))

    folder = write(tmp_path / "source", model_files(1))
    monkeypatch.setattr(shutil, "copyfile", refused)
    code, report = run("fetch", f"file://{folder}", "--to", str(tmp_path / "model"))
    assert (code, report.error_reason) == (1, reason)
    assert str(tmp_path / "model") in report.error_message
    assert mend in report.error_message


def test_a_file_that_cannot_be_read_is_the_sources_fault_and_not_the_targets(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(source: Path, _: Path) -> None:
        raise PermissionError(errno.EACCES, "Permission denied", str(source))

    folder = write(tmp_path / "source", model_files(1))
    monkeypatch.setattr(shutil, "copyfile", refused)
    code, report = run("fetch", f"file://{folder}", "--to", str(tmp_path / "model"))
    assert (code, report.error_reason) == (1, "InvalidCheckpoint")
    assert "readable by user 65532" in report.error_message


def test_the_same_weights_in_a_second_layout_are_left_out(hub: FakeHub, run: Run, tmp_path: Path) -> None:
    extra = {"consolidated.safetensors": tensors(1), "pytorch_model.bin": b"x", "original/params.json": b"{}"}
    hub.commit("acme/base", {**model_files(1), **extra})
    run("fetch", "hf://acme/base", "--to", str(tmp_path / "model"))
    assert contents(tmp_path / "model") == without_docs(model_files(1))


def test_a_folder_is_copied_and_a_claim_never_is(run: Run, tmp_path: Path) -> None:
    folder = write(tmp_path / "source", model_files(1))
    assert run("fetch", f"file://{folder}", "--to", str(tmp_path / "model"))[0] == 0
    assert contents(tmp_path / "model") == without_docs(model_files(1))
    code, report = run("fetch", "pvc://models/base", "--to", str(tmp_path / "model"))
    assert (code, report.error_reason) == (1, "UnsupportedScheme")


def test_files_that_no_fetch_wrote_are_left_alone(hub: FakeHub, run: Run, tmp_path: Path) -> None:
    hub.commit("acme/base", model_files(1))
    (tmp_path / "home").mkdir()
    (tmp_path / "home/thesis.tex").write_text("years of work")
    code, report = run("fetch", "hf://acme/base", "--to", str(tmp_path / "home"))
    assert (code, report.error_reason) == (1, "TargetInUse")
    assert "thesis.tex" in report.error_message
    assert [path.name for path in (tmp_path / "home").iterdir()] == ["thesis.tex"]


def test_what_somebody_puts_beside_a_checkpoint_outlives_the_next_revision(
    hub: FakeHub, run: Run, tmp_path: Path
) -> None:
    hub.commit("acme/base", {**model_files(1), "vocab.txt": b"old"})
    run("fetch", "hf://acme/base", "--to", str(tmp_path / "model"))
    (tmp_path / "model/notes.txt").write_text("mine")
    hub.commit("acme/base", model_files(2))
    assert run("fetch", "hf://acme/base", "--to", str(tmp_path / "model"))[0] == 0
    assert contents(tmp_path / "model") == {**without_docs(model_files(2)), "notes.txt": b"mine"}


def test_a_run_killed_while_files_move_into_place_is_finished_by_the_next(
    hub: FakeHub, run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hub.commit("acme/base", {**model_files(1), "vocab.txt": b"old"})
    run("fetch", "hf://acme/base", "--to", str(tmp_path / "model"))
    hub.commit("acme/base", model_files(2))
    replace, moves = Path.replace, iter(range(99))

    def killed(self: Path, target: Path) -> Path:
        if next(moves) == 3:  # the marker has gone aside and knows of both, and one file has moved
            raise KeyboardInterrupt
        return replace(self, target)

    with monkeypatch.context() as patched:
        patched.setattr(Path, "replace", killed)
        with pytest.raises(KeyboardInterrupt):
            run("fetch", "hf://acme/base", "--to", str(tmp_path / "model"))
    assert run("fetch", "hf://acme/base", "--to", str(tmp_path / "model"))[0] == 0
    assert contents(tmp_path / "model") == without_docs(model_files(2))


def test_files_of_a_run_that_was_killed_before_it_was_done_go_with_the_next_revision(
    hub: FakeHub, run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hub.commit("acme/base", model_files(1))
    run("fetch", "hf://acme/base", "--to", str(tmp_path / "model"))
    hub.commit("acme/base", {**model_files(2), "vocab.txt": b"of the second alone"})
    replace = Path.replace

    def killed(self: Path, target: Path) -> Path:
        if target.name == MARKER:  # every file has moved
            raise KeyboardInterrupt
        return replace(self, target)

    with monkeypatch.context() as patched:
        patched.setattr(Path, "replace", killed)
        with pytest.raises(KeyboardInterrupt):
            run("fetch", "hf://acme/base", "--to", str(tmp_path / "model"))
    assert (tmp_path / "model/vocab.txt").exists()
    hub.commit("acme/base", model_files(3))
    assert run("fetch", "hf://acme/base", "--to", str(tmp_path / "model"))[0] == 0
    assert contents(tmp_path / "model") == without_docs(model_files(3))
