"""From a weights URI to a record of what it is, through a resolver Job that runs once per URI. Pure."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from pydantic import ValidationError

from sunfleet_api import names
from sunfleet_api.conditions import ConditionType, Reason
from sunfleet_api.fingerprint import revision_hash
from sunfleet_api.weights import WeightsSource, parse_uri
from sunfleet_api.worker import ResolverReport
from sunfleet_operator import records
from sunfleet_operator.build import labels
from sunfleet_operator.build.record import record
from sunfleet_operator.build.resolver import resolver_job
from sunfleet_operator.build.weights import FETCHED_SCHEMES, Fetcher, Weights
from sunfleet_operator.observed import Children
from sunfleet_operator.plan import jobs
from sunfleet_operator.plan.actions import Apply, Delete, Write
from sunfleet_operator.plan.conditions import Verdict
from sunfleet_operator.records import WeightsRecord
from sunfleet_operator.types import Json, Key, Ref, name_of, revision_of

_ASK_AGAIN_SECONDS = 60
_PODLESS_SECONDS = 15
_TYPE = ConditionType.WEIGHTS_READY


@dataclass(frozen=True)
class Resolution:
    """What is known of a URI, the condition that says so, and the writes that lead further."""

    report: ResolverReport | None
    verdict: Verdict
    writes: tuple[Write, ...] = ()
    requeue_after: float | None = None


@dataclass(frozen=True)
class Question:
    """What to find out. ``weights`` is ``source`` as it stands in a pod; ``pod`` holds fields of the resolver's pod."""

    source: WeightsSource
    weights: Weights
    fetcher: Fetcher
    pod: Mapping[str, Any]

    def id(self, owner: Key) -> str:
        """Part of the Job's name: a Job cannot be changed, so another way of asking is another Job."""
        how = [self.weights.uri, self.weights.secret, self.weights.path, self.fetcher.image, self.fetcher.hf_endpoint]
        volume = self.weights.given.find(self.location) if self.scheme == "file" else None
        download = self.fetcher.download.given()
        more = {"volume": volume, "download": download} if volume or download else {}
        return revision_hash("resolver", {"owner": owner.kind, "how": how, "pod": self.pod, **more})

    @property
    def scheme(self) -> str:
        return parse_uri(self.weights.uri).scheme

    @property
    def location(self) -> str:
        return parse_uri(self.weights.uri).location

    @property
    def fault(self) -> str:
        """Why it cannot even be asked; empty when it can."""
        if self.scheme != "file" or self.weights.given.find(self.location) is not None:
            return ""
        return (
            f"{self.weights.uri} lies in no volume of this object: add one to spec.template.spec.volumes and mount it"
            " over that path into the container named engine"
        )


def inherited(template_spec: Mapping[str, Any]) -> Mapping[str, Any]:
    """What a resolver's pod takes from the user's pod template: how to get images, and on to nodes with local
    volumes, and who it is for a cloud's workload identity."""
    wanted = ("imagePullSecrets", "tolerations", "serviceAccountName")
    return {field: template_spec[field] for field in wanted if field in template_spec}


def resolve(
    owner: Json,
    key: Key,
    children: Children,
    question: Question,
    *,
    paused: bool,
    now: datetime,
    leave: Collection[str] = (),
) -> Resolution:
    """The recorded answer; without one, the state of the Job that looks for it. While ``paused`` nothing is started.

    ``leave``: ids of other questions of the same object, whose Jobs are none of this one's business.
    """
    source = question.source
    resolvers = [job for job in jobs.of_role(children.jobs, names.ROLE_RESOLVER) if revision_of(job) not in leave]
    known = next((r for r in records.newest(children.records, WeightsRecord) if r.uri == source.uri), None)
    if known is not None:
        done = tuple(Delete(Ref.of("Job", job)) for job in resolvers)
        return Resolution(known.report, _resolved(source, known.report), () if paused else done)
    if fault := question.fault:
        return _failed(Reason.VOLUME_NOT_FOUND, fault)
    if paused:
        return _failed(Reason.PAUSED, f"{source.uri} is not resolved while spec.paused is true")
    asked = question.id(key)
    job = next((job for job in resolvers if revision_of(job) == asked), None)
    stale = tuple(Delete(Ref.of("Job", other)) for other in resolvers if other is not job)
    if job is None:
        start = Apply(resolver_job(owner, key, asked, question.weights, question.fetcher, question.pod))
        return Resolution(None, _resolving(source, "resolver Job created"), (*stale, start))
    outcome = _outcome(owner, key, children, source, job, now)
    return replace(outcome, writes=(*stale, *outcome.writes))


