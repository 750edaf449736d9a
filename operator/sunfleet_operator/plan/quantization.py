"""A decoder in fewer bits: the Job that makes it out of the 16-bit checkpoint, and what it became. Pure.

Made once: a record says what lies at ``outputUri``, and from then on that is what decode pods run. The 16-bit
checkpoint stays what adapters run over and what tuning starts from.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from datetime import datetime
from functools import partial
from typing import Final

from sunfleet_api import names
from sunfleet_api.conditions import ConditionType, Reason
from sunfleet_api.fingerprint import revision_hash
from sunfleet_api.shared_decoder import Quantization, SharedDecoder
from sunfleet_api.tuning import DATA_PREFIX, OUTPUT_PREFIX, QuantizeJob
from sunfleet_api.weights import WeightsSource, parse_uri
from sunfleet_operator import records
from sunfleet_operator.build import labels
from sunfleet_operator.build.tuner import Place, Work, run_job
from sunfleet_operator.build.volumes import GivenVolumes
from sunfleet_operator.build.weights import Weights, model_weights
from sunfleet_operator.observed import Defaults, ObservedDecoder
from sunfleet_operator.plan import jobs, runs, weights
from sunfleet_operator.plan.actions import Apply, Delete
from sunfleet_operator.plan.conditions import Verdict
from sunfleet_operator.plan.weights import Question, Resolution
from sunfleet_operator.records import WeightsRecord
from sunfleet_operator.types import Json, Ref, revision_of

_BITS: Final = {"W4A16": 4}
_WRITABLE: Final = ("pvc", "s3", "gs")
_READABLE: Final = ("hf", *_WRITABLE)
# What made a Job fail may have been mended since: a Secret, room in a bucket, a GPU.
_AGAIN_SECONDS: Final = 600
_BACKOFF_LIMIT: Final = 3


def in_pod(asked: Quantization) -> Weights:
    """The quantised checkpoint as it stands in a decode pod."""
    return model_weights(asked.output_uri, _secret(asked), GivenVolumes())


def question(decoder: SharedDecoder, asked: Quantization, defaults: Defaults) -> Question:
    """What the quantised checkpoint is, once it is there."""
    source = WeightsSource(uri=asked.output_uri, credentials_secret_ref=asked.credentials_secret_ref)
    fetcher = defaults.fetcher.told(decoder.spec.model.download)
    return Question(source, in_pod(asked), fetcher, weights.inherited(decoder.spec.template.spec))


def resolve(
    observed: ObservedDecoder,
    decoder: SharedDecoder,
    asked: Quantization,
    base: Weights,
    defaults: Defaults,
    now: datetime,
    leave: Collection[str],
) -> Resolution:
    """What the decode pods run, or how far the Job is that makes it. ``base`` is the resolved 16-bit checkpoint;
    ``leave`` as in :func:`.weights.resolve`."""
    children = observed.children
    made = jobs.of_role(children.jobs, names.ROLE_QUANTIZER)
    paused = decoder.spec.paused
    ask = partial(
        weights.resolve, observed.live, observed.key, children, question(decoder, asked, defaults), paused=paused,
        now=now, leave=leave,
    )  # fmt: skip
    if any(r.uri == asked.output_uri for r in records.newest(children.records, WeightsRecord)):
        known = ask()
        done = () if paused else tuple(Delete(Ref.of("Job", job)) for job in made)
        return replace(known, writes=(*known.writes, *done))
    if fault := _fault(asked):
        return _waits(Reason.INVALID_SPEC, fault)
    if paused:
        return _waits(Reason.PAUSED, f"{asked.output_uri} is not made while spec.paused is true")
    work = _work(observed, asked, base, defaults)
    job = next((job for job in made if revision_of(job) == work.revision), None)
    if job is None:
        stale = tuple(Delete(Ref.of("Job", other)) for other in made)
        start = Apply(run_job(observed.live, observed.key, work))
        return replace(
            _waits(Reason.QUANTIZING, f"{asked.output_uri}: Job {work.name} created"), writes=(*stale, start)
        )
    if runs.ended(job) == "Complete":
        return ask()
    return _under_way(observed, asked, job, now)


def _under_way(observed: ObservedDecoder, asked: Quantization, job: Json, now: datetime) -> Resolution:
    own = jobs.pods_of(job, observed.children.pods)
    if runs.ended(job) == "Failed":
        reason, message = runs.failure(job, own)
        since = jobs.ended(job)
        left = _AGAIN_SECONDS - (now - since).total_seconds() if since else 0.0
        failed = _waits(reason, f"{asked.output_uri}: {message} (tried again every {_AGAIN_SECONDS // 60} minutes)")
        if left > 0:
            return replace(failed, requeue_after=left)
        return replace(failed, writes=(Delete(Ref.of("Job", job)),))
    trouble = jobs.problem(job, observed.children)
    if trouble is not None:
        return _waits(trouble[0], f"{asked.output_uri}: {trouble[1]}")
    return _waits(Reason.QUANTIZING, f"{asked.output_uri}: Job {job['metadata']['name']} runs")


def _fault(asked: Quantization) -> str:
    output = parse_uri(asked.output_uri)
    if output.scheme not in _WRITABLE or not output.path or output.revision:
        return (
            f"quantization.outputUri {asked.output_uri}: write pvc://CLAIM/PATH, s3://BUCKET/PREFIX or "
            "gs://BUCKET/PREFIX, without a digest"
        )
    if asked.calibration and parse_uri(asked.calibration.uri).scheme not in _READABLE:
        return f"quantization.calibration.uri {asked.calibration.uri}: texts lie at hf://, pvc://, s3:// or gs://"
    return ""


def _work(observed: ObservedDecoder, asked: Quantization, base: Weights, defaults: Defaults) -> Work:
    secret, texts = _secret(asked), asked.calibration
    output = Place(asked.output_uri, names.OUTPUT_PATH, secret, OUTPUT_PREFIX)
    data = Place(texts.uri, names.DATA_PATH, secret, DATA_PREFIX) if texts else None
    job = QuantizeJob(
        base_path=names.WEIGHTS_PATH,
        output=output.uri,
        output_path=output.inside if output.claim else f"{output.path}/decoder",
        bits=_BITS[asked.scheme],
        group_size=asked.group_size,
        data=data.uri if data else "",
        data_path=data.inside if data and data.claim else "",
        subset=(texts.subset or "") if texts else "",
        samples=texts.samples if texts else 0,
    )
    # Without a subset where there is none: the hash of what was made before there were any stays.
    told = job.model_dump(mode="json", exclude=None if job.subset else {"subset"})
    revision = revision_hash("quantization", {"job": told, "base": [base.uri, base.digest]})
    return Work(
        name=labels.child_name(observed.key, f"quantize-{revision}"),
        role=names.ROLE_QUANTIZER,
        job=job,
        image=defaults.tuner_image,
        fetcher=defaults.fetcher,
        weights=[base],
        read=[data] if data else [],
        write=output,
        pull_policy=defaults.pull_policy,
        revision=revision,
        overlay=asked.template,
        limits={"backoffLimit": _BACKOFF_LIMIT},
    )


def _secret(asked: Quantization) -> str:
    return asked.credentials_secret_ref.name if asked.credentials_secret_ref else ""


def _waits(reason: str, message: str) -> Resolution:
    return Resolution(None, Verdict(ConditionType.WEIGHTS_READY, "False", reason, message))
