"""What is read from the machine: routes, mounts, requirements; what is said about it."""

import io
import json
import os
import re
import shutil
import signal
import tarfile
import time
from collections import namedtuple
from concurrent.futures import ThreadPoolExecutor
from ipaddress import IPv4Network
from pathlib import Path

import pytest

from sunfleet_cluster import cluster_verbs, network, oci, preflight, programs, progress, runtime
from sunfleet_cluster.__main__ import main
from sunfleet_cluster.cluster import Part, Status
from sunfleet_cluster.errors import ClusterError, PreflightError
from sunfleet_cluster.images.records import record_refs
from sunfleet_cluster.lock import exclusive
from sunfleet_cluster.preflight import Check
from sunfleet_cluster.progress import Progress, elapsed
from sunfleet_cluster.report import table
from sunfleet_cluster.state import StateFolder, write_atomic

SUBNET = IPv4Network("10.203.0.0/16")


@pytest.mark.parametrize(
    ("destination", "device", "clash"),
    [
        ("default", "eth0", False),
        ("10.203.0.0/18", "sf-own", False),
        ("10.203.4.0/24", "docker0", True),
        ("10.0.0.0/8", "vpn0", True),
        ("192.168.1.7", "eth0", False),
        ("10.203.9.9", "eth0", True),
        ("0.0.0.0/1", "tun0", False),  # a VPN that takes everything
    ],
)
def test_a_route_clashes_when_it_shares_addresses_and_is_not_ours(destination: str, device: str, clash: bool) -> None:
    routes = json.dumps([{"dst": destination, "dev": device}])
    assert bool(network.overlapping(SUBNET, routes, "sf-own")) == clash


def test_mounts_are_listed_innermost_first_and_only_below_the_folder() -> None:
    mountinfo = "\n".join(
        f"36 35 0:1 / {target} rw - tmpfs tmpfs rw"
        for target in ("/a", "/a/b", "/a/b/c\\040d", "/ab", "/other", "/a/b/c\\040d/e")
    )
    found = runtime.mounts_below(Path("/a/b"), mountinfo.encode())
    assert found == [Path("/a/b/c d/e"), Path("/a/b/c d"), Path("/a/b")]


def test_a_mount_below_a_folder_with_any_name_is_found_before_the_folder_is_deleted() -> None:
    """Whatever the kernel writes as it is (here UTF-8) or in octal (blanks, backslashes)."""
    root = Path("/home/jörg/a\\b c")
    written = "36 35 0:1 / /home/jörg/a\\134b\\040c/volume rw - tmpfs tmpfs rw\n"
    assert runtime.mounts_below(root, written.encode()) == [root / "volume"]


