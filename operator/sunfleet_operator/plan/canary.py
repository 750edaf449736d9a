"""A second revision of a task with requests of its own: another prefill module, another decoder, or both. Pure.

Its pods stand beside those of the other revisions and follow no roll-out of theirs. How it moves on is in ``steps``;
where it stands is in the status, and that it was given up in a record, which a lost status does not undo.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Final, Protocol

from sunfleet_api.canary import Canary, CanaryStatus
from sunfleet_api.conditions import Reason
from sunfleet_api.fingerprint import revision_hash
from sunfleet_api.sun_model import SunModel
from sunfleet_operator import records
from sunfleet_operator.build import labels
from sunfleet_operator.build.record import record
from sunfleet_operator.observed import Defaults, ObservedModel
from sunfleet_operator.plan import candidate as candidates
from sunfleet_operator.plan import steps, verify, weights
from sunfleet_operator.plan.actions import Apply, Delete, Event, Write
from sunfleet_operator.plan.candidate import Candidate
from sunfleet_operator.plan.common import soonest
from sunfleet_operator.plan.conditions import shorten
from sunfleet_operator.plan.steps import State
from sunfleet_operator.plan.verify import Check
from sunfleet_operator.plan.weights import next_number
from sunfleet_operator.records import CanaryRecord, ModelRevision
from sunfleet_operator.references import canary_of
from sunfleet_operator.types import Ref, metadata, revision_of, status_of

_LOOK_AGAIN_SECONDS: Final = 15
_EVENTS: Final = {
    "Progressing": ("Normal", Reason.CANARY_PROGRESSING),
    "Promotable": ("Normal", Reason.CANARY_PROMOTABLE),
    "RolledBack": ("Warning", Reason.CANARY_ROLLED_BACK),
}


@dataclass(frozen=True)
class Entrant:
    """What is known of the candidate before anything is decided about the others. ``told``: its state so far. ``ends``:
    why there is nothing to try, empty where there is."""

    spec: Canary
    shadow: ObservedModel
    made: Candidate
    check: Check
    asked: str = ""  # identity of what is tried
    told: State | None = None
    ends: str = ""
    questions: bool = False  # its weights are a question of their own
    kept: str = ""  # the revision that goes on while it is unknown for a moment what is asked for

    @property
    def revision(self) -> ModelRevision | None:
        return None if self.ends else self.made.target

    @property
    def aside(self) -> frozenset[str]:
        """The revision whose pods stand beside the others."""
        given_up = self.told is not None and self.told.phase == "RolledBack"
        found = self.revision.revision if self.revision and not given_up else self.kept
        return frozenset({found} - {""})


class Place(Protocol):
    """Where a candidate stands: on pods of its own, or in those of a PrefillPool."""

    def refused(self) -> str:
        """Why it will never stand there; empty while it may."""

    def waits(self) -> str:
        """What it lacks there to get requests now."""

    def due(self) -> float | None:
        """Seconds after which :meth:`refused` may say something else without anything else happening."""

    def writes(self, state: State, /) -> Sequence[Write]:
        """What has it stand there."""


@dataclass(frozen=True)
class Decided:
    """What the plan takes over. ``percent`` of new requests go to ``revision``."""

    status: CanaryStatus | None = None
    revision: str = ""
    percent: int = 0
    before: tuple[Write, ...] = ()
    events: tuple[Event, ...] = ()
    ended: str = ""
    requeue_after: float | None = None


def asks(model: SunModel, observed: ObservedModel, defaults: Defaults) -> tuple[str, str]:
    """Ids of the questions about the weights of the task and of its canary."""
    own = candidates.question(model, defaults).id(observed.key)
    return own, candidates.question(shadow_of(model), defaults).id(observed.key) if model.spec.canary else own


def enter(
    observed: ObservedModel,
    model: SunModel,
    base: Candidate,
    defaults: Defaults,
    known: Sequence[ModelRevision],
    current: str,
    now: datetime,
) -> Entrant | None:
    """The candidate of ``spec.canary``; ``None`` when there is none."""
    canary = model.spec.canary
    if canary is None:
        return None
    shadow, seen = shadow_of(model), _shadowed(observed)
    own, theirs = asks(model, observed, defaults)
    leave = () if own == theirs else (own,)
    made = candidates.candidate(seen, shadow, defaults, known, now, elsewhere=False, leave=leave)
    bare = Entrant(canary, seen, made, Check(cleared=False), questions=own != theirs)

    def check() -> Check:
        return checked(seen, shadow, made, defaults, serving=False, now=now)

    return weigh(bare, observed, base.target, known, current, check, now)


def weigh(
    bare: Entrant,
    observed: ObservedModel,
    base: ModelRevision | None,
    known: Sequence[ModelRevision],
    current: str,
    check: Callable[[], Check],
    now: datetime,
) -> Entrant:
    """What is known of a candidate of which only ``made`` was: whether it is one at all, what came of its golden
    prompts (``check``), how far it had come. ``base`` is what the task itself asks for, ``current`` what serves."""
    target, canary = bare.made.target, bare.spec
    if target is None:
        return replace(bare, kept=_kept(observed, bare.made, known))
    if base is not None and target.revision == base.revision:
        return replace(bare, ends=_promoted(target))
    if target.revision == current:
        return replace(bare, ends=f"revision {current} is the one that serves: there is nothing to try")
    asked = revision_hash("canary", {
        "revision": target.revision,
        "steps": [step.to_wire() for step in steps.ordered(canary.steps)],
        "analysis": canary.analysis.to_wire(),
    })  # fmt: skip
    return replace(bare, check=check(), asked=asked, told=_told(observed, target.revision, asked, now))


def checked(
    observed: ObservedModel, model: SunModel, made: Candidate, defaults: Defaults, *, serving: bool, now: datetime
) -> Check:
    """Golden prompts for one candidate."""
    if made.target is None or made.module is None or observed.decoder is None:
        return Check(cleared=True)
    pods = [pod for pod in observed.children.pods if revision_of(pod) == made.target.revision]
    subject = verify.Subject(
        made.target, made.module, pods, observed.decoder, observed.decoder_deployments, observed.decode_pods
    )
    facts = verify.Facts(
        observed.live, observed.key, observed.children, model.spec.verification, subject, observed.config_map,
        defaults.fetcher.told(model.spec.prefill.source.download), weights.inherited(model.spec.template.spec),
        serving=serving, paused=model.spec.paused,
    )  # fmt: skip
    return verify.check(facts, now)


@dataclass(frozen=True)
class Others:
    """What was decided about the other revisions: ``percent`` of the requests for each, and the one that they go to
    (``target``)."""

    percent: Mapping[str, int]
    target: str
    done: bool


def decide(
    entrant: Entrant | None,
    observed: ObservedModel,
    others: Others,
    placed: Callable[[Entrant, ModelRevision], Place],
    now: datetime,
) -> Decided:
    """One step of the canary beside the others, or its end. ``placed``: where a candidate stands."""
    if entrant is None or entrant.ends:
        return _ended(entrant, observed, others, now)
    resolving = entrant.made.resolution.writes if entrant.questions else ()
    again = entrant.made.resolution.requeue_after
    target = entrant.revision
    if target is None:
        if entrant.kept:
            before = live_status(observed)
            return Decided(before, before.revision, before.weight, resolving, requeue_after=again)
        return Decided(status=_since(_waiting(entrant), observed, now), before=resolving, requeue_after=again)
    place = placed(entrant, target)
    facts = _facts(entrant, target, place, observed, others.percent)
    state = steps.advance(entrant.told, facts, now)
    percent = steps.weight(state, facts)
    stands = () if state.phase == "RolledBack" else place.writes(state)
    news = entrant.told is None or (entrant.told.phase, entrant.told.step) != (state.phase, state.step)
    watched = state.phase in {"Progressing", "Promotable"}
    due = place.due() if state.phase == "Verifying" else None
    return Decided(
        status=_status(target, state, percent),
        revision=target.revision,
        percent=percent,
        before=(*resolving, *_remember(entrant, observed, state), *stands, *entrant.check.writes),
        events=_events(state) if news else (),
        ended=state.phase if news and state.phase in {"Promotable", "RolledBack"} else "",
        requeue_after=_LOOK_AGAIN_SECONDS if watched else soonest(entrant.check.requeue_after, due),
    )


def least(observed: ObservedModel, target: str) -> int:
    """Percent of the requests that ``target`` had as a canary, and keeps while it takes over from the others."""
    status = live_status(observed)
    return status.weight if status.revision == target and status.phase in {"Progressing", "Promotable"} else 0


def live_status(observed: ObservedModel) -> CanaryStatus:
    """``status.canary`` as it was told last."""
    return CanaryStatus.model_validate(status_of(observed.live).get("canary") or {})


def _ended(entrant: Entrant | None, observed: ObservedModel, others: Others, now: datetime) -> Decided:
    """No canary, or nothing to try. A promoted one keeps its share until it serves alone."""
    forgotten = _forget(observed, keep="")
    before = live_status(observed)
    promoting = before.revision != "" and before.revision == others.target and not others.done
    if entrant is None:
        kept = before.model_copy(update={"reason": "is being promoted"}) if promoting else None
        return Decided(status=kept, before=forgotten)
    resolving = entrant.made.resolution.writes if entrant.questions else ()
    made = CanaryStatus(phase="Promotable", reason=entrant.ends)
    if promoting:
        made = made.model_copy(update={"revision": before.revision, "weight": before.weight})
    return Decided(status=_since(made, observed, now), before=(*resolving, *forgotten))


def shadow_of(model: SunModel) -> SunModel:
    """The task as it would be with its canary promoted."""
    canary = model.spec.canary
    if canary is None:
        return model
    changed = {
        "prefill": canary.prefill or model.spec.prefill,
        "decoder_ref": canary.decoder_ref or model.spec.decoder_ref,
    }
    return model.model_copy(update={"spec": model.spec.model_copy(update=changed)})


def _shadowed(observed: ObservedModel) -> ObservedModel:
    """Its surroundings: those of the decoder that it brings along."""
    beside = observed.beside
    if beside is None:
        return observed
    return replace(
        observed,
        decoder=beside.decoder,
        contract=beside.contract,
        decoder_deployments=beside.deployments,
        decode_pods=beside.pods,
        decoder_served=beside.served,
    )


def _kept(observed: ObservedModel, made: Candidate, known: Sequence[ModelRevision]) -> str:
    """The candidate of until now, where what is missing only needs time (a decoder publishes its contract anew)."""
    missing = next((verdict for verdict in made.verdicts if verdict.status != "True"), None)
    if missing is not None and missing.status != "Unknown":
        return ""
    revision = canary_of(observed.live)
    return revision if any(record.revision == revision for record in known) else ""


def _promoted(target: ModelRevision) -> str:
    return f"revision {target.revision} is what the task itself asks for now: remove spec.canary"


def _told(observed: ObservedModel, revision: str, asked: str, now: datetime) -> State | None:
    """From the status, if it speaks of this very candidate; what was given up stays so."""
    given_up = next((r for r in records.newest(observed.children.records, CanaryRecord) if r.asked == asked), None)
    status = live_status(observed)
    began = _time(status.started_at)
    if given_up is not None:
        return State("RolledBack", status.step, _time(given_up.time) or now, given_up.reason)
    phase = status.phase
    if status.revision != revision or phase is None or phase == "RolledBack" or began is None:
        return None
    return State(phase, status.step, began, status.reason)


def _time(text: str) -> datetime | None:
    try:
        return datetime.fromisoformat(text)
    except ValueError:
        return None


def _facts(
    entrant: Entrant, target: ModelRevision, place: Place, observed: ObservedModel, base: Mapping[str, int]
) -> steps.Facts:
    measured = observed.measured.of(target.revision) if observed.measured else None
    return steps.Facts(
        entrant.spec.steps, entrant.spec.analysis, refused=_refused(entrant, place),
        waits=_waits(entrant, place, base), paused=entrant.spec.paused, measured=measured,
    )  # fmt: skip


def _refused(entrant: Entrant, place: Place) -> str:
    """Why it is never to get requests."""
    verdict = entrant.check.verdict
    if entrant.check.rejected and verdict is not None:
        return verdict.message
    return place.refused()


def _waits(entrant: Entrant, place: Place, base: Mapping[str, int]) -> str:
    """What it lacks to get requests now."""
    if lacks := place.waits():
        return lacks
    if not entrant.check.cleared:
        verdict = entrant.check.verdict
        return f"golden prompts: {verdict.message}" if verdict else "waits for its golden prompts"
    return "" if base else "no other revision serves"


def _waiting(entrant: Entrant) -> CanaryStatus:
    """There is no candidate yet: the first thing that it lacks."""
    missing = next((v for v in entrant.made.verdicts if v.status != "True"), None)
    text = f"{missing.type}: {missing.message}" if missing else "waits while spec.paused is true"
    return CanaryStatus(phase="Verifying", reason=shorten(text))


def _status(target: ModelRevision, state: State, percent: int) -> CanaryStatus:
    return CanaryStatus(
        phase=state.phase, revision=target.revision, step=state.step, weight=percent,
        started_at=state.began.strftime("%Y-%m-%dT%H:%M:%SZ"), reason=shorten(state.reason),
        kv_fingerprint=target.kv_fingerprint,
    )  # fmt: skip


def _since(status: CanaryStatus, observed: ObservedModel, now: datetime) -> CanaryStatus:
    """With the time from which it has been like that."""
    before = live_status(observed)
    same = (before.phase, before.revision) == (status.phase, status.revision) and before.started_at
    return status.model_copy(update={"started_at": before.started_at if same else now.strftime("%Y-%m-%dT%H:%M:%SZ")})


def _events(state: State) -> tuple[Event, ...]:
    told = _EVENTS.get(state.phase)
    return () if told is None else (Event(told[0], told[1], shorten(state.reason)),)


def _remember(entrant: Entrant, observed: ObservedModel, state: State) -> tuple[Write, ...]:
    """That it was given up. Of earlier candidates nothing is kept."""
    name = labels.canary_record_name(observed.key, entrant.asked)
    known = any(metadata(item)["name"] == name for item in observed.children.records)
    forgotten = _forget(observed, keep=name)
    target = entrant.revision
    if state.phase != "RolledBack" or known or target is None:
        return forgotten
    made = CanaryRecord(
        asked=entrant.asked, revision=target.revision, reason=shorten(state.reason),
        time=state.began.strftime("%Y-%m-%dT%H:%M:%SZ"),
    )  # fmt: skip
    number = next_number(observed.children)
    return (Apply(record(observed.live, observed.key, name, made.data(), number=number)), *forgotten)


def _forget(observed: ObservedModel, *, keep: str) -> tuple[Write, ...]:
    old = [item for item in observed.children.records if isinstance(records.parse(item), CanaryRecord)]
    return tuple(Delete(Ref.of("ControllerRevision", item)) for item in old if metadata(item)["name"] != keep)
