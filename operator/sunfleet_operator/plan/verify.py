"""Golden prompts before traffic: which revision has to answer which prompts on which decode pods, and what that means.

What was found out is a record of (revision, decoder revision, prompts), so nothing is asked twice and anything that
changes is asked again. A revision that serves already is checked again after a change of its decoder, but never loses
its traffic by that: there is nothing better to send requests to. Pure.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, Final

from pydantic import ValidationError

from sunfleet_api import names
from sunfleet_api.conditions import ConditionType, Reason
from sunfleet_api.fingerprint import revision_hash
from sunfleet_api.golden import GOLDEN_FILE
from sunfleet_api.sun_model import SunModel
from sunfleet_api.verification import Verification, VerificationStatus
from sunfleet_api.weights import parse_uri
from sunfleet_api.worker import VerificationReport
from sunfleet_operator import records
from sunfleet_operator.build import labels
from sunfleet_operator.build.record import record
from sunfleet_operator.build.verifier import GOLDEN_PATH, GOLDEN_VOLUME, Pods, Prompts, verifier_job
from sunfleet_operator.build.volumes import GivenVolumes
from sunfleet_operator.build.weights import Fetcher, Weights
from sunfleet_operator.observed import Children
from sunfleet_operator.plan import jobs
from sunfleet_operator.plan.actions import Apply, Delete, Write
from sunfleet_operator.plan.conditions import Verdict
from sunfleet_operator.plan.revisions import available
from sunfleet_operator.plan.weights import next_number
from sunfleet_operator.records import ModelRevision, VerificationRecord
from sunfleet_operator.types import (
    Json,
    Key,
    Ref,
    full_name,
    is_terminating,
    labels_of,
    name_of,
    ready_since,
    revision_of,
    status_of,
)

_ASK_AGAIN_SECONDS: Final = 60
# A ConfigMap is not watched.
_LOOK_AGAIN_SECONDS: Final = 30
_MOST_PODS: Final = 4  # of each side; more prove no more
_TYPE: Final = ConditionType.VERIFIED


@dataclass(frozen=True)
class Subject:
    """The revision to check, its module as it stands in a pod, its prefill pods, and its decoder. ``adapter``: the
    module's name on the pods of a PrefillPool."""

    revision: ModelRevision
    module: Weights
    prefill_pods: Sequence[Json]
    decoder: Json
    decode_deployments: Sequence[Json]
    decode_pods: Sequence[Json]
    adapter: str = ""


@dataclass(frozen=True)
class Facts:
    """Everything that a check depends on. ``serving``: clients' requests go to this revision already."""

    owner: Json
    key: Key
    children: Children
    asked: Verification | None
    subject: Subject
    config_map: Json | None
    fetcher: Fetcher
    pod: Mapping[str, Any]
    serving: bool
    paused: bool


@dataclass(frozen=True)
class Check:
    """``cleared``: may get traffic. ``rejected``: answered wrongly, so its pods are of no use. ``job``: id of the check
    whose Job has to stay. ``result``: what came of a check that this plan records."""

    cleared: bool
    rejected: bool = False
    verdict: Verdict | None = None
    status: VerificationStatus | None = None
    writes: tuple[Write, ...] = ()
    job: str = ""
    result: str = ""
    requeue_after: float | None = None


def check(facts: Facts, now: datetime) -> Check:
    """Where the check of this revision stands, and what leads further."""
    asked = facts.asked
    if asked is None or not asked.checks:
        return Check(cleared=True)
    prompts = _prompts(facts, asked)
    if isinstance(prompts, str):
        return _open(
            facts, None, Verdict(_TYPE, "False", Reason.GOLDEN_PROMPTS_NOT_FOUND, prompts), _LOOK_AGAIN_SECONDS
        )
    known = [
        found
        for found in records.newest(facts.children.records, VerificationRecord)
        if (found.revision, found.prompts) == (facts.subject.revision.revision, prompts.id)
    ]
    decoder = _decoder_revision(facts.subject)
    done = next((found for found in known if (found.decoder, found.decoder_revision) == decoder), None)
    if done is not None:
        return _concluded(facts, asked, done)
    last = known[0] if known else None
    if not decoder[1]:
        return _open(facts, last, _waiting("waits for a decode pod that reads this task's KV"))
    return _run(facts, asked, prompts, decoder, last, now)


def counting(model: SunModel, verdicts: Sequence[Verdict], *, none: bool) -> list[Verdict]:
    """Those that ``Ready`` is made of: a check that only warns, or that no pod is there for, holds nothing back."""
    asked = model.spec.verification
    passed_over = none or (asked is not None and asked.policy == "Warn")
    return [verdict for verdict in verdicts if not passed_over or verdict.type != _TYPE]