def _outcome(owner: Json, key: Key, children: Children, source: WeightsSource, job: Json, now: datetime) -> Resolution:
    found = _report(jobs.pods_of(job, children.pods))
    if isinstance(found, ResolverReport) and found.digest:
        name = labels.weights_record_name(key, source.uri)
        written = record(
            owner, key, name, WeightsRecord(uri=source.uri, report=found).data(), number=next_number(children)
        )
        return Resolution(found, _resolved(source, found), (Apply(written),))
    ended = jobs.ended(job)
    if ended is not None:
        return _lost(source, job, found, left=_ASK_AGAIN_SECONDS - (now - ended).total_seconds())
    failure = _failure(found) or jobs.problem(job, children)
    if failure is not None:
        return _failed(failure[0], f"{source.uri}: {failure[1]} (Job {name_of(job)} keeps trying)")
    # A Job that gets no pod says so in Events, which are not watched.
    again = None if jobs.pods_of(job, children.pods) else _PODLESS_SECONDS
    return Resolution(None, _resolving(source, f"Job {name_of(job)} runs"), requeue_after=again)


def _lost(source: WeightsSource, job: Json, found: ResolverReport | str | None, *, left: float) -> Resolution:
    """The Job ended and its answer is not there: the pod was removed, or the image is not ours. Ask again, but not at
    once."""
    reason, message = _failure(found) or (Reason.RESOLVE_FAILED, "the resolver Job ended without a report")
    verdict = _failed(reason, f"{source.uri}: {message}").verdict
    if left > 0:
        return Resolution(None, verdict, requeue_after=left)
    return Resolution(None, verdict, (Delete(Ref.of("Job", job)),))


def next_number(children: Children) -> int:
    return 1 + max((records.number(item) for item in children.records), default=0)


def _report(job_pods: Sequence[Json]) -> ResolverReport | str | None:
    """The last thing that a resolver said: its report, other words, or nothing yet."""
    words = jobs.last_words(job_pods)
    return None if words is None else _parse(words.message, words.otherwise)


def _parse(message: str, otherwise: str) -> ResolverReport | str:
    try:
        return ResolverReport.model_validate_json(message)
    except ValidationError:
        return otherwise


def _failure(found: ResolverReport | str | None) -> tuple[str, str] | None:
    if isinstance(found, ResolverReport):
        return found.error_reason or Reason.RESOLVE_FAILED, found.error_message or "the resolver's report has no digest"
    return (Reason.RESOLVE_FAILED, found) if found else None


def _resolved(source: WeightsSource, report: ResolverReport) -> Verdict:
    uri = parse_uri(source.uri)
    if uri.scheme in FETCHED_SCHEMES and not uri.pinned:
        return Verdict(
            _TYPE,
            "True",
            Reason.FLOATING_REVISION,
            f"{source.uri} was resolved once, to {report.resolved_uri}; name that revision to make the manifest say so",
        )
    return Verdict(_TYPE, "True", Reason.RESOLVED, report.digest)


def _resolving(source: WeightsSource, message: str) -> Verdict:
    return Verdict(_TYPE, "False", Reason.RESOLVING, f"{source.uri}: {message}")


def _failed(reason: str, message: str) -> Resolution:
    return Resolution(None, Verdict(_TYPE, "False", reason, message))
