"""`up` mends whatever was broken, and `down` leaves nothing.

On a second cluster beside the one that is running: another state folder, another range of addresses, the same programs.
"""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from ipaddress import IPv4Network
from pathlib import Path
from typing import Any

import pytest

from sunfleet_cluster import components, network, processes, runtime
from sunfleet_cluster.cluster import Status
from sunfleet_cluster.layout import Addresses, Layout
from sunfleet_cluster.processes import PROC
from sunfleet_cluster.report import examine
from sunfleet_cluster.settings import ClusterSettings
from sunfleet_cluster.state import StateFolder
from support.kubectl import Json, Kubectl, wait_until

SUBNET = "10.211.0.0/16"
COMPONENTS = (
    "etcd",
    "kube-apiserver",
    "containerd",
    "kube-controller-manager",
    "kube-scheduler",
    "kubelet",
    "kube-proxy",
    "kube-router",
)
TIMEOUT = 180.0  # seconds; an `up` from nothing takes 15 on an idle machine


@dataclass(frozen=True)
class Scratch:
    """A cluster that may be broken."""

    state: Path
    layout: Layout

    @property
    def kubectl(self) -> Kubectl:
        return Kubectl(str(self.layout.bin / "kubectl"), self.layout.admin)

    def start(self, verb: str, *options: str, **environment: str) -> "subprocess.Popen[str]":
        """Start a verb; its standard output and error go to `.stdout`."""
        settings = {"SUNFLEET_STATE": str(self.state), "SUNFLEET_SUBNET": SUBNET, "SUNFLEET_CLUSTER": "embedded"}
        command = [sys.executable, "-m", "sunfleet_cluster", verb, *options]
        return subprocess.Popen(
            command,
            env={**os.environ, **settings, **environment},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def verb(self, verb: str, *options: str, **environment: str) -> tuple[int, str]:
        """Run a verb to its end: exit code, and what it said."""
        with self.start(verb, *options, **environment) as process:
            said, _ = process.communicate(timeout=TIMEOUT)
        return process.returncode, said

    def up(self) -> None:
        code, said = self.verb("up")
        assert code == 0, said

    def status(self) -> Status:
        return Status("embedded", self.layout.admin, examine(self.layout))

    def pids(self) -> dict[str, int]:
        return {name: process.pid for name, process in processes.find(self.layout.root).items()}

    def outdated(self) -> list[str]:
        return [part.name for part in self.status().parts if part.state == "outdated"]

    def dns_pod(self) -> Json:
        (found,) = self.kubectl.items("pods", "--namespace=kube-system", "--selector=k8s-app=kube-dns")
        return found


@pytest.fixture(scope="module")
def scratch(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scratch]:
    state = tmp_path_factory.mktemp("state").resolve()
    (state / "bin").symlink_to(StateFolder.from_env().bin)
    folder = StateFolder(state)
    found = Scratch(state, Layout(folder.cluster, folder.bin, Addresses(IPv4Network(SUBNET))))
    try:
        yield found
    finally:
        found.verb("down", "--purge")


@pytest.fixture
def running(scratch: Scratch) -> Scratch:
    """The cluster, up and whole."""
    if not scratch.status().healthy:
        scratch.up()
    return scratch


def test_two_ups_at_once_make_one_healthy_cluster_from_nothing(scratch: Scratch) -> None:
    first, second = scratch.start("up"), scratch.start("up")
    for process in (first, second):
        said, _ = process.communicate(timeout=TIMEOUT)
        assert process.returncode == 0, said
    assert scratch.status().healthy
    assert sorted(process.mark.component for process in processes.every(scratch.layout.root)) == sorted(COMPONENTS)


def test_status_speaks_to_people_and_to_programs(running: Scratch) -> None:
    code, table = running.verb("status")
    assert code == 0
    assert all(component in table for component in COMPONENTS)
    code, document = running.verb("status", "--output=json")
    assert code == 0
    assert {part["name"] for part in json.loads(document)["parts"]} == {"network", *COMPONENTS, "node", "dns"}


@pytest.mark.parametrize("component", COMPONENTS)
def test_up_replaces_a_killed_component_and_no_other(running: Scratch, component: str) -> None:
    before, dns_before = running.pids(), running.dns_pod()
    os.kill(before[component], signal.SIGKILL)
    wait_until("its end", lambda: component not in running.pids(), 10, 0.02)
    assert not running.status().healthy

    running.up()

    after = running.pids()
    assert {name for name in COMPONENTS if before[name] != after[name]} == {component}
    wait_until("health", lambda: running.status().healthy, 20, 0.2)
    node = running.kubectl.items("nodes")[0]
    assert node["status"]["allocatable"]["nvidia.com/gpu"] == str(ClusterSettings().gpus)
    # Pods outlive every component: shims hold them.
    assert container_ids(running.dns_pod()) == container_ids(dns_before)


def test_up_restarts_what_runs_with_other_settings(running: Scratch) -> None:
    before = running.pids()
    (scheduler,) = (each for each in components.all_components(running.layout) if each.name == "kube-scheduler")
    processes.stop([processes.find(running.layout.root)[scheduler.name]], grace=5)
    talkative = replace(scheduler, argv=(*scheduler.argv, "--v=1"))
    inside = network.inside(running.layout)
    processes.start_detached(talkative, running.layout.root, running.layout.logs, inside, SUBNET)
    wait_until("the scheduler", lambda: running.outdated() == [scheduler.name], 30, 0.1)

    running.up()

    after = running.pids()
    assert {name for name in COMPONENTS if before[name] != after[name]} == {scheduler.name}
    assert {part.state for part in running.status().parts} == {"present", "running", "ready"}


def test_up_resumes_after_a_reboot_with_every_object(running: Scratch) -> None:
    running.kubectl.run("create", "configmap", "kept", "--namespace=default")
    uid = running.dns_pod()["metadata"]["uid"]
    pretend_reboot(running.layout)
    assert not running.status().healthy

    running.up()

    assert running.status().healthy
    running.kubectl.get("configmap", "kept", "--namespace=default")
    assert running.dns_pod()["metadata"]["uid"] == uid


def test_up_after_an_interrupted_down_makes_it_whole(running: Scratch) -> None:
    """Some of the components are dead then, and others are told to end and still there."""
    interrupt(running, "down", 2.6)
    running.up()
    assert running.status().healthy
    assert set(running.pids()) == set(COMPONENTS)


def test_an_interrupted_down_is_finished_by_the_next(running: Scratch) -> None:
    for delay in (0.8, 2.0):
        interrupt(running, "down", delay)
    assert running.verb("down")[0] == 0
    assert leftovers(running.layout) == {}
    assert running.layout.containerd_root.exists(), "images stay"
    assert not running.layout.etcd.exists(), "objects go"


def test_an_interrupted_up_is_finished_by_the_next(scratch: Scratch) -> None:
    for delay in (0.8, 1.5, 3.0, 5.0):
        interrupt(scratch, "up", delay)
    scratch.up()
    assert scratch.status().healthy
    assert set(scratch.pids()) == set(COMPONENTS)


def test_up_refuses_addresses_that_are_taken_and_says_what_to_do(scratch: Scratch, tmp_path: Path) -> None:
    (tmp_path / "bin").symlink_to(StateFolder.from_env().bin)
    code, said = scratch.verb("up", SUNFLEET_STATE=str(tmp_path))  # the range of the cluster that runs
    assert code == 1
    assert SUBNET in said
    assert "SUNFLEET_SUBNET" in said
    assert not (tmp_path / "cluster").exists()


def test_down_purge_leaves_nothing(running: Scratch) -> None:
    assert running.verb("down", "--purge")[0] == 0
    assert leftovers(running.layout) == {}
    assert not running.layout.root.exists()
    assert running.verb("status")[0] == 1


def interrupt(scratch: Scratch, verb: str, delay: float) -> None:
    """Kill a verb `delay` seconds after its start; it may be done by then."""
    process = scratch.start(verb)
    time.sleep(delay)
    process.kill()
    process.communicate()


def pretend_reboot(layout: Layout) -> None:
    """What a reboot does: no process, mount, network or cgroup is left; files are, and nobody tidied them."""
    for process in processes.find(layout.root).values():
        os.kill(process.pid, signal.SIGKILL)
    runtime.end_pods(layout, 0.0)
    runtime.unmount_below(layout.root)
    network.remove(layout)
    runtime.remove_cgroups(layout)


def container_ids(pod: Json) -> list[Any]:
    return [status["containerID"] for status in pod["status"]["containerStatuses"]]


def leftovers(layout: Layout) -> dict[str, Any]:
    """Whatever of the cluster is still in the kernel, by kind; empty when all is gone."""
    rules = subprocess.run(["iptables-save"], capture_output=True, text=True, check=True).stdout
    routes = subprocess.run(["ip", "route"], capture_output=True, text=True, check=True).stdout
    found: dict[str, Any] = {
        "processes": processes.find(layout.root),
        "mounts": runtime.mounts_below(layout.root, (PROC / "self/mountinfo").read_bytes()),
        "namespace": layout.netns_file.exists(),
        "link": layout.link in routes,
        "rules": [line for line in rules.splitlines() if layout.link in line],
        "cgroups": [str(path) for path in Path("/sys/fs/cgroup").glob(f"**/{layout.cgroup}")],
        "log links": [
            str(path) for path in Path("/var/log/containers").glob("*") if str(layout.root) in str(path.readlink())
        ],
    }
    return {kind: value for kind, value in found.items() if value}
