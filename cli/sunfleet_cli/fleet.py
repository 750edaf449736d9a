"""What a fleet is, from its live objects, in rows and in words. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

Json = Mapping[str, Any]
COLUMNS = ("kind", "namespace", "name", "ready", "reason", "pods", "scaler", "wants", "decoder", "pool", "message")


@dataclass(frozen=True)
class Row:
    """One object. ``pods`` is ready/existing, ``wants`` the scaler's count where it is another one. A task with a
    ``pool`` has no pods of its own: its are those that hold its adapter."""

    kind: str
    namespace: str
    name: str
    ready: str
    reason: str
    pods: str
    scaler: str
    wants: str
    decoder: str
    pool: str
    message: str

    def cells(self) -> list[str]:
        return [str(getattr(self, column)) for column in COLUMNS]

    def data(self) -> dict[str, str]:
        return asdict(self)


def rows(decoders: Sequence[Json], pools: Sequence[Json], models: Sequence[Json]) -> list[Row]:
    """Each decoder, then its prefill pools and its tasks; what has no decoder last."""
    known = {(d["metadata"]["namespace"], d["metadata"]["name"]): d for d in decoders}
    of: dict[tuple[str, str], list[Row]] = {}
    for kind, every in (("PrefillPool", pools), ("SunModel", models)):
        for live in every:
            of.setdefault(decoder_of(live), []).append(row(kind, live))
    found: list[Row] = []
    for key in sorted(known):
        found += [row("SharedDecoder", known[key]), *of.pop(key, [])]
    return found + [each for key in sorted(of) for each in of[key]]


def row(kind: str, live: Json) -> Row:
    status = live.get("status") or {}
    ready = condition(live, "Ready")
    scaling = status.get("scaling") or {}
    mode = ((live.get("spec") or {}).get("autoscaling") or {}).get("mode")
    wanted = scaling.get("desiredReplicas")
    decoder, pool = decoder_of(live) if kind != "SharedDecoder" else ("", ""), pool_of(live)
    namespace = str(live["metadata"].get("namespace", ""))
    return Row(
        kind=kind,
        namespace=namespace,
        name=str(live["metadata"]["name"]),
        ready=str(ready.get("status", "Unknown")),
        reason=str(ready.get("reason", "")),
        pods=f"{status.get('readyReplicas', 0)}/{status.get('replicas', 0)}",
        scaler="" if any(pool) else str(scaling.get("mode") or mode or "Fixed"),
        wants="" if wanted is None or wanted == status.get("replicas", 0) else str(wanted),
        decoder=seen_from(namespace, decoder),
        pool=seen_from(namespace, pool),
        message="" if ready.get("status") == "True" else str(ready.get("message", "")),
    )


def decoder_of(live: Json) -> tuple[str, str]:
    """Namespace and name of the decoder that a task or a prefill pool names."""
    return _named(live, (live.get("spec") or {}).get("decoderRef") or {})


def pool_of(live: Json) -> tuple[str, str]:
    """Namespace and name of a task's prefill pool; empty where it has pods of its own."""
    adapter = ((live.get("spec") or {}).get("prefill") or {}).get("adapter") or {}
    return _named(live, adapter["poolRef"]) if adapter.get("poolRef") else ("", "")


def _named(live: Json, ref: Json) -> tuple[str, str]:
    return str(ref.get("namespace") or live["metadata"].get("namespace", "")), str(ref.get("name", ""))


def seen_from(namespace: str, other: tuple[str, str]) -> str:
    """The name alone within ``namespace``, else with its own."""
    return other[1] if other[0] == namespace else "/".join(other).strip("/")


def condition(live: Json, type_: str) -> Json:
    conditions = (live.get("status") or {}).get("conditions") or ()
    return next((c for c in conditions if c.get("type") == type_), {})


@dataclass(frozen=True)
class Explanation:
    """Why an object is as it is: ``verdict`` in a sentence, every condition that is not as it should be, and the
    count with its reason and figures."""

    object: str
    verdict: str
    problems: tuple[str, ...]
    count: str
    figures: Mapping[str, str]
    events: tuple[str, ...]

    def data(self) -> dict[str, Any]:
        return asdict(self) | {"problems": list(self.problems), "events": list(self.events)}


# True means that there is something to say; see the API reference.
_SAYS_WHEN_TRUE = frozenset(
    {"BudgetExceeded", "DeletionBlocked", "FieldsIgnored", "Paused", "Progressing", "ProfilesOutdated"}
)


def explain(kind: str, live: Json, events: Sequence[Json] = ()) -> Explanation:
    meta, ready = live["metadata"], condition(live, "Ready")
    late = (live.get("status") or {}).get("observedGeneration", 0) != meta.get("generation", 0)
    verdict = f"Ready is {ready.get('status', 'Unknown')} ({ready.get('reason', 'nobody has looked at it yet')})"
    if late:
        verdict += "; this is about an older spec: the operator has not looked at the present one yet (does it run?)"
    return Explanation(
        object=f"{kind} {meta.get('namespace', '')}/{meta['name']}",
        verdict=verdict,
        problems=tuple(_problems(live)),
        count=_count(live),
        figures=dict(((live.get("status") or {}).get("scaling") or {}).get("inputs") or {}),
        events=tuple(_event(event) for event in events),
    )


def _problems(live: Json) -> list[str]:
    found = []
    for one in (live.get("status") or {}).get("conditions") or ():
        wrong = one.get("status") == "True" if one.get("type") in _SAYS_WHEN_TRUE else one.get("status") != "True"
        if wrong and one.get("type") != "Ready":
            text = f"{one['type']}={one.get('status')} ({one.get('reason')})"
            found.append(f"{text}: {one['message']}" if one.get("message") else text)
    return found


def _count(live: Json) -> str:
    spec, status = live.get("spec") or {}, live.get("status") or {}
    scaling, have = status.get("scaling") or {}, status.get("replicas", 0)
    if any(pool := pool_of(live)):
        return f"{have} pods of PrefillPool {'/'.join(pool)} hold its adapter: explain the pool for their number"
    if not scaling:
        return f"{have} pods: spec.replicas says {spec.get('replicas', 1)}"
    text = f"{have} pods: {scaling.get('mode')} scaler, {scaling.get('replicas', '?')} in effect"
    if scaling.get("desiredReplicas") not in {None, scaling.get("replicas")}:
        text += f", {scaling['desiredReplicas']} wanted"
    when = f" (decided {scaling['lastDecisionTime']})" if scaling.get("lastDecisionTime") else ""
    return f"{text}: {scaling['reason']}{when}" if scaling.get("reason") else text


def _event(event: Json) -> str:
    return f"{event.get('lastTimestamp') or ''} {event.get('type')} {event.get('reason')}: {event.get('message')}"
