"""What keeps a pod from running, in words that a person can act on. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from sunfleet_api.conditions import Reason
from sunfleet_operator.types import Json, is_terminating, name_of, status_of

_IMAGE = frozenset({"ErrImagePull", "ImagePullBackOff", "InvalidImageName", "ErrImageNeverPull"})
_CONFIG = frozenset({"CreateContainerConfigError", "CreateContainerError", "RunContainerError"})


def problem(pods: Iterable[Json]) -> tuple[str, str] | None:
    """(reason, message) of the first pod that cannot run by itself; ``None`` when all only need time."""
    found = [problem for pod in pods if not is_terminating(pod) for problem in _problems(pod)]
    # An evicted pod lies around while its successor runs or says what is wrong now.
    return min(found, key=lambda problem: problem[0] == Reason.EVICTED, default=None)


def container_statuses(pod: Json) -> Iterator[Json]:
    """Of init containers first, in order: the first one that fails is the one that matters."""
    yield from status_of(pod).get("initContainerStatuses") or ()
    yield from status_of(pod).get("containerStatuses") or ()


def _problems(pod: Json) -> Iterator[tuple[str, str]]:
    pod_name, whole = name_of(pod), status_of(pod)
    if whole.get("phase") == "Failed" and whole.get("reason"):
        yield Reason.EVICTED, f"pod {pod_name}: {whole['reason']}: {whole.get('message') or 'ended by the node'}"
        return
    for condition in status_of(pod).get("conditions") or ():
        if condition.get("type") == "PodScheduled" and condition.get("status") == "False":
            yield Reason.UNSCHEDULABLE, f"pod {pod_name}: {condition.get('message') or 'not scheduled'}"
    for status in container_statuses(pod):
        waiting = (status.get("state") or {}).get("waiting") or {}
        why, where = waiting.get("reason"), f"pod {pod_name}, container {status.get('name')}"
        if why in _IMAGE:
            text = waiting.get("message") or why
            yield Reason.IMAGE_PULL_FAILED, f"{where}: {text} (image {status.get('image')})"
        elif why in _CONFIG:
            yield why, f"{where}: {waiting.get('message') or why}"
        elif why == "CrashLoopBackOff":
            yield Reason.CRASH_LOOP, f"{where}: {last_words(status)}"


def last_words(status: Json) -> str:
    """Exit code and message of the last end of a container; the last line when the message is a log."""
    for state in (status.get("state") or {}, status.get("lastState") or {}):
        ended = state.get("terminated")
        if ended:
            lines = str(ended.get("message") or "").strip().splitlines()
            return f"exit code {ended.get('exitCode')}" + (f": {lines[-1]}" if lines else "")
    return "restarts again and again"