def verified(check: Check, serving: ModelRevision | None) -> list[Verdict]:
    """``Verified``, where it was asked for, and who serves meanwhile."""
    if check.verdict is None:
        return []
    verdict = check.verdict
    if check.rejected and serving is not None:
        return [replace(verdict, message=f"{verdict.message}; revision {serving.revision} goes on serving")]
    return [verdict]


def stale_jobs(children: Children, keep: Sequence[Check]) -> tuple[Write, ...]:
    """Deletions of checks that nobody waits for any more."""
    wanted = {each.job for each in keep}
    found = jobs.of_role(children.jobs, names.ROLE_VERIFIER)
    return tuple(Delete(Ref.of("Job", job)) for job in found if revision_of(job) not in wanted)


def _prompts(facts: Facts, asked: Verification) -> Prompts | str:
    """Where the prompts are, or why they are nowhere."""
    source, module = asked.golden_prompts, facts.subject.module
    if source is None:
        identity = revision_hash("prompts", {"beside": [module.uri, module.digest]})
        return Prompts(identity, module)
    if source.config_map_ref is not None:
        return _in_config_map(facts, source.config_map_ref.name)
    uri = source.uri or ""
    weights = Weights(uri=uri, path=GOLDEN_PATH, volume=GOLDEN_VOLUME, secret=module.secret, given=module.given)
    if parse_uri(uri).scheme == "file" and GivenVolumes.find(module.given, parse_uri(uri).location) is None:
        return f"{uri} lies in no volume that spec.template mounts into the container named engine"
    return Prompts(revision_hash("prompts", {"uri": uri}), weights)


def _in_config_map(facts: Facts, name: str) -> Prompts | str:
    where = f"ConfigMap {facts.key.namespace}/{name}"
    if facts.config_map is None:
        return f"there is no {where} (yet)"
    text = (facts.config_map.get("data") or {}).get(GOLDEN_FILE)
    if text is None:
        return f"{where} has no key {GOLDEN_FILE}"
    digest = hashlib.sha256(str(text).encode()).hexdigest()
    weights = Weights(uri=f"file://{GOLDEN_PATH}", path=GOLDEN_PATH, volume=GOLDEN_VOLUME)
    return Prompts(revision_hash("prompts", {"configMap": digest}), weights, config_map=name, sha256=digest)


def _decoder_revision(subject: Subject) -> tuple[str, str]:
    """The decoder, and its revision that counts: the newest that it asks for whose pods serve and read this KV."""
    serving = [
        revision_of(live)
        for live in subject.decode_deployments
        if available(live) and _format(live) == subject.revision.kv_fingerprint.label
    ]
    newest = str(status_of(subject.decoder).get("updateRevision") or "")
    chosen = newest if newest in serving else min(serving, default="")
    return full_name(subject.decoder), chosen


def _format(deployment: Json) -> str:
    return str(deployment["spec"]["template"]["metadata"]["labels"].get(names.LABEL_KV_FINGERPRINT, ""))


def _run(
    facts: Facts,
    asked: Verification,
    prompts: Prompts,
    decoder: tuple[str, str],
    last: VerificationRecord | None,
    now: datetime,
) -> Check:
    """The state of the Job that asks, which begins once there are pods to ask."""
    revision = facts.subject.revision.revision
    identity = revision_hash("verify", {"revision": revision, "decoder": list(decoder), "prompts": prompts.id})
    job = next((job for job in facts.children.jobs if _is(job, identity)), None)
    if job is not None:
        return _outcome(facts, asked, prompts, decoder, last, job, now)
    if facts.paused:
        return _open(facts, last, _waiting("nothing is checked while spec.paused is true"))
    engines = Pods(
        _addresses(facts.subject.prefill_pods),
        _addresses([pod for pod in facts.subject.decode_pods if revision_of(pod) == decoder[1]]),
        facts.subject.revision.decoder_digest,
        facts.subject.adapter,
    )
    if not engines.prefill or not engines.decode:
        missing = "prefill" if not engines.prefill else "decode"
        return _open(facts, last, _waiting(f"waits for a {missing} pod that is Ready"))
    made = verifier_job(facts.owner, facts.key, identity, prompts, engines, facts.fetcher, facts.pod)
    waiting = _waiting(f"revision {revision} answers golden prompts with decoder revision {decoder[1]}")
    return _open(facts, last, waiting, writes=(Apply(made),), job=identity)


def _is(job: Json, identity: str) -> bool:
    return revision_of(job) == identity and labels_of(job).get(names.LABEL_ROLE) == names.ROLE_VERIFIER


