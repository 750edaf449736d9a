"""What keeps a pod from running, in words that a person can act on. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from pydantic import ValidationError

from sunfleet_api import names
from sunfleet_api.conditions import Reason
from sunfleet_api.worker import ResolverReport
from sunfleet_operator.build.weights import FETCH_CONTAINER
from sunfleet_operator.types import Json, is_terminating, name_of, status_of

_NOT_READY = (
    "the engine answers, but has not passed its self-check, or drains: its log says what failed, "
    "and so does the body of its /sunfleet/readyz"
)
_IMAGE = frozenset({"ErrImagePull", "ImagePullBackOff", "InvalidImageName", "ErrImageNeverPull"})
_CONFIG = frozenset({"CreateContainerConfigError", "CreateContainerError", "RunContainerError"})


def problem(pods: Iterable[Json]) -> tuple[str, str] | None:
    """(reason, message) of the first pod that cannot run by itself; ``None`` when all only need time."""
    found = [problem for pod in pods if not is_terminating(pod) for problem in _problems(pod)]
    # An evicted pod lies around while its successor runs or says what is wrong now; one that is not ready may only need
    # time, or the others.
    return min(found, key=lambda problem: problem[0] in (Reason.EVICTED, Reason.POD_NOT_READY), default=None)


def refused(deployments: Iterable[Json]) -> tuple[str, str] | None:
    """(reason, message) of the first Deployment that gets no pods: a quota, a LimitRange, a policy refuses them."""
    for live in deployments:
        for condition in status_of(live).get("conditions") or ():
            if (condition.get("type"), condition.get("status")) == ("ReplicaFailure", "True"):
                return Reason.FAILED_CREATE, f"Deployment {name_of(live)} gets no pod: {condition.get('message')}"
    return None


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
            reason, words = _told(status) or (Reason.CRASH_LOOP, last_words(status))
            yield reason, f"{where}: {words}"
        elif status.get("name") == names.ENGINE_CONTAINER and status.get("started") and not status.get("ready"):
            yield Reason.POD_NOT_READY, f"{where}: {_NOT_READY}"


def waiting(pods: Iterable[Json], progress: Mapping[str, str]) -> tuple[str, str] | None:
    """(reason, message) of the first pod that still downloads its weights; ``None`` when none does."""
    found = downloading(pods)
    if found is None:
        return None
    pod, status = found
    parts = [f"since {status['state']['running']['startedAt']}", progress.get(name_of(pod), "")]
    return Reason.DOWNLOADING, (
        f"pod {name_of(pod)} downloads weights {', '.join(filter(None, parts))}{_attempts(status)}"
    )


def downloading(pods: Iterable[Json]) -> tuple[Json, Json] | None:
    """The first pod that downloads its weights, and the status of the container that does."""
    for pod in pods:
        for status in () if is_terminating(pod) else status_of(pod).get("initContainerStatuses") or ():
            running = (status.get("state") or {}).get("running") or {}
            if running.get("startedAt") and str(status.get("name")).startswith(FETCH_CONTAINER):
                return pod, status
    return None


def _attempts(status: Json) -> str:
    """Why it is not the first attempt, where it is not."""
    told = _told(status)
    return f", attempt {int(status.get('restartCount') or 0) + 1} after {told[0]}: {told[1]}" if told else ""


def _told(status: Json) -> tuple[str, str] | None:
    """What a download said when it failed, as a resolver says it."""
    for state in (status.get("state") or {}, status.get("lastState") or {}):
        ended = state.get("terminated")
        if ended:
            try:
                report = ResolverReport.model_validate_json(str(ended.get("message") or ""))
            except ValidationError:
                return None
            return (report.error_reason, report.error_message) if report.error_reason else None
    return None


def last_words(status: Json) -> str:
    """Exit code and message of the last end of a container; the last line when the message is a log."""
    for state in (status.get("state") or {}, status.get("lastState") or {}):
        ended = state.get("terminated")
        if ended:
            lines = str(ended.get("message") or "").strip().splitlines()
            return f"exit code {ended.get('exitCode')}" + (f": {lines[-1]}" if lines else "")
    return "restarts again and again"
