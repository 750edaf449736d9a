"""The command against a real API server, as a process with a kubeconfig, the way people call it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from sunfleet_api import names
from sunfleet_apitest.client import Api
from sunfleet_apitest.paths import collection
from sunfleet_cluster.controlplane import RunningControlPlane
from sunfleet_optest.objects import decoder, model, pool, pooled

ROOT = Path(__file__).parents[3]


def sunfleet(plane: RunningControlPlane, *arguments: str) -> subprocess.CompletedProcess[str]:
    path = os.pathsep.join(str(ROOT / room) for room in ("cli", "operator", "crds"))
    env = {**os.environ, "PYTHONPATH": path, "KUBECONFIG": str(plane.kubeconfig)}
    command = [sys.executable, "-m", "sunfleet_cli", *arguments]
    return subprocess.run(command, env=env, capture_output=True, text=True, timeout=60, check=False)


def put(api: Api, namespace: str, manifest: dict[str, Any], status: dict[str, Any]) -> None:
    path = collection(manifest["kind"], namespace)
    name = manifest["metadata"]["name"]
    api.create(path, {**manifest, "metadata": {"name": name, "namespace": namespace}})
    api.merge(f"{path}/{name}/status", {"status": status})


def test_status_and_explain_read_live_objects(plane: RunningControlPlane, api: Api, namespace: str) -> None:
    ready = {"type": "Ready", "status": "False", "reason": "Unschedulable", "message": "no GPU is free"}
    ready |= {"lastTransitionTime": "2026-01-01T00:00:00Z"}
    scaling: dict[str, Any] = {"mode": "BuiltIn", "replicas": 2, "specReplicas": 1, "desiredReplicas": 3}
    scaling |= {"reason": "LoadRose: 3 needed", "lastDecisionTime": "2026-01-01T00:00:00Z", "inputs": {"need": "2.7"}}
    put(api, namespace, decoder(), {"replicas": 1, "readyReplicas": 1})
    put(api, namespace, model(), {"replicas": 2, "readyReplicas": 1, "conditions": [ready], "scaling": scaling})
    rows = json.loads(sunfleet(plane, "status", "-n", namespace, "-o", "json").stdout)
    assert [(row["kind"], row["name"], row["pods"]) for row in rows] == [
        ("SharedDecoder", "base", "1/1"), ("SunModel", "maths", "1/2"),
    ]  # fmt: skip
    everywhere = sunfleet(plane, "status").stdout
    assert namespace in everywhere
    told = sunfleet(plane, "explain", "sun/maths", "-n", namespace).stdout
    assert "Unschedulable" in told
    assert "3 wanted: LoadRose: 3 needed" in told
    assert "need = 2.7" in told


def test_prefill_pools_stand_with_their_decoder(plane: RunningControlPlane, api: Api, namespace: str) -> None:
    put(api, namespace, decoder(), {"replicas": 1, "readyReplicas": 1})
    put(api, namespace, pool(), {"replicas": 2, "readyReplicas": 2})
    put(api, namespace, pooled(), {"replicas": 2, "readyReplicas": 2})
    rows = json.loads(sunfleet(plane, "status", "-n", namespace, "-o", "json").stdout)
    assert [(row["kind"], row["name"], row["pods"], row["pool"]) for row in rows] == [
        ("SharedDecoder", "base", "1/1", ""),
        ("PrefillPool", "spool", "2/2", ""),
        ("SunModel", "maths", "2/2", "spool"),
    ]
    assert "spec.replicas says" in sunfleet(plane, "explain", "spool/spool", "-n", namespace).stdout


def test_kubectl_finds_it_as_its_plugin(plane: RunningControlPlane, api: Api, namespace: str) -> None:
    put(api, namespace, decoder(), {"replicas": 1, "readyReplicas": 1})
    installed = Path(sys.executable).parent  # where `kubectl-sunfleet` lies
    env = {**os.environ, "KUBECONFIG": str(plane.kubeconfig), "PATH": f"{installed}{os.pathsep}{os.environ['PATH']}"}
    command = [str(plane.kubectl), "sunfleet", "status", "-n", namespace, "-o", "json"]
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=60, check=True)
    assert [row["name"] for row in json.loads(done.stdout)] == ["base"]
    offered = [str(plane.kubectl), "__complete", "sunfleet", "explain", "-n", namespace, "sdec/"]  # as shells ask it
    done = subprocess.run(offered, env=env, capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.splitlines()[0] == "sdec/base"


def test_what_is_not_there_is_said_in_one_line(plane: RunningControlPlane, namespace: str) -> None:
    missing = sunfleet(plane, "explain", "sun/none", "-n", namespace)
    assert missing.returncode == 1
    assert missing.stderr.startswith(f"Error: sunmodels {namespace}/none: 404")
    assert "Traceback" not in missing.stderr


def test_without_a_cluster_it_says_what_to_set(plane: RunningControlPlane, tmp_path: Path) -> None:
    unknown = sunfleet(plane, "status", "--context", "nowhere")
    assert unknown.returncode == 1
    assert "--context" in unknown.stderr
    assert names.GROUP not in unknown.stderr


def test_doctor_finds_the_crds_and_misses_what_is_not_installed(plane: RunningControlPlane, api: Api) -> None:
    found = sunfleet(plane, "doctor", "-o", "json")
    assert found.returncode == 1, found.stderr
    verdicts = {one["check"]: one["verdict"] for one in json.loads(found.stdout)}
    assert verdicts["CRD SunModel"] == verdicts["CRD SharedDecoder"] == verdicts["API server"] == "ok"
    assert verdicts["router"] == "failed"
    assert verdicts["may create sunmodels"] == verdicts["may reach routers' metrics (top)"] == "ok"
    assert verdicts["objects"] in {"ok", "warning"}  # of other tests