def _outcome(
    facts: Facts,
    asked: Verification,
    prompts: Prompts,
    decoder: tuple[str, str],
    last: VerificationRecord | None,
    job: Json,
    now: datetime,
) -> Check:
    identity = revision_of(job)
    own = jobs.pods_of(job, facts.children.pods)
    said = _said(own)
    if isinstance(said, VerificationReport) and said.total and not said.error_reason:
        found = VerificationRecord(
            revision=facts.subject.revision.revision, decoder=decoder[0], decoder_revision=decoder[1],
            prompts=prompts.id, passed=said.passed, total=said.total, first_mismatch=said.first_mismatch,
            time=now.strftime("%Y-%m-%dT%H:%M:%SZ"),
        )  # fmt: skip
        return _recorded(facts, asked, identity, found)
    failure = _failure(said) or jobs.problem(job, facts.children)
    over = jobs.ended(job)
    if over is None:
        if failure is None or isinstance(said, VerificationReport | str):
            return _open(facts, last, _waiting(f"Job {name_of(job)} asks golden prompts"), job=identity)
        return _open(facts, last, Verdict(_TYPE, "False", failure[0], failure[1]), job=identity)
    reason, message = failure or (Reason.VERIFICATION_FAILED, "the verifier Job ended without a report")
    verdict = Verdict(
        _TYPE, "False", reason, f"revision {facts.subject.revision.revision} cannot be checked: {message}"
    )
    left = _ASK_AGAIN_SECONDS - (now - over).total_seconds()
    if left > 0:
        return _open(facts, last, verdict, left, job=identity)
    return _open(facts, last, verdict, result="error")  # without a Job to keep: it is deleted, and made again


def _recorded(facts: Facts, asked: Verification, identity: str, found: VerificationRecord) -> Check:
    name = labels.verification_name(facts.key, identity)
    written = record(facts.owner, facts.key, name, found.data(), number=next_number(facts.children))
    done = _concluded(facts, asked, found)
    result = "passed" if asked.enough(found.passed, found.total) else "mismatch"
    return Check(
        cleared=done.cleared, rejected=done.rejected, verdict=done.verdict, status=done.status,
        writes=(Apply(written),), job=identity, result=result,
    )  # fmt: skip


def _said(own: Sequence[Json]) -> VerificationReport | str | None:
    words = jobs.last_words(own)
    if words is None:
        return None
    try:
        return VerificationReport.model_validate_json(words.message)
    except ValidationError:
        return words.otherwise


def _failure(said: VerificationReport | str | None) -> tuple[str, str] | None:
    if isinstance(said, VerificationReport):
        message = said.error_message or "the verifier's report holds no prompts"
        return said.error_reason or Reason.VERIFICATION_FAILED, message
    return (Reason.VERIFICATION_FAILED, said) if said else None


def _addresses(pods: Sequence[Json]) -> list[str]:
    """Of those that clients' requests could go to."""
    found = [
        (name_of(pod), str(status_of(pod).get("podIP") or ""))
        for pod in pods
        if ready_since(pod) is not None and not is_terminating(pod)
    ]
    return [ip for _, ip in sorted(found) if ip][:_MOST_PODS]


def _concluded(facts: Facts, asked: Verification, found: VerificationRecord) -> Check:
    """What a finished check means."""
    passed = asked.enough(found.passed, found.total)
    text = (
        f"revision {found.revision} answered {found.passed} of {found.total} golden prompts exactly with decoder"
        f" revision {found.decoder_revision}"
    )
    if passed:
        return Check(cleared=True, verdict=Verdict(_TYPE, "True", Reason.VERIFIED, text), status=_told(found))
    lenient = asked.policy == "Warn"
    text += f"; {found.first_mismatch}"
    return Check(
        cleared=lenient or facts.serving,
        rejected=not lenient and not facts.serving,
        verdict=Verdict(_TYPE, "False", Reason.GOLDEN_PROMPT_MISMATCH, text),
        status=_told(found),
    )


def _open(
    facts: Facts,
    last: VerificationRecord | None,
    verdict: Verdict,
    requeue_after: float | None = None,
    *,
    writes: tuple[Write, ...] = (),
    job: str = "",
    result: str = "",
) -> Check:
    """Nothing is known with the present decoder. What passed before goes on as it is while it is checked again."""
    asked = facts.asked
    passed = last is not None and asked is not None and asked.enough(last.passed, last.total)
    if passed and last is not None and verdict.reason == Reason.VERIFYING:
        text = f"revision {last.revision} passed with decoder revision {last.decoder_revision}; {verdict.message}"
        verdict = Verdict(_TYPE, "True", Reason.VERIFIED, text)
    return Check(
        cleared=passed or facts.serving or (asked is not None and asked.policy == "Warn"),
        verdict=verdict, status=_told(last) if last else None, writes=writes, job=job, result=result,
        requeue_after=requeue_after,
    )  # fmt: skip


def _waiting(message: str) -> Verdict:
    return Verdict(_TYPE, "Unknown", Reason.VERIFYING, message)


def _told(found: VerificationRecord) -> VerificationStatus:
    return VerificationStatus(
        revision=found.revision, decoder_revision=found.decoder_revision, passed=found.passed, total=found.total,
        first_mismatch=found.first_mismatch, time=found.time,
    )  # fmt: skip
