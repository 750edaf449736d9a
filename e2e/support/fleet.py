"""A fleet as the API server shows it: objects with their conditions, engine pods with what they do."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

from sunfleet_api import names
from support.kubectl import Json, Kubectl, KubectlError

KINDS = "shareddecoders.serving.sunfleet.dev,sunmodels.serving.sunfleet.dev"
ROUTER_NAMESPACE = "sunfleet-system"
ROUTER_SERVICE = "service/sunfleet-router"
ROUTER_SERVICE_PORT = 80
STARTING = "Starting"
# What vLLM writes before a message: (process pid=1) INFO 01-31 12:00:00 [file.py:12]
_LOG_PREFIX = re.compile(r"^(?:\([^)]*\)\s*)*(?:[A-Z]+ [\d-]+ [\d:]+ )?(?:\[[^\]]*\]\s*)?")
# Reasons for which waiting longer helps nobody.
HOPELESS = frozenset({"ErrImageNeverPull", "InvalidImageName", "CreateContainerConfigError"})


@dataclass(frozen=True)
class Line:
    """One object for a person: what it is, how it is, and why."""

    kind: str
    name: str
    state: str
    reason: str
    ready: bool
    seconds: int = 0  # since it was made
    detail: str = ""  # what it said last


@dataclass(frozen=True)
class Snapshot:
    """Our objects and the pods they made."""

    objects: tuple[Line, ...]
    pods: tuple[Line, ...]

    @property
    def ready(self) -> bool:
        return bool(self.objects) and all(line.ready for line in self.objects)

    @property
    def hopeless(self) -> Line | None:
        return next((pod for pod in self.pods if pod.state in HOPELESS), None)


def snapshot(kubectl: Kubectl, namespace: str) -> Snapshot:
    """What is there now. Engines that start are asked for the last line of their log."""
    objects = kubectl.items(KINDS, "--namespace", namespace)
    pods = kubectl.items("pods", "--namespace", namespace, "--selector", names.LABEL_ROLE)
    lines = (describe_pod(pod) for pod in pods)
    detailed = (
        replace(line, detail=last_said(kubectl, namespace, line.name)) if line.state == STARTING else line
        for line in lines
    )
    return Snapshot(tuple(describe_object(thing) for thing in objects), tuple(detailed))


def last_said(kubectl: Kubectl, namespace: str, pod: str) -> str:
    """The last line of an engine's log without its process, time and file; empty when there is none."""
    try:
        line = kubectl.run("logs", pod, "--namespace", namespace, f"--container={names.ENGINE_CONTAINER}", "--tail=1")
    except KubectlError:  # its container has just gone
        return ""
    return _LOG_PREFIX.sub("", line.strip())


def describe_object(thing: Json) -> Line:
    """From the Ready condition; one that speaks of an older generation does not count."""
    metadata = thing["metadata"]
    conditions = {condition["type"]: condition for condition in thing.get("status", {}).get("conditions", [])}
    ready = conditions.get("Ready", {})
    current = ready.get("observedGeneration", metadata.get("generation")) == metadata.get("generation")
    is_ready = current and ready.get("status") == "True"
    reason = ": ".join(part for part in (ready.get("reason"), ready.get("message")) if part) if current else ""
    state = "Ready" if is_ready else "Waiting"
    return Line(
        thing["kind"], metadata["name"], state, reason or "not seen by the operator yet", is_ready, _age(metadata)
    )


def describe_pod(pod: Json) -> Line:
    """The first thing that keeps a pod from being ready."""
    metadata, status = pod["metadata"], pod.get("status", {})
    role = metadata.get("labels", {}).get(names.LABEL_ROLE, "pod")
    conditions = {condition["type"]: condition for condition in status.get("conditions", [])}
    ready = conditions.get("Ready", {}).get("status") == "True"
    state, reason = ("Ready", "") if ready else _why_not_ready(status, conditions)
    if role == names.ROLE_RESOLVER and state in {"Ready", STARTING}:
        state, reason = "Running", "reads and hashes the weights"
    if metadata.get("deletionTimestamp"):
        state, reason, ready = "Terminating", "", False
    return Line(role, metadata["name"], state, reason, ready or status.get("phase") == "Succeeded", _age(metadata))


def _why_not_ready(status: Json, conditions: dict[str, Json]) -> tuple[str, str]:
    if status.get("phase") == "Succeeded":
        return "Done", ""
    scheduled = conditions.get("PodScheduled", {})
    if scheduled.get("status") == "False":
        return str(scheduled.get("reason", "Pending")), str(scheduled.get("message", ""))
    containers = [*status.get("initContainerStatuses", []), *status.get("containerStatuses", [])]
    for container in containers:
        state = container.get("state", {})
        if waiting := state.get("waiting"):
            return str(waiting.get("reason", "Waiting")), str(waiting.get("message") or _last_end(container))
        if state.get("terminated", {}).get("exitCode"):
            return str(state["terminated"].get("reason", "Error")), str(state["terminated"].get("message", ""))
    if any(not container.get("started", True) for container in containers):
        return STARTING, _restarts(containers) or "the engine loads"
    return str(status.get("phase", "Pending")), _restarts(containers)


def _last_end(container: Json) -> str:
    ended = container.get("lastState", {}).get("terminated", {})
    return str(ended.get("message") or (f"exit {ended['exitCode']}" if ended else ""))


def _restarts(containers: Sequence[Json]) -> str:
    count = sum(container.get("restartCount", 0) for container in containers)
    return f"restarted {count}x" if count else ""


def _age(metadata: Json) -> int:
    made = datetime.fromisoformat(metadata["creationTimestamp"])
    return max(0, int((datetime.now(UTC) - made).total_seconds()))


def watch_until_ready(kubectl: Kubectl, namespace: str, timeout: float, interval: float = 2.0) -> Iterator[Snapshot]:
    """Snapshots, the last one ready. TimeoutError tells what was missing; RuntimeError when waiting is of no use."""
    deadline = time.monotonic() + timeout
    while True:
        seen = snapshot(kubectl, namespace)
        yield seen
        if seen.ready:
            return
        if seen.hopeless:
            raise RuntimeError(f"pod {seen.hopeless.name}: {seen.hopeless.state}: {seen.hopeless.reason}")
        if time.monotonic() > deadline:
            missing = "; ".join(f"{line.kind} {line.name}: {line.reason}" for line in seen.objects if not line.ready)
            raise TimeoutError(f"not ready within {timeout:.0f} s: {missing or 'no objects'}")
        time.sleep(interval)


def wait_ready(
    kubectl: Kubectl, namespace: str, timeout: float, show: Callable[[Snapshot], Any] = lambda _: None
) -> None:
    """Return when every SharedDecoder and SunModel of the namespace is ready."""
    for seen in watch_until_ready(kubectl, namespace, timeout):
        show(seen)


def engine_pods(kubectl: Kubectl, namespace: str, role: str, model: str = "") -> list[Json]:
    """Live engine pods of a role (of one task), oldest first."""
    selector = f"{names.LABEL_ROLE}={role}" + (f",{names.LABEL_MODEL}={model}" if model else "")
    pods = kubectl.items("pods", "--namespace", namespace, "--selector", selector)
    live = [pod for pod in pods if not pod["metadata"].get("deletionTimestamp")]
    return sorted(live, key=lambda pod: str(pod["metadata"]["creationTimestamp"]))


def pod_names(pods: Sequence[Json]) -> list[str]:
    return [pod["metadata"]["name"] for pod in pods]
