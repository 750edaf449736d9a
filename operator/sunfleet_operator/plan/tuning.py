"""What to do about a PrefillTuning: one Job, and what it says of itself. Pure.

A run that ended stays ended: its Job may go (``ttlSecondsAfterFinished``), and nothing is started again.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from pydantic import ValidationError

from sunfleet_api.conditions import ConditionType, Reason
from sunfleet_api.prefill_tuning import PrefillTuning, TuningArtifact
from sunfleet_api.tuning import TuningReport, progress_of
from sunfleet_operator.build.tuner import run_job, run_service
from sunfleet_operator.observed import Defaults, ObservedTuning
from sunfleet_operator.plan import runs, status
from sunfleet_operator.plan.actions import Apply, Plan, Scale, Write
from sunfleet_operator.plan.common import invalid, refused, waiting
from sunfleet_operator.plan.conditions import Verdict
from sunfleet_operator.plan.tuning_work import Asked, ask
from sunfleet_operator.types import Json, Manifest, is_terminating, metadata, spec_of, status_of

# A decoder that is not there yet, and a run's log, are looked at so often.
LOOK_AGAIN_SECONDS = 30.0


@dataclass(frozen=True)
class _Outcome:
    """What holds now, what to write, and what the status tells beside its conditions."""

    verdicts: tuple[Verdict, ...]
    writes: tuple[Write, ...] = ()
    artifact: TuningArtifact | None = None
    look_again: bool = False


def plan(observed: ObservedTuning, defaults: Defaults, now: datetime, *, refusal: str = "") -> Plan:
    """Start the Job once everything that it refers to is there; then repeat what it says. Deletion is the garbage
    collector's work."""
    if is_terminating(observed.live):
        return Plan()
    if observed.predecessor:
        return waiting(observed.live, now)
    try:
        tuning = PrefillTuning.parse(observed.live)
    except ValidationError as error:
        return invalid(observed.live, error, PrefillTuning, now)
    if _ended_before(observed.live):
        return _after_the_end(observed, tuning, now)
    asked = ask(observed, tuning, defaults)
    outcome = _decide(observed, tuning, asked)
    verdicts = refused(outcome.verdicts, refusal)
    return Plan(
        before=outcome.writes,
        status=status.write(observed.live, _fields(observed, outcome, now), verdicts, now),
        events=status.events(observed.live, verdicts),
        requeue_after=LOOK_AGAIN_SECONDS if outcome.look_again else None,
    )


def _ended_before(live: Json) -> bool:
    ends = {str(ConditionType.COMPLETE), str(ConditionType.FAILED)}
    return any(c.get("type") in ends and c.get("status") == "True" for c in status_of(live).get("conditions") or ())


def _after_the_end(observed: ObservedTuning, tuning: PrefillTuning, now: datetime) -> Plan:
    """The status stays; how long the Job does may still be changed."""
    kept = {k: v for k, v in status_of(observed.live).items() if k not in {"conditions", "observedGeneration"}}
    verdicts = [
        Verdict(ConditionType(c["type"]), c["status"], c["reason"], c.get("message", ""))
        for c in status.live_conditions(observed.live)
    ]
    writes = _steer(observed.job, _wanted_of_job(tuning, suspend=None)) if observed.job else ()
    return Plan(before=writes, status=status.write(observed.live, kept, verdicts, now))


def _decide(observed: ObservedTuning, tuning: PrefillTuning, asked: Asked) -> _Outcome:
    if asked.work is None and observed.job is None:
        why = next(verdict for verdict in asked.verdicts if verdict.status != "True")
        return _Outcome(
            (*asked.verdicts, _progressing("False", why.reason, why.message), _not_complete()), (), None, True
        )
    if observed.job is None and asked.work is not None:
        return _start(observed, tuning, asked)
    if observed.job is None:
        raise AssertionError("a run without a Job either starts or waits")
    ended = runs.ended(observed.job)
    if ended == "Complete":
        return _completed(observed, tuning, asked)
    if ended == "Failed":
        return _failed(observed, asked)
    writes = _steer(observed.job, _wanted_of_job(tuning, suspend=tuning.spec.suspend))
    if tuning.spec.suspend:
        return _Outcome((*asked.verdicts, *_suspended(), _not_complete()), writes)
    return _Outcome((*asked.verdicts, _running(observed), _not_complete()), writes, None, look_again=True)


def _start(observed: ObservedTuning, tuning: PrefillTuning, asked: Asked) -> _Outcome:
    if asked.work is None:
        raise AssertionError("only what is known to be possible is started")
    service = (Apply(run_service(observed.live, observed.key)),) if tuning.spec.nodes > 1 else ()
    job = Apply(run_job(observed.live, observed.key, asked.work))
    if tuning.spec.suspend:
        return _Outcome((*asked.verdicts, *_suspended(), _not_complete()), (*service, job))
    begun = _progressing("True", Reason.STARTED, f"Job {asked.work.name} created")
    return _Outcome((*asked.verdicts, begun, _not_complete()), (*service, job), None, look_again=True)


