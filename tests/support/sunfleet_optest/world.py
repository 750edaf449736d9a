"""A small cluster around the operator's reconcile: controllers and resolvers that answer at once, or as a test says."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

from sunfleet_api import names
from sunfleet_api.tuning import EXIT_HOPELESS, TuningReport
from sunfleet_api.worker import ResolverReport, VerificationReport
from sunfleet_operator.build.network import Visitors, routers
from sunfleet_operator.build.weights import Fetcher
from sunfleet_operator.engines import Faults
from sunfleet_operator.figures import ByRevision
from sunfleet_operator.heard import Heard
from sunfleet_operator.index import Index
from sunfleet_operator.observed import Defaults
from sunfleet_operator.plan.actions import Plan
from sunfleet_operator.recall import Recalling
from sunfleet_operator.reconcile import Reconciler
from sunfleet_operator.told import Told
from sunfleet_operator.types import DECODER, MODEL, POOL, PROFILE, TUNING, Json, Key
from sunfleet_optest.objects import report
from sunfleet_optest.pool_pods import PoolPods
from sunfleet_optest.store import Store

Document = dict[str, Any]
PROMETHEUS = {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "monitoring"}}}
DEFAULTS = Defaults(
    engine_image="worker:1",
    fetcher=Fetcher(image="weights:1"),
    tuner_image="tuner:1",
    visitors=Visitors(routers("sunfleet-system"), (PROMETHEUS,)),
)


def tuner_states(said: TuningReport | None) -> tuple[Document, Document]:
    """Status of the pod and of the Job: at work, or as the pod's report says."""
    started = {"startTime": "2026-01-01T12:00:00Z"}
    if said is None:
        return {"phase": "Running"}, {**started, "active": 1}
    failed = bool(said.error_reason)
    ended = {"exitCode": EXIT_HOPELESS if failed else 0, "message": said.model_dump_json()}
    container = {"name": names.TUNER_CONTAINER, "image": "tuner:1", "state": {"terminated": ended}}
    pod = {"phase": "Failed" if failed else "Succeeded", "containerStatuses": [container]}
    end = {"type": "Failed" if failed else "Complete", "status": "True", "lastTransitionTime": "2026-01-01T13:00:00Z"}
    end |= {"reason": "PodFailurePolicy", "message": "the policy says so"} if failed else {}
    finished = {"failed": 1} if failed else {"succeeded": 1, "completionTime": "2026-01-01T13:00:00Z"}
    return pod, {**started, **finished, "conditions": [end]}


