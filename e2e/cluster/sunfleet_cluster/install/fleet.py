"""Install and uninstall: the same `kubectl apply -k` that a user would type, with a wait that explains itself."""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from sunfleet_api.names import GROUP
from sunfleet_cluster.errors import ClusterError
from sunfleet_cluster.images.records import recorded
from sunfleet_cluster.install.overlay import NEEDED, kustomization, uninstall_batches
from sunfleet_cluster.install.waiting import complaints, current_pods, hopeless, lacks
from sunfleet_cluster.kubectl import Kubectl
from sunfleet_cluster.progress import Progress
from sunfleet_cluster.state import StateFolder, write_atomic

NAMESPACE = "sunfleet-system"
READY_TIMEOUT = 180.0  # seconds for operator and router on a busy two-core machine; they start in about five
DELETE_TIMEOUT = 120.0  # seconds for the resources of all users; engines get their drain time besides
_POLL = 1.0
_EVENTS_SHOWN = 8
_LOG_LINES_SHOWN = 25
# Used by others, so it goes last: the operator holds it until its users are gone.
_LAST = f"shareddecoders.{GROUP}"


@dataclass(frozen=True)
class Fleet:
    """CRDs, operator and router of the source tree `root` on the cluster behind `kubectl`."""

    root: Path
    state: StateFolder
    kubectl: Kubectl
    progress: Progress

    def install(self) -> None:
        """Apply the manifests and wait until everything works.

        Raises:
            ClusterError: images are missing, the API server refuses, or a Deployment does not become available.
        """
        self.apply()
        self._await_deployments()

    def apply(self) -> None:
        """Apply the manifests with the images that were built last; the CRDs are served afterwards."""
        folder = self._write_overlay()
        with self.progress.step("apply CRDs, operator and router"):
            self.kubectl.apply("--kustomize", str(folder))
        with self.progress.step("CRDs established"):
            crds = [f"crd/{name}" for name in self._crds()]
            self.kubectl("wait", "--for=condition=Established", "--timeout=60s", *crds)

    def uninstall(self) -> None:
        """Delete every resource of ours in every namespace, then what runs, then the CRDs and the namespace."""
        crds = self._crds()
        for crd in sorted(crds, key=lambda name: name == _LAST):
            with self.progress.step(f"delete {crd.partition('.')[0]}"):
                self._delete_resources(crd)
        manifests = [each for each in yaml.safe_load_all(self.kubectl("kustomize", str(self._manifests()))) if each]
        for batch in uninstall_batches(manifests):
            kinds = sorted({str(each["kind"]) for each in batch})
            with self.progress.step(f"delete {', '.join(kinds)}"):
                text = yaml.safe_dump_all(batch)
                self.kubectl("delete", "--ignore-not-found", "--filename=-", stdin=text, timeout=DELETE_TIMEOUT)

    def _write_overlay(self) -> Path:
        folder = (self.state.root / "install").resolve()
        refs = {name: recorded(self.state, name) for name in NEEDED}
        overlay = kustomization(folder, self._manifests(), refs)
        write_atomic(folder / "kustomization.yaml", yaml.safe_dump(overlay, sort_keys=False))
        return folder

    def _manifests(self) -> Path:
        return self.root.resolve() / "manifests" / "overlays" / "embedded"

    def _crds(self) -> list[str]:
        """Names of our CRDs on the cluster."""
        found = self.kubectl.items("customresourcedefinitions")
        return [each["metadata"]["name"] for each in found if each["spec"]["group"] == GROUP]

    def _delete_resources(self, crd: str) -> None:
        try:
            self.kubectl(
                "delete", crd, "--all", "--all-namespaces", f"--timeout={DELETE_TIMEOUT:.0f}s",
                timeout=DELETE_TIMEOUT + 10,
            )  # fmt: skip
        except ClusterError as error:
            raise ClusterError(
                f"{error}\nThe operator releases what is deleted, so it must be running: `make install` brings it "
                f"back. `kubectl get {crd} --all-namespaces` shows what is left; its conditions say who uses it."
            ) from error

    def _await_deployments(self) -> None:
        """Wait until all our Deployments are rolled out.

        Raises:
            ClusterError: not in time, or in vain; says what pods, events and logs say.
        """
        deadline = time.monotonic() + READY_TIMEOUT
        with self.progress.step("operator and router available") as step:
            while missing := self._missing():
                step.detail = "; ".join(missing)
                reason = hopeless(self._pods())
                if reason or time.monotonic() > deadline:
                    raise ClusterError(f"{step.detail}\n{self._explanation(reason)}")
                time.sleep(_POLL)

    def _missing(self) -> list[str]:
        states = {each["metadata"]["name"]: lacks(each) for each in self._objects("deployments")}
        return [f"{name}: {state}" for name, state in states.items() if state]

    def _pods(self) -> list[dict[str, Any]]:
        return current_pods(self._objects("deployments"), self._objects("replicasets"), self._objects("pods"))

    def _objects(self, *arguments: str) -> list[dict[str, Any]]:
        return self.kubectl.items(*arguments, f"--namespace={NAMESPACE}")

    def _explanation(self, reason: str) -> str:
        pods = self._pods()
        lines = [reason] if reason else [f"not available after {READY_TIMEOUT:.0f} s"]
        lines += complaints(pods)
        names = {pod["metadata"]["name"] for pod in pods}
        warnings = [
            f"event: {each.get('reason')}: {each.get('message')}"
            for each in self._objects("events", "--field-selector=type=Warning")
            if each["involvedObject"]["name"] in names
        ]
        return "\n".join([*lines, *warnings[-_EVENTS_SHOWN:], *self._logs(pods)])

    def _logs(self, pods: Sequence[dict[str, Any]]) -> list[str]:
        """The end of the logs of pods that are not ready, of the run before where one crashed."""
        lines: list[str] = []
        for pod in pods:
            statuses = pod.get("status", {}).get("containerStatuses", [])
            if not statuses or all(status["ready"] for status in statuses):
                continue
            before = ["--previous"] if any(status["restartCount"] for status in statuses) else []
            name = pod["metadata"]["name"]
            arguments = (f"--namespace={NAMESPACE}", f"--tail={_LOG_LINES_SHOWN}", *before)
            try:
                lines.append(f"log of {name}:\n{self.kubectl('logs', name, *arguments).rstrip()}")
            except ClusterError as error:  # a container that never ran has no log
                lines.append(f"log of {name}: {error}")
        return lines
