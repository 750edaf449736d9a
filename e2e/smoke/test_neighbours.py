"""Who routes through this machine does not get into the cluster; forwarding is on for the pods' sake."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from uuid import uuid4

import pytest

from smoke.objects import web_server
from sunfleet_cluster.cluster import Cluster
from sunfleet_cluster.embedded import EmbeddedCluster
from sunfleet_cluster.state import StateFolder
from support.kubectl import Kubectl

OURS, THEIRS = "198.18.77.1", "198.18.77.2"  # of the range kept for tests of networks


def test_a_neighbour_that_routes_through_this_machine_reaches_no_pod(
    cluster: Cluster, kubectl: Kubectl, namespace: str, image: str
) -> None:
    if not isinstance(cluster, EmbeddedCluster):
        pytest.skip("only the embedded cluster routes through this machine")
    kubectl.apply([web_server("server", image)], namespace)
    kubectl.run("wait", "--for=condition=Ready", "--timeout=60s", "pod/server", f"--namespace={namespace}")
    address = kubectl.get("pod", "server", f"--namespace={namespace}")["status"]["podIP"]
    get = (str(StateFolder.from_env().bin / "probe"), "get", f"http://{address}:8080/")
    assert _succeeds(*get), "this machine itself does"
    with _neighbour() as name:
        assert not _succeeds("ip", "netns", "exec", name, *get)


@contextmanager
def _neighbour() -> Iterator[str]:
    """A network namespace whose default route is this machine; its name."""
    name = f"smoke-{uuid4().hex[:6]}"
    commands = [
        f"ip netns add {name}",
        f"ip link add {name} type veth peer name eth0 netns {name}",
        f"ip address add {OURS}/30 dev {name}",
        f"ip link set {name} up",
        f"ip -netns {name} address add {THEIRS}/30 dev eth0",
        f"ip -netns {name} link set eth0 up",
        f"ip -netns {name} route add default via {OURS}",
    ]
    try:
        for command in commands:
            subprocess.run(command.split(), check=True, capture_output=True)
        yield name
    finally:
        _succeeds("ip", "link", "delete", name)
        _succeeds("ip", "netns", "delete", name)


def _succeeds(*command: str) -> bool:
    return subprocess.run(command, capture_output=True, check=False).returncode == 0