class World:
    """Reconciles everything, lets controllers move, and again, until nothing changes any more.

    ``resolve`` is what a resolver says of a URI, ``healthy`` whether pods of a Deployment become available, ``verify``
    what a verifier Job finds out (``None``: it runs on). ``with_pods``: Deployments have pods with addresses
    (those of pools always have).
    ``tuned``: what a Job that tunes or quantises says at its end (``None``: it works).
    """

    def __init__(self, defaults: Defaults = DEFAULTS, *, with_pods: bool = False) -> None:
        self.store = Store()
        self.defaults = defaults
        self.now = datetime(2026, 1, 1, 12, tzinfo=UTC)
        self.resolve: Callable[[str], ResolverReport] = report
        self.healthy: Callable[[Document], bool] = lambda _: True
        self.verify: Callable[[Document], VerificationReport | None] = lambda _: VerificationReport(passed=3, total=3)
        self.with_pods = with_pods
        self.measured: ByRevision | None = None  # of a canary
        self.tuned: Callable[[Document], TuningReport | None] = lambda _: TuningReport(
            digest="sha256:made", golden=True
        )
        self.told: Callable[[Key], Told | None] = lambda _: None
        self.noted: Callable[[Key, Json | None], None] = lambda _, __: None
        self.engines = PoolPods(self.store)
        self.faults = Faults()
        self.settled: Callable[[Key, Json], None] = lambda _, __: None
        self.heard: Callable[[Key, Json], Heard | None] = lambda _, __: None
        self.published: Callable[[Key, Json | None], None] = lambda _, __: None
        self.recalling: Recalling | None = None  # stands before the store

    def reconciler(self) -> Reconciler:
        """A new one knows nothing but what is stored, as after a restart."""
        index = Index()
        index.rebuild(self.store.all(MODEL), self.store.all(DECODER), self.store.all(POOL))
        return Reconciler(
            self.recalling or self.store, index, self.defaults,
            live=self.store, now=lambda: self.now, told=self.told, noted=self.noted, measure=self._measure,
            engines=self.engines, faults=self.faults,
            settled=self.settled, heard=self.heard, published=self.published,
        )  # fmt: skip

    async def _measure(self, live: Json, _: datetime) -> ByRevision | None:
        told = (live.get("status") or {}).get("canary") or {}
        return self.measured if told.get("phase") in {"Progressing", "Promotable"} else None

    def served(self) -> list[Key]:
        return sorted(
            Key(kind, space, name)
            for kind, space, name in self.store.objects
            if kind in {MODEL, DECODER, POOL, PROFILE, TUNING}
        )

    async def plan(self, kind: str, name: str, namespace: str = "team") -> Plan:
        found = await self.reconciler().decide(Key(kind, namespace, name))
        assert found is not None, f"{kind} {name} is gone"
        return found[1]

    async def reconcile(self) -> None:
        """Every object once."""
        for key in self.served():
            await self.reconciler()(key)
        self.now += timedelta(seconds=1)

    async def settle(self, rounds: int = 40) -> None:
        """Until a round writes nothing; fails when that never happens."""
        for _ in range(rounds):
            before = len(self.store.writes)
            self.controllers()
            await self.reconcile()
            moved = self.controllers()
            if len(self.store.writes) == before and not moved:
                return
        raise AssertionError(f"still writing after {rounds} rounds: {self.store.writes[-12:]}")

    def controllers(self) -> bool:
        """Deployments get their pods, Jobs their answer; whether anything changed."""
        moved = [self._run_deployment(live) for live in self.store.all("Deployment")]
        moved += [self.engines.follow(live, healthy=self.healthy(live)) for live in self.store.all("Deployment")]
        moved += [self._run_job(live) for live in self.store.all("Job")]
        return any(moved)

    def _run_deployment(self, live: Document) -> bool:
        replicas = live["spec"]["replicas"]
        available = replicas if self.healthy(live) else 0
        status = {
            "observedGeneration": live["metadata"]["generation"],
            "replicas": replicas,
            "readyReplicas": available,
            "availableReplicas": available,
        }
        labels = live["spec"]["template"]["metadata"]["labels"]
        moved = self._run_pods(live, available) if self.with_pods and names.LABEL_POOL not in labels else False
        if live.get("status") == status:
            return moved
        live["status"] = status
        return True

    def _run_pods(self, live: Document, available: int) -> bool:
        """As many as wanted; the first ``available`` of them are Ready."""
        meta, template = live["metadata"], live["spec"]["template"]
        owner = [{"uid": meta["uid"], "controller": True, "kind": "Deployment", "name": meta["name"]}]
        wanted: dict[Any, Document] = {}
        for number in range(live["spec"]["replicas"]):
            name = f"{meta['name']}-{number}"
            ready = {"type": "Ready", "status": "True" if number < available else "False"}
            made = {"name": name, "namespace": meta["namespace"], "uid": name, "labels": template["metadata"]["labels"]}
            wanted["Pod", meta["namespace"], name] = {
                "kind": "Pod",
                "metadata": {**made, "ownerReferences": owner},
                "status": {"conditions": [ready], "podIP": f"10.0.{len(meta['name'])}.{number}"},
            }
        present = {
            place: pod for place, pod in self.store.objects.items() if pod["metadata"].get("ownerReferences") == owner
        }
        for place in present.keys() - wanted.keys():
            del self.store.objects[place]
        self.store.objects.update(wanted)
        return present != wanted

    def _run_job(self, live: Document) -> bool:
        meta = live["metadata"]
        if meta["labels"].get(names.LABEL_ROLE) in {names.ROLE_TUNER, names.ROLE_QUANTIZER}:
            return self._run_tuner(live)
        place = ("Pod", meta["namespace"], f"{meta['name']}-pod")
        role = live["metadata"]["labels"][names.LABEL_ROLE]
        if role == names.ROLE_VERIFIER:
            found = self.verify(live)
            if found is None:
                return False
            ended = {"exitCode": 1 if found.error_reason else 0, "message": found.model_dump_json()}
            state: Document = {"terminated": ended}
            live["status"] = self._over(failed=bool(found.error_reason))
        else:
            said = self.resolve(live["spec"]["template"]["spec"]["containers"][0]["args"][1])
            ended = {"exitCode": 0 if said.digest else 1, "message": json.dumps(said.model_dump(mode="json"))}
            state = {"terminated": ended} if said.digest else {"waiting": {"reason": "CrashLoopBackOff"}}
        container = {
            "name": role,
            "image": "weights:1",
            "state": state,
            "lastState": {"terminated": ended},
        }
        status = {"containerStatuses": [container]}
        known = self.store.objects.get(place)
        if known is not None and known["status"] == status:
            return False
        labels = live["spec"]["template"]["metadata"]["labels"]
        owner = [{"uid": meta["uid"], "controller": True, "kind": "Job", "name": meta["name"]}]
        pod = {"name": place[2], "namespace": place[1], "uid": place[2], "labels": labels, "ownerReferences": owner}
        self.store.objects[place] = {"kind": "Pod", "metadata": pod, "status": status}
        return True

    def _over(self, *, failed: bool) -> Document:
        when = self.now.strftime("%Y-%m-%dT%H:%M:%SZ")
        type_ = "Failed" if failed else "Complete"
        return {"conditions": [{"type": type_, "status": "True", "lastTransitionTime": when}]}

    def _run_tuner(self, live: Document) -> bool:
        """The Job's controller and its one pod."""
        if live["spec"].get("suspend") or (live.get("status") or {}).get("conditions"):
            return False
        meta, said = live["metadata"], self.tuned(live)
        place = ("Pod", meta["namespace"], f"{meta['name']}-pod")
        begun = place in self.store.objects
        status, job = tuner_states(said)
        pod = {"name": place[2], "namespace": place[1], "uid": place[2]}
        pod |= {"labels": live["spec"]["template"]["metadata"]["labels"]}
        pod |= {"ownerReferences": [{"uid": meta["uid"], "controller": True, "kind": "Job", "name": meta["name"]}]}
        self.store.objects[place] = {"kind": "Pod", "metadata": pod, "status": status}
        live["status"] = job
        return not begun or said is not None

    # Looking -------------------------------------------------------------------------------------------------------

    def status(self, kind: str, name: str, namespace: str = "team") -> Document:
        return dict(self.store.one(kind, name, namespace).get("status") or {})

    def condition(self, kind: str, name: str, type_: str, namespace: str = "team") -> Document:
        found = self.status(kind, name, namespace).get("conditions") or ()
        return next((c for c in found if c["type"] == type_), {})

    def deployments(self, owner: str) -> dict[str, Document]:
        """Deployments of an object by their revision."""
        return {
            live["metadata"]["labels"][names.LABEL_REVISION]: live
            for live in self.store.all("Deployment")
            if live["metadata"]["ownerReferences"][0]["name"] == owner
        }
