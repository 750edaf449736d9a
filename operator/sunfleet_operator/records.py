"""What ControllerRevisions hold: the operator's only memory. Frozen, and tolerant of fields that a newer operator
wrote.

A *weights record* keeps what a URI was resolved to, so that a floating revision, a deleted Job or a lost status never
changes weights by themselves. A *revision record* keeps everything that a revision's pods are, pod template included,
so that a new operator, whose templates may look different, rolls no pod.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field

from sunfleet_api.digests import KVFingerprint
from sunfleet_api.engine import ATTENTION_BACKEND, ExtraArg
from sunfleet_api.fingerprint import EngineContract
from sunfleet_api.worker import ResolverReport
from sunfleet_operator import nulls
from sunfleet_operator.types import Json


class _Record(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore")

    def data(self) -> dict[str, Any]:
        """For ``ControllerRevision.data``: without nulls, so that kubectl takes it back from a backup."""
        return nulls.without(self.model_dump(mode="json", by_alias=True, exclude_none=True))


class WeightsRecord(_Record):
    """The answer to "what is this URI?", asked once."""

    record: Literal["weights"] = "weights"
    uri: str
    report: ResolverReport


class Engine(_Record):
    """Engine settings of a decode pool in effect; attached prefill pods run the same."""

    image: str
    dtype: str
    kv_cache_dtype: str
    block_size: int
    max_model_len: int
    tensor_parallel_size: int
    extra_args: tuple[ExtraArg, ...] = ()

    def contract(self) -> EngineContract:
        return EngineContract(
            dtype=self.dtype,
            kv_cache_dtype=self.kv_cache_dtype,
            block_size=self.block_size,
            tensor_parallel_size=self.tensor_parallel_size,
            engine=self.image,
            attention_backend=next((arg.value for arg in self.extra_args if arg.name == ATTENTION_BACKEND), ""),
        )


class DecoderRevision(_Record):
    """One revision of a SharedDecoder: what its own pods are, and what attached SunModels build on."""

    record: Literal["decoder"] = "decoder"
    revision: str
    engine: Engine
    report: ResolverReport
    secret: str = ""
    base: ResolverReport | None = None  # where the decoder is quantised: the 16-bit weights, which prefill runs
    base_secret: str = ""
    decoder_digest: str
    kv_fingerprint: KVFingerprint
    template: dict[str, Any] = Field(default_factory=dict)

    @property
    def prefill_report(self) -> ResolverReport:
        """What adapters run over: prefill stays 16-bit."""
        return self.base or self.report

    @property
    def prefill_secret(self) -> str:
        return self.base_secret if self.base else self.secret


class ModelRevision(_Record):
    """One revision of a SunModel's or a PrefillPool's prefill pods; enough to route to them without looking at anything
    else."""

    record: Literal["model"] = "model"
    revision: str
    decoder: str  # namespace/name
    decoder_digest: str
    digest: str  # of the prefill module
    kv_fingerprint: KVFingerprint
    template: dict[str, Any] = Field(default_factory=dict)
    pool: str = ""  # namespace/name of the PrefillPool whose pods hold it; then there is no template
    uri: str = ""  # with a pool: the adapter's, resolved


class VerificationRecord(_Record):
    """How one revision answered one set of golden prompts with one revision of its decoder."""

    record: Literal["verification"] = "verification"
    revision: str
    decoder: str  # namespace/name
    decoder_revision: str
    prompts: str  # identity of the golden prompts
    passed: int
    total: int
    first_mismatch: str = ""
    time: str  # RFC 3339


class CanaryRecord(_Record):
    """A canary that was rolled back, so that a lost status does not try it again."""

    record: Literal["canary"] = "canary"
    asked: str  # identity of the candidate, its steps and its analysis
    revision: str
    reason: str
    time: str  # RFC 3339


class ProfilesRecord(_Record):
    """What an object took over from its ServingProfiles, so that an edit of one does not change it by itself."""

    record: Literal["profiles"] = "profiles"
    asked: str  # hash of the object's own spec when it did
    preset: dict[str, Any] = Field(default_factory=dict)


AnyRecord = WeightsRecord | DecoderRevision | ModelRevision | VerificationRecord | CanaryRecord | ProfilesRecord
_BY_WORD: dict[object, type[AnyRecord]] = {
    "weights": WeightsRecord,
    "decoder": DecoderRevision,
    "model": ModelRevision,
    "verification": VerificationRecord,
    "canary": CanaryRecord,
    "profiles": ProfilesRecord,
}
R = TypeVar("R", WeightsRecord, DecoderRevision, ModelRevision, VerificationRecord, CanaryRecord, ProfilesRecord)


def parse(live: Json) -> AnyRecord | None:
    """The record in a ControllerRevision; ``None`` when it is not one of ours or is damaged: then it is made again."""
    data = live.get("data") or {}
    model = _BY_WORD.get(data.get("record"))
    if model is None:
        return None
    try:
        return model.model_validate(nulls.with_nulls(data))
    except ValueError:  # pydantic's is one too
        return None


def number(live: Json) -> int:
    """The position of a record in its owner's history."""
    return int(live.get("revision") or 0)


def newest(live: Iterable[Json], kind: type[R]) -> list[R]:
    """All records of one type, newest first."""
    found = [(number(item), record) for item in live if isinstance(record := parse(item), kind)]
    return [record for _, record in sorted(found, key=lambda pair: -pair[0])]
