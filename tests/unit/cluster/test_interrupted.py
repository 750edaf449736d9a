"""What a verb that was killed leaves is finished by the next one; what is not ours stays."""

import shutil
from collections.abc import Callable
from functools import partial
from io import StringIO
from ipaddress import IPv4Network
from pathlib import Path

import pytest

from sunfleet_cluster import preflight, processes, runtime
from sunfleet_cluster.commands import succeeds
from sunfleet_cluster.embedded import EmbeddedCluster
from sunfleet_cluster.errors import ClusterError
from sunfleet_cluster.layout import Addresses, Layout
from sunfleet_cluster.network import deletions, machine_rules
from sunfleet_cluster.progress import Progress
from sunfleet_cluster.settings import ClusterSettings
from sunfleet_cluster.state import discard, sweep

SUBNET = IPv4Network("10.203.0.0/16")


def layout(root: Path) -> Layout:
    return Layout(root, root / "bin", Addresses(SUBNET))


def test_a_folder_whose_deletion_was_killed_is_whole_or_absent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "etcd"
    for _ in range(2):  # twice killed
        (folder / "member").mkdir(parents=True)
        with monkeypatch.context() as patched:
            patched.setattr(shutil, "rmtree", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
            with pytest.raises(KeyboardInterrupt):
                discard(folder)
        assert not folder.exists()
    folder.mkdir()
    (tmp_path / "etcd-of-somebody").mkdir()
    sweep(folder)
    assert {path.name for path in tmp_path.iterdir()} == {"etcd", "etcd-of-somebody"}


def test_a_program_that_is_not_there_does_not_succeed() -> None:
    assert not succeeds("no-such-program")


def test_containers_are_forgotten_when_none_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    state = layout(tmp_path).containerd_state
    (state / "task").mkdir(parents=True)
    monkeypatch.setattr(runtime, "_shims", lambda _: {4711})
    runtime.forget_dead_containers(layout(tmp_path))
    assert state.exists(), "a container runs"
    monkeypatch.setattr(runtime, "_shims", lambda _: set())
    runtime.forget_dead_containers(layout(tmp_path))
    assert not state.exists()


@pytest.mark.parametrize(
    ("available", "delegated", "written"),
    [
        ("cpuset cpu io memory hugetlb pids rdma", "cpu memory pids", "+cpuset +hugetlb"),
        ("cpu memory pids", "cpu memory pids", "cpu memory pids"),
        ("", "", ""),
    ],
)
def test_kubelet_gets_the_controllers_that_it_insists_on(
    tmp_path: Path, available: str, delegated: str, written: str
) -> None:
    (tmp_path / "cgroup.controllers").write_text(available)
    (tmp_path / "cgroup.subtree_control").write_text(delegated)
    runtime.delegate_controllers(tmp_path)
    assert (tmp_path / "cgroup.subtree_control").read_text() == written


def test_cgroups_of_the_old_kind_have_nothing_to_delegate(tmp_path: Path) -> None:
    runtime.delegate_controllers(tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_a_cgroup_that_cannot_be_made_or_removed_says_why(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runtime, "cgroup_trees", lambda: [tmp_path])
    group = tmp_path / layout(tmp_path).cgroup
    group.touch()
    with pytest.raises(ClusterError, match=r"no cgroup for pods can be made in .* --privileged"):
        runtime.ensure_cgroup(layout(tmp_path))
    group.unlink()
    group.mkdir()
    (group / "cgroup.procs").write_text("12\n7\n")
    with pytest.raises(ClusterError, match="processes in it: 7, 12"):
        runtime.remove_cgroups(layout(tmp_path))


def test_rules_that_carry_our_mark_are_deleted_and_no_others() -> None:
    saved = """\
*filter
:FORWARD ACCEPT [0:0]
-A FORWARD -i sf-own -m comment --comment sf-own -j ACCEPT
-A FORWARD -o sf-own -m comment --comment "sf-own" -j ACCEPT
-A FORWARD -i sf-own -j ACCEPT
-A FORWARD -m comment --comment sf-other -j ACCEPT
-A FORWARD -m comment --comment "about sf-own" -j ACCEPT
COMMIT
"""
    assert [rule[:4] for rule in deletions(saved, "sf-own")] == [
        ["-D", "FORWARD", "-i", "sf-own"],
        ["-D", "FORWARD", "-o", "sf-own"],
    ]


def test_every_rule_of_this_machine_carries_the_mark(tmp_path: Path) -> None:
    ours = layout(tmp_path)
    saved = "\n".join(" ".join(("-A", rule.chain, *rule.match)) for rule in machine_rules(ours))
    assert len(deletions(saved, ours.link)) == len(machine_rules(ours))


def cluster(root: Path, **settings: IPv4Network) -> EmbeddedCluster:
    return EmbeddedCluster(ClusterSettings(state=root, **settings))  # type: ignore[arg-type]


def test_a_cluster_keeps_its_addresses_whatever_the_next_shell_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("SUNFLEET_SUBNET", raising=False)
    other = IPv4Network("10.211.0.0/16")
    assert cluster(tmp_path, subnet=other).layout.addresses.subnet == other
    (tmp_path / "cluster").mkdir()
    (tmp_path / "cluster" / "subnet").write_text(str(other))
    assert cluster(tmp_path).layout.addresses.subnet == other
    assert cluster(tmp_path, subnet=SUBNET).layout.addresses.subnet == other, "down and status find it"
    cluster(tmp_path)._check_subnet()
    with pytest.raises(ClusterError, match=r"has the range 10\.211.* cannot change to 10\.203"):
        cluster(tmp_path, subnet=SUBNET)._check_subnet()


def test_an_up_that_waited_for_another_with_other_addresses_is_refused(tmp_path: Path) -> None:
    late = cluster(tmp_path, subnet=SUBNET)
    (tmp_path / "cluster").mkdir()
    (tmp_path / "cluster" / "subnet").write_text("10.211.0.0/16")
    with pytest.raises(ClusterError, match="SUNFLEET_SUBNET"):
        late._check_subnet()


@pytest.mark.parametrize("verb", ["up", "down"])
def test_a_folder_called_cluster_that_is_somebody_elses_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, verb: str
) -> None:
    theirs = tmp_path / "cluster" / "main.tf"
    theirs.parent.mkdir()
    theirs.touch()
    monkeypatch.setattr(preflight, "require", lambda *_: None)
    monkeypatch.setattr(preflight, "embedded", lambda *_: [])
    ours = cluster(tmp_path)
    run: Callable[[Progress], None] = ours.up if verb == "up" else partial(ours.down, purge=True)
    with pytest.raises(ClusterError, match=r"cluster holds what we did not make \(main.tf\): set SUNFLEET_STATE"):
        run(Progress(StringIO()))
    assert [path.name for path in theirs.parent.iterdir()] == ["main.tf"]


def test_an_empty_variable_is_no_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    """`SUNFLEET_STATE=$UNSET make cluster-purge` would delete the folder `cluster` of wherever it is called."""
    monkeypatch.setenv("SUNFLEET_STATE", "")
    assert ClusterSettings().state == Path("~/.local/state/sunfleet").expanduser()


def test_components_inherit_the_way_to_the_world_and_no_secrets() -> None:
    ours = {"PATH": "/bin", "https_proxy": "http://proxy", "no_proxy": "corp.example", "HF_TOKEN": "secret"}
    given = processes.component_environment(ours, "10.203.0.0/16")
    assert set(given) == {"PATH", "https_proxy", "NO_PROXY"}
    assert {"corp.example", "10.203.0.0/16", "127.0.0.1"} <= set(given["NO_PROXY"].split(","))
