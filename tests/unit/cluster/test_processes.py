"""Processes are recognised by what they say about themselves, and stopped for certain."""

import os
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from sunfleet_cluster import health, processes
from sunfleet_cluster.errors import ClusterError, StartError
from sunfleet_cluster.health import probe, wait_healthy
from sunfleet_cluster.processes import Component, Mark


def sleeper(name: str = "sleeper", seconds: str = "60") -> Component:
    return Component(name, ("sleep", seconds), health="unix:/nowhere")


@contextmanager
def running(component: Component, root: Path) -> Iterator["subprocess.Popen[bytes]"]:
    child = processes.start(component, root, root / "logs", ())
    try:
        wait_until_found(root, component.name)
        yield child
    finally:
        child.kill()
        child.wait()


def wait_until_found(root: Path, name: str) -> None:
    deadline = time.monotonic() + 5
    while name not in processes.find(root):
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_a_started_process_is_found_with_its_key_and_age(tmp_path: Path) -> None:
    with running(sleeper(), tmp_path) as child:
        found = processes.find(tmp_path)["sleeper"]
        assert found.pid == child.pid
        assert found.mark.key == sleeper().key()
        assert 0 <= found.age() < 60


def test_a_process_of_another_folder_is_not_ours(tmp_path: Path) -> None:
    with running(sleeper(), tmp_path):
        assert processes.find(tmp_path / "other") == {}
        assert processes.find(tmp_path.parent) == {}


def test_a_child_that_inherits_the_mark_is_not_the_component(tmp_path: Path) -> None:
    shell = Component("shell", ("dash", "-c", "sleep 60; true"), health="unix:/nowhere")
    with running(shell, tmp_path) as child:
        assert {process.pid for process in processes.every(tmp_path)} == {child.pid}
        os.killpg(child.pid, signal.SIGKILL)


def test_a_process_on_its_way_to_become_the_component_is_found(tmp_path: Path) -> None:
    """`up` may be killed right after it started one: the next must not start a second."""
    prefix = shutil.copy("/bin/sleep", tmp_path / "nsenter")
    mark = Mark(str(tmp_path), "etcd", "etcd", "0123")
    with subprocess.Popen([prefix, "60"], env={**os.environ, processes.MARK: str(mark)}) as child:
        wait_until_found(tmp_path, "etcd")
        assert processes.find(tmp_path)["etcd"].pid == child.pid
        child.kill()


def test_two_of_one_component_are_both_known(tmp_path: Path) -> None:
    with running(sleeper(), tmp_path) as older, running(sleeper(), tmp_path) as younger:
        while len(processes.every(tmp_path)) < 2:
            time.sleep(0.01)
        assert {process.pid for process in processes.every(tmp_path)} == {older.pid, younger.pid}


def test_a_dead_process_is_not_found_before_it_is_buried(tmp_path: Path) -> None:
    with running(sleeper(), tmp_path) as child:
        child.kill()
        os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
        assert processes.find(tmp_path) == {}


def test_a_detached_process_is_nobodys_child(tmp_path: Path) -> None:
    processes.start_detached(sleeper(), tmp_path, tmp_path / "logs", (), "10.0.0.0/8")
    wait_until_found(tmp_path, "sleeper")
    found = processes.find(tmp_path)["sleeper"]
    parent = int(Path(f"/proc/{found.pid}/stat").read_text().rpartition(")")[2].split()[1])
    assert parent != os.getpid()
    processes.stop([found], grace=5)
    assert processes.find(tmp_path) == {}


def test_stopping_insists_when_asking_does_not_help(tmp_path: Path) -> None:
    script = "trap '' TERM; echo ready; while :; do sleep 0.1; done"
    deaf = Component("deaf", ("dash", "-c", script), health="unix:/nowhere")
    with running(deaf, tmp_path):
        log = processes.log_file(tmp_path / "logs", "deaf")
        while "ready" not in log.read_text():
            time.sleep(0.01)
        processes.stop(processes.find(tmp_path).values(), grace=0.2)
        assert processes.find(tmp_path) == {}


def test_a_process_number_that_was_given_to_another_is_left_alone(tmp_path: Path) -> None:
    with running(sleeper(), tmp_path) as child:
        found = processes.find(tmp_path)["sleeper"]
        stale = processes.Process(found.pid, found.mark, found.ticks - 1)
        processes.stop([stale], grace=0.1)
        assert child.poll() is None


def test_the_key_changes_with_the_command_and_with_a_files_content(tmp_path: Path) -> None:
    config = tmp_path / "config"
    config.write_text("a")
    component = Component("x", ("sleep", "1"), "unix:/nowhere", (config,))
    first = component.key()
    assert first == component.key()
    config.write_text("b")
    second = component.key()
    assert first != second
    assert Component("x", ("sleep", "2"), "unix:/nowhere", (config,)).key() != second


def test_a_mark_survives_folders_with_strange_names() -> None:
    mark = Mark("/a#b/c d", "etcd", "etcd", "0123")
    assert Mark.parse(str(mark)) == mark
    assert Mark.parse("nonsense") is None


def test_a_missing_program_is_named() -> None:
    with pytest.raises(ClusterError, match="no-such-program"):
        Component("x", ("no-such-program",), "unix:/nowhere").key()


def test_waiting_for_one_that_died_shows_the_end_of_its_log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(health, "_GONE", 0.1)
    monkeypatch.setattr(health, "_POLL", 0.02)
    broken = Component("broken", ("dash", "-c", "echo it is all wrong >&2; exit 3"), "unix:/nowhere")
    child = processes.start(broken, tmp_path, tmp_path / "logs", ())
    child.wait()
    with pytest.raises(StartError, match=r"broken died while starting(.|\n)*it is all wrong"):
        wait_healthy([broken], tmp_path / "logs", 5, lambda _: child.poll() is None)


def test_waiting_for_one_that_never_answers_ends(tmp_path: Path) -> None:
    with pytest.raises(StartError, match="mute is not ready after 0 s"):
        wait_healthy([sleeper("mute")], tmp_path / "logs", 0.2, lambda _: True)


def test_a_probe_says_what_is_wrong() -> None:
    problem = probe("http://127.0.0.1:1/healthz")
    assert problem is not None
    assert "refused" in problem


def test_a_large_log_is_moved_aside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processes, "_LOG_LIMIT", 10)
    log = processes.log_file(tmp_path / "logs", "sleeper")
    log.parent.mkdir()
    log.write_text("old and long enough")
    with running(sleeper(), tmp_path):
        assert log.with_suffix(".log.1").read_text() == "old and long enough"
        assert log.read_text() == ""
