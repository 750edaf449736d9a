"""The bare control plane that tests of API rules run on."""

import os
import signal
import subprocess
import sys
from pathlib import Path

from sunfleet_cluster import processes
from sunfleet_cluster.controlplane import control_plane
from support.kubectl import Json, Kubectl, wait_until

HOLD = """
import sys, time
from pathlib import Path
from sunfleet_cluster.controlplane import control_plane
with control_plane(Path(sys.argv[1])):
    print("ready", flush=True)
    time.sleep(600)
"""


def test_it_serves_and_leaves_no_process_behind(tmp_path: Path) -> None:
    with control_plane(tmp_path, controllers=True) as plane:
        kubectl = Kubectl(str(plane.kubectl), plane.kubeconfig)
        kubectl.apply([deployment("web")], "default")
        # Only a controller makes ReplicaSets.
        assert wait_until("the controllers", lambda: kubectl.items("replicasets", "--namespace=default"), 30, 0.2)
        assert set(processes.find(tmp_path)) == {"etcd", "kube-apiserver", "kube-controller-manager"}
    assert processes.find(tmp_path) == {}


def test_it_ends_with_a_test_run_that_is_killed(tmp_path: Path) -> None:
    with subprocess.Popen([sys.executable, "-c", HOLD, str(tmp_path)], stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "ready\n"
        os.kill(holder.pid, signal.SIGKILL)
    wait_until("the end of its processes", lambda: not processes.find(tmp_path), 10, 0.1)


def deployment(name: str) -> Json:
    labels = {"app": name}
    template: Json = {"metadata": {"labels": labels}, "spec": {"containers": [{"name": "main", "image": "none"}]}}
    spec: Json = {"replicas": 1, "selector": {"matchLabels": labels}, "template": template}
    return {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": name}, "spec": spec}