def _wanted_of_job(tuning: PrefillTuning, *, suspend: bool | None) -> dict[str, Any]:
    """The fields of a Job that may change while it is there."""
    keep = tuning.spec.ttl_seconds_after_finished
    return {
        **({} if suspend is None else {"suspend": suspend}),
        **({} if keep is None else {"ttlSecondsAfterFinished": keep}),
    }


def _steer(job: Json, wanted: dict[str, Any]) -> tuple[Write, ...]:
    """By a field manager of its own: the rest of a Job cannot change, whatever a newer operator would build."""
    live = spec_of(job)
    if all(live.get(field, False) == value for field, value in wanted.items()):
        return ()
    meta = metadata(job)
    manifest: Manifest = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": meta["name"], "namespace": meta["namespace"], "uid": meta["uid"]},
        "spec": wanted,
    }
    return (Scale(manifest),)


def _running(observed: ObservedTuning) -> Verdict:
    """What it waits for, why it was started again, or how far it is."""
    trouble = runs.trouble(observed.pods)
    if trouble is not None:
        return _progressing("True", *trouble)
    progress = progress_of(observed.log)
    done = (
        f"step {progress.step} of {progress.total_steps}" if progress else f"{runs.at_work(observed.pods)} pods at work"
    )
    again = runs.last_failure(observed.pods)
    return _progressing("True", Reason.RUNNING, f"{done}{f'; started again after {again[1]}' if again else ''}")


def _completed(observed: ObservedTuning, tuning: PrefillTuning, asked: Asked) -> _Outcome:
    report = runs.report(observed.pods) or TuningReport()
    uri = tuning.spec.output.uri
    artifact = TuningArtifact(
        uri=uri,
        digest=report.digest,
        decoder_digest=report.decoder_digest,
        kv_fingerprint=report.kv_fingerprint,
        golden_prompts_uri=uri if report.golden else "",  # the folder: what a SunModel's verification takes
        metrics=report.metrics,
    )
    told = f"{uri} {report.digest}" if report.digest else f"{uri}; its pod went before it could tell the digest"
    verdicts = (
        *asked.verdicts,
        _progressing("False", Reason.COMPLETED, told),
        Verdict(ConditionType.COMPLETE, "True", Reason.COMPLETED, told),
    )
    return _Outcome(verdicts, (), artifact)


def _failed(observed: ObservedTuning, asked: Asked) -> _Outcome:
    reason, message = runs.failure(observed.job or {}, observed.pods)
    verdicts = (
        *asked.verdicts,
        _progressing("False", reason, message),
        Verdict(ConditionType.COMPLETE, "False", reason, message),
        Verdict(ConditionType.FAILED, "True", reason, message),
    )
    return _Outcome(verdicts)


def _progressing(status_: Any, reason: str, message: str) -> Verdict:
    return Verdict(ConditionType.PROGRESSING, status_, reason, message)


def _suspended() -> tuple[Verdict, Verdict]:
    message = "spec.suspend is true: the run goes on from its last checkpoint when it is taken back"
    return (
        _progressing("False", Reason.SUSPENDED, message),
        Verdict(ConditionType.SUSPENDED, "True", Reason.SUSPENDED, message),
    )


def _not_complete() -> Verdict:
    return Verdict(ConditionType.COMPLETE, "False", Reason.PENDING, "the run has not ended")


def _fields(observed: ObservedTuning, outcome: _Outcome, now: datetime) -> dict[str, Any]:
    """The status without its conditions and generation."""
    job = status_of(observed.job) if observed.job else {}
    progress = _progress(observed, now, final=outcome.artifact is not None)
    return {
        "startTime": str(job.get("startTime") or ""),
        "completionTime": str(job.get("completionTime") or ""),
        "active": int(job.get("active") or 0),
        "failed": int(job.get("failed") or 0),
        **({"progress": progress} if progress else {}),
        **({"artifact": outcome.artifact.to_wire()} if outcome.artifact else {}),
    }


def _progress(observed: ObservedTuning, now: datetime, *, final: bool) -> Json | None:
    """What the log says now, unless the status says something that is less than half a minute old."""
    live: Json | None = status_of(observed.live).get("progress")
    told = progress_of(observed.log)
    if told is None:
        return live
    fresh = told.to_wire()
    if live and not final and _age(str(live.get("updateTime") or ""), now) < LOOK_AGAIN_SECONDS:
        return live
    return fresh


def _age(stamp: str, now: datetime) -> float:
    try:
        return (now - datetime.fromisoformat(stamp)).total_seconds()
    except (ValueError, TypeError):  # no time, or one without a zone
        return LOOK_AGAIN_SECONDS
