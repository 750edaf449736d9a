"""The operator as a process against a real API server, and a namespace in which a test plays controllers."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from sunfleet_api import names
from sunfleet_api.kinds import KINDS
from sunfleet_api.tuning import TuningReport
from sunfleet_api.worker import ResolverReport, VerificationReport
from sunfleet_apitest.client import Api, RefusedError
from sunfleet_apitest.paths import collection
from sunfleet_optest.objects import report
from sunfleet_optest.world import tuner_states

Document = dict[str, Any]
ROOT = Path(__file__).parents[3]


@dataclass
class Process:
    """One operator process; ``env`` holds its settings. It can be killed and started again. ``module`` is what is run,
    found in ``rooms``."""

    env: Mapping[str, str]
    log: Path
    health_port: int
    metrics_port: int
    child: subprocess.Popen[bytes] | None = None
    module: str = "sunfleet_operator"
    rooms: tuple[str, ...] = ("crds", "operator")

    def start(self) -> None:
        ports = {
            "SUNFLEET_OPERATOR_HEALTH_PORT": str(self.health_port),
            "SUNFLEET_OPERATOR_METRICS_PORT": str(self.metrics_port),
        }
        path = os.pathsep.join(str(ROOT / room) for room in self.rooms)
        env = {**os.environ, "PYTHONPATH": path, **self.env, **ports}
        with self.log.open("ab") as log:
            self.child = subprocess.Popen([sys.executable, "-m", self.module], env=env, stderr=log)

    def kill(self) -> None:
        """As the kernel does it: no clean-up, the Lease stays held."""
        assert self.child is not None
        self.child.kill()
        self.child.wait()

    def stop(self) -> int:
        assert self.child is not None
        self.child.send_signal(signal.SIGTERM)
        return self.child.wait(20)

    def healthy(self) -> Document | None:
        """The figures of ``/healthz``, ``None`` while it does not answer."""
        with (
            suppress(OSError),
            urllib.request.urlopen(f"http://127.0.0.1:{self.health_port}/healthz", timeout=2) as answer,
        ):
            return dict(json.load(answer))
        return None

    def metrics(self) -> str:
        with urllib.request.urlopen(f"http://127.0.0.1:{self.metrics_port}/metrics", timeout=5) as answer:
            return str(answer.read().decode())

    def writes(self) -> float:
        """Changes of live objects so far."""
        lines = [line for line in self.metrics().splitlines() if line.startswith("sunfleet_operator_writes_total{")]
        return sum(float(line.rsplit(" ", 1)[1]) for line in lines)


@dataclass
class Fleet:
    """One namespace. ``resolve`` answers for resolver Jobs, ``verify`` for verifier Jobs (``None``: it runs on),
    ``healthy`` says whether a Deployment's pods come up. Where ``address`` gives an IP for a Deployment it has a pod.
    ``tuned``: what a Job that tunes or quantises says at its end (``None``: it works).
    """

    api: Api
    namespace: str
    resolve: Callable[[str], ResolverReport] = report
    healthy: Callable[[Document], bool] = lambda _: True
    verify: Callable[[Document], VerificationReport | None] = lambda _: None
    address: Callable[[Document], str] = lambda _: ""
    tuned: Callable[[Document], TuningReport | None] = lambda _: None
    _pods: dict[str, str] = field(default_factory=dict)

    # What people do ------------------------------------------------------------------------------------------------

    def apply(self, manifest: Document) -> Document:
        placed = {**manifest, "metadata": {**manifest["metadata"], "namespace": self.namespace}}
        return self.api.apply(self.path(manifest["kind"], manifest["metadata"]["name"]), placed, "kubectl")

    def patch(self, kind: str, name: str, patch: Document) -> Document:
        return self.api.merge(self.path(kind, name), patch)

    def delete(self, kind: str, name: str) -> None:
        self.api.delete(self.path(kind, name))

    def path(self, kind: str, name: str) -> str:
        return f"{collection(kind, self.namespace)}/{name}"

    def clear(self) -> None:
        """Delete every object of ours: model names are unique in the whole cluster."""
        for kind in ("PrefillTuning", "SunModel", "PrefillPool", "SharedDecoder"):
            for live in self.api.get(collection(kind, self.namespace))["items"]:
                with suppress(RefusedError):
                    self.delete(kind, live["metadata"]["name"])

    # Looking -------------------------------------------------------------------------------------------------------

    def get(self, kind: str, name: str) -> Document:
        return self.api.get(self.path(kind, name))

    def gone(self, kind: str, name: str) -> bool:
        try:
            self.get(kind, name)
        except RefusedError as refusal:
            return refusal.code == 404
        return False

    def condition(self, kind: str, name: str, type_: str = "Ready") -> tuple[str, str, str]:
        """(status, reason, message); ("", "", "") when it is not there."""
        conditions = (self.get(kind, name).get("status") or {}).get("conditions") or ()
        found: Document = next((c for c in conditions if c["type"] == type_), {})
        return found.get("status", ""), found.get("reason", ""), found.get("message", "")

    def ready(self, kind: str, name: str) -> bool:
        """Ready, and about the present spec."""
        live = self.get(kind, name)
        seen = (live.get("status") or {}).get("observedGeneration") == live["metadata"]["generation"]
        return seen and self.condition(kind, name)[0] == "True"

    def deployments(self, owner: str = "") -> dict[str, Document]:
        """By name, of one owner or of all."""
        found: list[Document] = self.items("apis/apps/v1", "deployments")
        return {
            live["metadata"]["name"]: live
            for live in found
            if not owner or live["metadata"]["ownerReferences"][0]["name"] == owner
        }

    def items(self, group: str, plural: str) -> list[Document]:
        return list(self.api.get(f"/{group}/namespaces/{self.namespace}/{plural}")["items"])

    def until(self, question: Callable[[], bool], what: str, seconds: float = 60) -> None:
        """Let controllers move until the answer is yes; fails with the conditions of everything."""
        deadline = time.monotonic() + seconds
        while not question():
            assert time.monotonic() < deadline, f"{what} not within {seconds:.0f} s:\n{self.story()}"
            self.controllers()
            time.sleep(0.1)

    def until_ready(self, *objects: tuple[str, str]) -> None:
        for kind, name in objects:
            self.until(lambda kind=kind, name=name: self.ready(kind, name), f"{kind} {name} Ready")  # type: ignore[misc]

    def story(self) -> str:
        lines = []
        for kind in KINDS:
            for live in self.api.get(collection(kind, self.namespace))["items"]:
                lines.append(f"{kind} {live['metadata']['name']}")
                conditions = (live.get("status") or {}).get("conditions") or ()
                lines += [f"  {c['type']}={c['status']} {c['reason']} {c['message']}" for c in conditions]
        return "\n".join(lines)

    # What controllers and kubelet do ---------------------------------------------------------------------------------

    def controllers(self) -> None:
        """Deployments get their status, Jobs a pod with a report."""
        for live in self.items("apis/apps/v1", "deployments"):
            with suppress(RefusedError):  # deleted meanwhile
                self._run_deployment(live)
        for live in self.items("apis/batch/v1", "jobs"):
            with suppress(RefusedError):
                self._run_job(live)

    def _run_deployment(self, live: Document) -> None:
        if ip := self.address(live):
            self._run_pod(live, ip)
        replicas = live["spec"]["replicas"]
        up = replicas if self.healthy(live) else 0
        status = {
            "observedGeneration": live["metadata"]["generation"],
            "replicas": replicas,
            "readyReplicas": up,
            "availableReplicas": up,
            "updatedReplicas": replicas,
            "unavailableReplicas": replicas - up,
        }
        if {key: (live.get("status") or {}).get(key, 0) for key in status} != status:
            path = f"/apis/apps/v1/namespaces/{self.namespace}/deployments/{live['metadata']['name']}/status"
            self.api.merge(path, {"status": status})

    def _run_pod(self, live: Document, ip: str) -> None:
        """One for the whole Deployment, Ready while that wants any."""
        name, template = live["metadata"]["name"], live["spec"]["template"]
        pods = f"/api/v1/namespaces/{self.namespace}/pods"
        if name in self._pods:
            return
        pod = {"metadata": {"name": name, "labels": template["metadata"]["labels"]}, "spec": template["spec"]}
        self.api.create(pods, pod, strict=False)
        self._pods[name] = live["metadata"]["uid"]
        ready = {"type": "Ready", "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z"}
        status = {"conditions": [ready], "podIP": ip, "podIPs": [{"ip": ip}], "phase": "Running"}
        self.api.merge(f"{pods}/{name}/status", {"status": status})

    def _run_job(self, live: Document) -> None:
        template, name = live["spec"]["template"], live["metadata"]["name"]
        pods = f"/api/v1/namespaces/{self.namespace}/pods"
        if self._pods.get(name) != live["metadata"]["uid"]:
            pod = {"metadata": {"name": name, "labels": template["metadata"]["labels"]}, "spec": template["spec"]}
            self.api.create(pods, pod, strict=False)
            self._pods[name] = live["metadata"]["uid"]
        role = live["metadata"]["labels"][names.LABEL_ROLE]
        if role in {names.ROLE_TUNER, names.ROLE_QUANTIZER}:
            self._run_tuner(live, f"{pods}/{name}")
            return
        said = (
            self.resolve(template["spec"]["containers"][0]["args"][1])
            if role == names.ROLE_RESOLVER
            else self.verify(live)
        )
        if said is None:
            return
        fine = bool(said.digest) if isinstance(said, ResolverReport) else not said.error_reason
        ended = {"exitCode": 0 if fine else 1, "message": said.model_dump_json()}
        state = {"terminated": ended} if fine else {"waiting": {"reason": "CrashLoopBackOff"}}
        container = {
            "name": role, "image": "weights", "imageID": "", "ready": False, "restartCount": 0,
            "state": state, "lastState": {"terminated": ended},
        }  # fmt: skip
        self.api.merge(f"{pods}/{name}/status", {"status": {"containerStatuses": [container]}})

    def _run_tuner(self, live: Document, pod: str) -> None:
        """As a Job's controller: what the API server checks of a Job's status is all there."""
        said, path = self.tuned(live), f"/apis/batch/v1/namespaces/{self.namespace}/jobs/{live['metadata']['name']}"
        if said is None or (live.get("status") or {}).get("conditions"):
            return
        of_pod, of_job = tuner_states(said)
        (container,) = of_pod["containerStatuses"]
        container |= {"imageID": "", "ready": False, "restartCount": 0}
        self.api.merge(f"{pod}/status", {"status": of_pod})
        (end,) = of_job["conditions"]
        before = {**end, "type": "FailureTarget" if end["type"] == "Failed" else "SuccessCriteriaMet"}
        self.api.merge(f"{path}/status", {"status": of_job | {"conditions": [before, end]}})
