"""What Jobs that run for an object have to say: their pods, and the last words of these. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from sunfleet_api import names
from sunfleet_api.conditions import Reason
from sunfleet_operator.observed import Children
from sunfleet_operator.plan import pods
from sunfleet_operator.types import Json, labels_of, name_of, revision_of, status_of


@dataclass(frozen=True)
class LastWords:
    """A container's termination message, and what to say when it cannot be read."""

    message: str
    otherwise: str


def of_role(jobs: Sequence[Json], role: str) -> list[Json]:
    """Jobs that were made for one purpose."""
    return [job for job in jobs if labels_of(job).get(names.LABEL_ROLE) == role]


def pods_of(job: Json, all_pods: Sequence[Json]) -> list[Json]:
    """Newest first."""
    role = labels_of(job).get(names.LABEL_ROLE)
    own = [
        pod for pod in all_pods if labels_of(pod).get(names.LABEL_ROLE) == role and revision_of(pod) == revision_of(job)
    ]
    return sorted(own, key=lambda pod: str(pod["metadata"].get("creationTimestamp")), reverse=True)


def begun(job: Json) -> bool:
    """Whether its controller has taken it up, and is not done with it: from then on it should have a pod."""
    return bool(status_of(job).get("startTime")) and ended(job) is None


def podless(job: Json, all_pods: Sequence[Json]) -> bool:
    """Whether it has begun and gets no pod. Where it counts one itself, that one's event is on its way."""
    return begun(job) and not status_of(job).get("active") and not pods_of(job, all_pods)


def explained(job: Json, own_pods: Sequence[Json]) -> bool:
    """Whether its pods are known as far as it is itself: one of a Job that has begun, and of one that has ended all
    that it has counted, at their end."""
    if ended(job) is None:
        return not begun(job) or bool(own_pods or status_of(job).get("active"))
    over = sum(1 for pod in own_pods if status_of(pod).get("phase") in {"Succeeded", "Failed"})
    return over >= max(1, sum(int(status_of(job).get(count) or 0) for count in ("succeeded", "failed")))


def problem(job: Json, children: Children) -> tuple[str, str] | None:
    """(reason, message) of what keeps it from running; ``None`` when it only needs time."""
    own = pods_of(job, children.pods)
    complaint = children.complaints.get(name_of(job))
    if complaint and not own:
        return Reason.FAILED_CREATE, f"Job {name_of(job)} gets no pod: {complaint}"
    return pods.problem(own)


def last_words(job_pods: Sequence[Json]) -> LastWords | None:
    """The last thing that a pod of the Job said; ``None`` while none has ended."""
    for pod in job_pods:
        if status_of(pod).get("reason"):
            continue  # evicted: it was stopped, and its exit code says nothing of what it was to find out
        for status in status_of(pod).get("containerStatuses") or ():
            for state in (status.get("state") or {}, status.get("lastState") or {}):
                ended = state.get("terminated")
                if ended:
                    return LastWords(str(ended.get("message") or ""), pods.last_words(status))
    return None


def ended(job: Json) -> datetime | None:
    """When the Job was over, whatever came of it."""
    for condition in status_of(job).get("conditions") or ():
        if condition.get("type") in {"Complete", "Failed"} and condition.get("status") == "True":
            return datetime.fromisoformat(str(condition["lastTransitionTime"]))
    return None