def test_nothing_is_deleted_below_a_mount_that_stays(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(runtime, "succeeds", lambda *_: False)
    monkeypatch.setattr(runtime, "mounts_below", lambda *_: [tmp_path / "kubelet/volume"])
    with pytest.raises(ClusterError, match=r"still mounted, so nothing is deleted: .*/kubelet/volume"):
        runtime.unmount_below(tmp_path)


def test_all_problems_are_told_at_once() -> None:
    checks = [Check("one", "is missing"), Check("two", None), Check("three", "is too old")]
    with pytest.raises(PreflightError) as raised:
        preflight.require(checks, Progress(io.StringIO()))
    assert "one: is missing" in str(raised.value)
    assert "three: is too old" in str(raised.value)
    assert "two" not in str(raised.value)


@pytest.mark.parametrize(
    ("files", "available"),
    [
        ({}, 8 << 30),
        ({"memory.max": "max", "memory.current": "1", "memory.stat": "file 0\nshmem 0"}, 8 << 30),
        (
            {"memory.max": "4294967296", "memory.current": "3221225472", "memory.stat": "file 1073741824\nshmem 0"},
            2 << 30,
        ),
        (
            {
                "memory/memory.limit_in_bytes": "4294967296",
                "memory/memory.usage_in_bytes": "3221225472",
                "memory/memory.stat": "total_cache 1073741824\ntotal_shmem 1073741824",
            },
            1 << 30,
        ),
    ],
)
def test_a_containers_limit_counts_and_cached_files_do_not(
    tmp_path: Path, files: dict[str, str], available: int
) -> None:
    for name, content in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(f"{content}\n")
    assert preflight.available_memory("MemTotal: 9 kB\nMemAvailable: 8388608 kB\n", tmp_path) == available


@pytest.mark.parametrize("works", [True, False])
def test_a_folder_where_no_image_can_be_unpacked_is_told_beforehand(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, works: bool
) -> None:
    """In most containers the root file system is an overlay, in which no other can lie."""
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setattr(preflight, "succeeds", lambda *_: works)
    problem = preflight._file_system(tmp_path / "new").problem
    assert (problem is None) == works
    assert works or "SUNFLEET_STATE" in str(problem)
    assert list(tmp_path.iterdir()) == []


def test_a_disk_that_is_too_small_says_for_what(tmp_path: Path) -> None:
    preflight.require_disk(tmp_path / "new", 1, "a file")
    with pytest.raises(ClusterError, match=r"the engine does not fit: .* GiB free at .*SUNFLEET_STATE"):
        preflight.require_disk(tmp_path / "new", 1 << 60, "the engine")


def test_what_a_demo_lacks_is_told_before_anything_is_made(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Disk and Go that a later step needs too, and only for steps that are not done."""
    state = StateFolder(tmp_path)
    usage = namedtuple("usage", "total used free")
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage(1, 1, 20 << 30))
    monkeypatch.setattr(programs, "compiler_version", lambda: None)
    go, disk = preflight.fleet(programs.EMBEDDED, state)
    assert "https://go.dev/dl/" in (go.problem or "")
    assert "20.0 GiB free" in (disk.problem or "")
    assert "29 needed" in (disk.problem or "")
    monkeypatch.setattr(programs, "stale", lambda *_: [])
    (tmp_path / "engine.json").touch()
    assert [check.problem for check in preflight.fleet(programs.EMBEDDED, state)] == [None]
    (tmp_path / "cluster").mkdir()
    record_refs(state, {})
    assert preflight.fleet(programs.EMBEDDED, state) == []


def test_other_users_are_told_that_they_see_nothing(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("SUNFLEET_STATE", str(tmp_path))
    monkeypatch.setenv("SUNFLEET_CLUSTER", "embedded")
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert main(["status"]) == 1
    assert "nobody but root sees" in capsys.readouterr().err


def test_an_image_depends_on_its_programs_bytes_alone(tmp_path: Path) -> None:
    program = tmp_path / "pause"
    program.write_bytes(b"program")
    ref = oci.reference("pause", program)
    for archive in ("one.tar", "two.tar"):
        oci.write_archive(tmp_path / archive, ref, program)
    assert (tmp_path / "one.tar").read_bytes() == (tmp_path / "two.tar").read_bytes()
    program.write_bytes(b"another")
    assert oci.reference("pause", program) != ref


def test_an_image_archive_is_consistent(tmp_path: Path) -> None:
    program = tmp_path / "pause"
    program.write_bytes(b"program")
    oci.write_archive(tmp_path / "image.tar", "localhost/pause:1", program)
    with tarfile.open(tmp_path / "image.tar") as archive:
        blobs = {member.name: archive.extractfile(member) for member in archive}
        content = {name: file.read() for name, file in blobs.items() if file}
    (entry,) = json.loads(content["index.json"])["manifests"]
    assert entry["annotations"]["io.containerd.image.name"] == "localhost/pause:1"
    manifest = json.loads(content[blob(entry["digest"])])
    config = json.loads(content[blob(manifest["config"]["digest"])])
    assert config["config"] == {"Entrypoint": ["/pause"], "User": "65532:65532"}
    layer = content[blob(manifest["layers"][0]["digest"])]
    with tarfile.open(fileobj=io.BytesIO(layer)) as files:
        assert files.getmember("pause").mode == 0o755


def blob(digest: str) -> str:
    return f"blobs/{digest.replace(':', '/')}"


@pytest.mark.parametrize(
    ("seconds", "said"),
    [(0.44, "0.4 s"), (59, "59 s"), (185, "3 min 05 s"), (7800, "2 h 10 min"), (273600, "3 d 4 h")],
)
def test_times_are_said_as_people_say_them(seconds: float, said: str) -> None:
    assert elapsed(seconds) == said


def test_a_file_is_replaced_whole_or_not_at_all(tmp_path: Path) -> None:
    file = tmp_path / "new" / "file"
    write_atomic(file, "one", 0o600)
    write_atomic(file, "two", 0o600)
    assert file.read_text() == "two"
    assert file.stat().st_mode & 0o777 == 0o600
    assert [each.name for each in file.parent.iterdir()] == ["file"]


def test_a_second_holder_of_the_lock_waits_and_says_for_whom(tmp_path: Path) -> None:
    out = io.StringIO()
    with exclusive(tmp_path / "lock", Progress(out)):
        pass
    with exclusive(tmp_path / "lock", Progress(out)):
        assert (tmp_path / "lock").read_text().isdigit()
    assert out.getvalue() == ""


def test_progress_in_a_pipe_is_plain_lines() -> None:
    out = io.StringIO()
    with Progress(out).step("something") as step:
        step.outcome = "done twice"
    assert re.fullmatch(r"  ✓ something: done twice \(\d\.\d s\)\n", out.getvalue())


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_on_a_terminal_the_running_line_fits_and_is_wiped_before_the_next(monkeypatch: pytest.MonkeyPatch) -> None:
    """A line that wraps cannot be wiped: every half second would leave one behind."""
    monkeypatch.setattr(shutil, "get_terminal_size", lambda: os.terminal_size((40, 24)))
    monkeypatch.setattr(progress, "_TERMINAL_INTERVAL", 0.01)
    out = Terminal()
    with Progress(out).step("apt-get install " + "a-long-name " * 9):
        time.sleep(0.1)
    drawn = out.getvalue().split("\r\x1b[2K")
    assert len(drawn) > 3
    assert all(len(line) < 40 for line in drawn[1:-1])
    assert drawn[-1].startswith("  ✓ apt-get install")


def test_two_steps_at_once_share_the_running_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "_TERMINAL_INTERVAL", 0.01)
    out = Terminal()
    shown = Progress(out)
    with ThreadPoolExecutor(1) as pool, shown.step("build router"):
        pool.submit(_load, shown).result()
    assert re.search(r"build router \(\d\.\d s\); load operator \(\d\.\d s\)\r", out.getvalue())
    lines = re.sub(r"\r\x1b\[2K|  … [^\r\n]*(?=\r)", "", out.getvalue()).splitlines()
    assert [line.partition(" (")[0] for line in lines] == ["  ✓ load operator", "  ✓ build router"]


def _load(shown: Progress) -> None:
    with shown.step("load operator"):
        time.sleep(0.1)


def test_a_step_that_fails_is_marked() -> None:
    out = io.StringIO()
    with pytest.raises(RuntimeError), Progress(out).step("something"):
        raise RuntimeError
    assert re.fullmatch(r"  ✗ something \(\d\.\d s\)\n", out.getvalue())


def test_the_table_lines_up_and_ends_with_a_verdict() -> None:
    parts = (Part("etcd", True, "running", 12, 75.0), Part("kubelet", False, "stopped", note="why"))
    lines = table(Status("embedded", Path("/k"), parts)).splitlines()
    assert lines[0].split() == ["COMPONENT", "PID", "STATE", "AGE", "NOTE"]
    assert lines[1].index("running") == lines[2].index("stopped")
    assert lines[-1] == "embedded cluster: not healthy; KUBECONFIG=/k"


def test_no_parts_are_not_health() -> None:
    assert not Status("embedded", Path("/k"), ()).healthy


def test_a_refusal_of_the_system_is_told_without_a_traceback(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def refuse() -> None:
        raise PermissionError(13, "Permission denied", "/somebody/state/cluster/pki")

    monkeypatch.setattr(cluster_verbs, "open_cluster", refuse)
    assert main(["status"]) == 1
    said = capsys.readouterr().err
    assert said == (
        "error: Permission denied: /somebody/state/cluster/pki\n"
        "Run it as the user who made this (root for a cluster), or set SUNFLEET_STATE to a folder of your own.\n"
    )


def test_being_told_to_end_tidies_up_like_an_interrupt(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """What builds hold in temporary files must not stay when CI cancels a job."""
    before = signal.getsignal(signal.SIGTERM)
    monkeypatch.setattr(cluster_verbs, "open_cluster", lambda: signal.raise_signal(signal.SIGTERM))
    assert main(["status"]) == 143
    assert "run the same verb again" in capsys.readouterr().err
    assert signal.getsignal(signal.SIGTERM) == before


def test_programs_of_root_are_found_after_su(monkeypatch: pytest.MonkeyPatch) -> None:
    """`su` without `-` leaves root a user's PATH, and Go's usual folder is on nobody's."""
    monkeypatch.setenv("PATH", "/usr/bin:/sbin")
    monkeypatch.setattr(cluster_verbs, "open_cluster", lambda: signal.raise_signal(signal.SIGTERM))
    main(["status"])
    assert os.environ["PATH"] == "/usr/bin:/sbin:/usr/local/sbin:/usr/sbin:/usr/local/go/bin"


def test_wrong_settings_are_told_without_a_traceback(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("SUNFLEET_SUBNET", "10.0.0.0/30")
    assert main(["status"]) == 2
    said = capsys.readouterr().err
    assert "SUNFLEET_SUBNET: 10.0.0.0/30 is too small" in said
    assert "Traceback" not in said
