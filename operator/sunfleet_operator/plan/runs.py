"""What the Job of a tuner or quantiser and its pods tell: how it ended, its report, and what holds it up. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from pydantic import ValidationError

from sunfleet_api import names
from sunfleet_api.conditions import Reason
from sunfleet_api.tuning import TuningReport
from sunfleet_operator.plan import pods as engine_pods
from sunfleet_operator.types import Json, labels_of, metadata, name_of, status_of

_INDEX: Final = "batch.kubernetes.io/job-completion-index"
_KILLED: Final = (
    "the kernel ended it for want of memory: give the container more (spec.template), or take less with"
    " micro_tokens, gradient_checkpointing or lora"
)


def ended(job: Json) -> str:
    """``Complete``, ``Failed``, or empty while it runs."""
    found = _ending(job)
    return str(found.get("type")) if found else ""


def _ending(job: Json) -> Json | None:
    for condition in status_of(job).get("conditions") or ():
        if condition.get("type") in {"Complete", "Failed"} and condition.get("status") == "True":
            return dict(condition)
    return None


def first_pods(pods: Sequence[Json]) -> list[Json]:
    """Those that speak for the run, newest first: of an Indexed Job the pods of index 0."""
    speaking = [pod for pod in pods if _index(pod) in {"", "0"}]
    return sorted(speaking, key=lambda pod: str(metadata(pod).get("creationTimestamp")), reverse=True)


def _index(pod: Json) -> str:
    found = labels_of(pod).get(_INDEX) or (metadata(pod).get("annotations") or {}).get(_INDEX)
    return str(found or "")


def running(pods: Sequence[Json]) -> Json | None:
    """The pod whose log tells how far the run is."""
    return next((pod for pod in first_pods(pods) if status_of(pod).get("phase") == "Running"), None)


def at_work(pods: Sequence[Json]) -> int:
    return sum(1 for pod in pods if status_of(pod).get("phase") == "Running")


def report(pods: Sequence[Json]) -> TuningReport | None:
    """Of the pod that ended well."""
    found = (_told(end) for pod in first_pods(pods) for end in _ends(pod) if end.get("exitCode") == 0)
    return next((told for told in found if told is not None and not told.error_reason), None)


def trouble(pods: Sequence[Json]) -> tuple[str, str] | None:
    """What keeps a pod that has not ended from working."""
    return engine_pods.problem(pod for pod in pods if status_of(pod).get("phase") not in {"Failed", "Succeeded"})


def last_failure(pods: Sequence[Json]) -> tuple[str, str] | None:
    """(reason, message) of the pod that failed last."""
    newest = sorted(pods, key=lambda pod: str(metadata(pod).get("creationTimestamp")), reverse=True)
    return next((why for pod in newest if (why := _why(pod)) is not None), None)


def failure(job: Json, pods: Sequence[Json]) -> tuple[str, str]:
    """(reason, message) of a Job that failed: what a pod said where one said anything, and what the Job says."""
    ending = _ending(job) or {}
    reason, words = str(ending.get("reason") or ""), str(ending.get("message") or "the Job failed")
    if reason == "DeadlineExceeded":
        return Reason.DEADLINE_EXCEEDED, "it took longer than spec.activeDeadlineSeconds; its checkpoints stay"
    why = last_failure(pods)
    if why is None:
        return (reason or Reason.TUNING_FAILED), words
    many = (
        f" (given up after {int(status_of(job).get('failed') or 1)} attempts)"
        if reason == "BackoffLimitExceeded"
        else ""
    )
    return why[0], f"{why[1]}{many}"


def _why(pod: Json) -> tuple[str, str] | None:
    where, whole = f"pod {name_of(pod)}", status_of(pod)
    if whole.get("phase") == "Failed" and whole.get("reason"):
        return Reason.EVICTED, f"{where}: {whole['reason']}: {whole.get('message') or 'ended by the node'}"
    for status in engine_pods.container_statuses(pod):
        end = (status.get("state") or {}).get("terminated") or {}
        if not end.get("exitCode"):
            continue
        told = _told(end)
        if told is not None and told.error_reason:
            return told.error_reason, told.error_message
        if end.get("reason") == "OOMKilled":
            return Reason.OUT_OF_MEMORY, f"{where}: {_KILLED}"
        return Reason.TUNING_FAILED, f"{where}, container {status.get('name')}: {engine_pods.last_words(status)}"
    return None


def _ends(pod: Json) -> Iterator[Json]:
    for status in status_of(pod).get("containerStatuses") or ():
        end = (status.get("state") or {}).get("terminated")
        if end and status.get("name") == names.TUNER_CONTAINER:
            yield end


def _told(end: Json) -> TuningReport | None:
    try:
        return TuningReport.model_validate_json(str(end.get("message") or ""))
    except ValidationError:
        return None
