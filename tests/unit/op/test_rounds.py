"""Whole rounds of the scaler: from live objects and an answer of Prometheus to Deployments."""

from __future__ import annotations

from typing import Any

import pytest
from prometheus_client import Gauge

from sunfleet_api import names
from sunfleet_operator import metrics
from sunfleet_operator.cluster import ClusterError
from sunfleet_operator.prometheus import UnreachableError
from sunfleet_operator.scaler import NO_URL
from sunfleet_operator.types import DECODER, MODEL, Key
from sunfleet_optest.objects import decoder, model
from sunfleet_optest.rounds import ACTS, ROUTERS, Answers, Rounds, rounds

TASK, POOL = Key(MODEL, "team", "maths"), Key(DECODER, "team", "base")


@pytest.fixture
def answers() -> Answers:
    made = Answers()
    for name in ("maths", "code"):
        made.task(name)
    made.pool("team/base")
    return made


async def test_while_nothing_scales_nobody_is_asked(answers: Answers) -> None:
    made = await rounds(model(), pool=decoder(), source=answers)
    await made.round()
    assert answers.asked == 0
    assert made.scaler.told(TASK) is None
    assert metrics.SCALING_LAST._value.get() == 0  # no round is missing


async def test_a_round_leaves_its_time(answers: Answers) -> None:
    made = await rounds(model(autoscaling=ACTS), source=answers)
    metrics.SCALING_LAST.set(0)
    await made.round()
    assert metrics.SCALING_LAST._value.get() > 0


async def test_decode_room_raises_the_pool_and_no_task(answers: Answers) -> None:
    made = await rounds(model(autoscaling=ACTS), source=answers)
    answers.pool("team/base", reserved=2000, queued=400)
    await made.round()
    assert (made.replicas("base"), made.replicas("maths")) == (3, 1)


async def test_waiting_prompts_raise_their_task_and_no_other_nor_the_pool(answers: Answers) -> None:
    made = await rounds(model(autoscaling=ACTS), model("code", autoscaling=ACTS), source=answers)
    answers.task("maths", in_flight=9, backlog=5000, oldest=9)
    await made.round()
    assert (made.replicas("maths"), made.replicas("code"), made.replicas("base")) == (2, 1, 1)


async def test_prometheus_that_goes_away_under_load_takes_no_pod_along(answers: Answers) -> None:
    made = await rounds(model(autoscaling=ACTS), source=answers)
    answers.pool("team/base", reserved=3000)
    answers.task("maths", in_flight=9, backlog=5000, oldest=9)
    await made.round()
    assert (made.replicas("base"), made.replicas("maths")) == (4, 2)
    answers.fault = UnreachableError("https://prometheus:9090/api/v1/query: refused")
    for _ in range(30):
        await made.round(60)
        assert (made.replicas("base"), made.replicas("maths")) == (4, 2)
    assert made.reason("SunModel", "maths") == made.reason("SharedDecoder", "base") == "MetricsMissing"
    assert "refused" in made.world.condition("SunModel", "maths", "ScalingReady")["message"]


async def test_the_fallback_of_the_manifest_acts_after_its_timeout(answers: Answers) -> None:
    made = await rounds(model(autoscaling={**ACTS, "fallback": 3, "metricsTimeoutSeconds": 60}), source=answers)
    answers.fault = UnreachableError("x")
    await made.round()
    assert made.replicas("maths") == 1
    await made.round(60)
    assert made.replicas("maths") == 3


async def test_a_task_that_prometheus_does_not_know_is_said_to_have_no_data(answers: Answers) -> None:
    made = await rounds(model("other", autoscaling=ACTS), source=answers)
    await made.round()
    assert made.reason("SunModel", "other") == "MetricsMissing"
    assert "no usable series" in made.world.condition("SunModel", "other", "ScalingReady")["message"]


async def test_without_a_prometheus_the_status_says_which_setting_is_missing() -> None:
    made = await rounds(model(autoscaling=ACTS), source=None)
    await made.round()
    assert NO_URL in made.world.condition("SunModel", "maths", "ScalingReady")["message"]


async def test_a_router_that_cannot_be_scraped_stops_scaling_in(answers: Answers) -> None:
    made = await rounds(source=answers)
    answers.pool("team/base", reserved=3000)
    await made.round()
    answers.pool("team/base", reserved=0)
    answers.silent = 1
    await made.round()
    assert made.replicas("base") == 4
    answers.silent = 0
    await made.round()
    assert made.replicas("base") == 1


def router(name: str, ready: str = "True", **more: Any) -> dict[str, Any]:
    meta = {"name": name, "namespace": ROUTERS.namespace, "labels": dict(ROUTERS.labels), **more}
    ready_condition = {"type": "Ready", "status": ready, "lastTransitionTime": "2026-01-01T00:01:30Z"}
    return {"kind": "Pod", "metadata": meta, "status": {"phase": "Running", "conditions": [ready_condition]}}


async def test_a_router_that_prometheus_has_never_scraped_stops_scaling_in(answers: Answers) -> None:
    made = await rounds(source=answers)
    store = made.world.store
    for live in (router("a"), router("b"), router("starts", "False"), router("goes", deletionTimestamp="now")):
        store.put(live)
    answers.routers = 2
    answers.pool("team/base", reserved=3000)
    await made.round()
    answers.pool("team/base", reserved=1000)  # what the other one has reserved is in no sum
    answers.routers = 1
    await made.round()
    assert made.replicas("base") == 4
    assert "1 of 2 Ready routers" in made.world.condition("SharedDecoder", "base", "ScalingReady")["message"]
    answers.pool("team/base", reserved=4000)
    await made.round()
    assert made.replicas("base") == 5  # what is known to be there counts all the same
    answers.pool("team/base", reserved=1000)
    answers.routers = 5  # this Prometheus also knows those of another installation
    await made.round()
    assert made.replicas("base") == 2


async def test_routers_that_cannot_be_counted_are_not_missed(answers: Answers, monkeypatch: pytest.MonkeyPatch) -> None:
    made = await rounds(source=answers)
    listed = made.world.store.list

    async def refused(kind: str, namespace: str = "", **more: Any) -> Any:
        if namespace == ROUTERS.namespace:
            raise ClusterError("list pods", 403, "forbidden")
        return await listed(kind, namespace, **more)

    monkeypatch.setattr(made.world.store, "list", refused)
    answers.pool("team/base", reserved=3000)
    await made.round()
    assert made.replicas("base") == 4


async def test_idle_to_zero_and_back_by_the_first_request(answers: Answers) -> None:
    zero = {**ACTS, "minReplicas": 0, "scaleToZero": {"idleSeconds": 60}}
    made = await rounds(model(autoscaling=zero), source=answers)
    await made.round()
    await made.round(60)
    assert made.replicas("maths") == 0
    assert made.replicas("base") == 1
    answers.task("maths", in_flight=1)  # the router holds it
    await made.round()
    assert made.replicas("maths") == 1


async def test_the_budget_holds_the_pool_and_its_tasks_together(answers: Answers) -> None:
    pool = decoder(autoscaling=ACTS, gpuBudget=[{"resourceName": "nvidia.com/gpu", "limit": 6}])
    made = await rounds(model(autoscaling=ACTS), model("code", autoscaling=ACTS), pool=pool, source=answers)
    for name in ("maths", "code"):
        answers.task(name, in_flight=9, backlog=9e6, oldest=9)
    answers.pool("team/base", reserved=9000)
    for _ in range(6):
        await made.round()
        total = made.replicas("base") + made.replicas("maths") + made.replicas("code")
        assert total <= 6
    assert total == 6
    assert min(made.replicas("maths"), made.replicas("code")) >= 1
    assert "are allowed" in made.world.condition("SharedDecoder", "base", "BudgetExceeded")["message"]


async def test_an_annotation_pauses_and_its_end_resumes(answers: Answers) -> None:
    made = await rounds(source=answers)
    made.world.store.one("SharedDecoder", "base")["metadata"]["annotations"] = {names.ANNOTATION_SCALING_PAUSED: "true"}
    answers.pool("team/base", reserved=3000)
    await made.round()
    assert (made.replicas("base"), made.reason("SharedDecoder", "base")) == (1, "Paused")
    made.world.store.one("SharedDecoder", "base")["metadata"]["annotations"] = {}
    await made.round()
    assert made.replicas("base") == 4


def hpa(kind: str, name: str, api: str = names.API_VERSION) -> dict[str, Any]:
    target = {"apiVersion": api, "kind": kind, "name": name}
    meta = {"name": "keda-hpa-x", "namespace": "team"}
    return {"kind": "HorizontalPodAutoscaler", "metadata": meta, "spec": {"scaleTargetRef": target}}


async def test_an_hpa_beside_the_built_in_scaler_is_reported(answers: Answers) -> None:
    made = await rounds(model(autoscaling=ACTS), source=answers)
    made.world.store.put(hpa("SunModel", "maths"))
    await made.round()
    assert made.reason("SunModel", "maths") == "SecondScaler"
    assert "team/keda-hpa-x" in made.world.condition("SunModel", "maths", "ScalingReady")["message"]


async def test_an_hpa_on_a_child_is_reported_whatever_the_mode(answers: Answers) -> None:
    made = await rounds(model(autoscaling={"mode": "External", "maxReplicas": 5}), source=answers)
    (child,) = made.world.deployments("maths").values()
    made.world.store.put(hpa("Deployment", child["metadata"]["name"], "apps/v1"))
    await made.round()
    assert made.reason("SunModel", "maths") == "SecondScaler"
    assert "scaleTargetRef" in made.world.condition("SunModel", "maths", "ScalingReady")["message"]


async def test_one_hpa_on_an_external_object_is_as_it_should_be(answers: Answers) -> None:
    made = await rounds(model(autoscaling={"mode": "External", "maxReplicas": 5}), source=answers)
    made.world.store.put(hpa("SunModel", "maths"))
    made.world.store.put(hpa("SunModel", "maths", "other.group/v1"))
    await made.round()
    assert made.reason("SunModel", "maths") == "External"


async def test_a_new_process_goes_on_with_what_the_old_one_had_learnt(answers: Answers) -> None:
    made = await rounds(source=answers)
    answers.pool("team/base", reserved=3000)
    await made.round()
    successor = Rounds(made.world, answers)
    answers.pool("team/base", reserved=3000, capacity=0, endpoints=0)  # its pods just restarted
    await successor.round()
    assert successor.replicas("base") == 4
    assert successor.reason("SharedDecoder", "base") == "DecidedFromMetrics"


async def test_what_stops_to_scale_is_forgotten(answers: Answers) -> None:
    made = await rounds(source=answers)
    await made.round()
    assert made.scaler.told(POOL) is not None
    made.world.store.remove("SharedDecoder", "team", "base")
    made.world.store.objects.pop(("SharedDecoder", "team", "base"), None)
    await made.round()
    assert made.scaler.told(POOL) is None


def exported(*gauges: Gauge) -> dict[tuple[str, ...], float]:
    """Values by labels, without the namespace."""
    samples = [sample for gauge in gauges for family in gauge.collect() for sample in family.samples]
    return {tuple(v for name, v in one.labels.items() if name != "namespace"): one.value for one in samples}


async def test_a_decision_and_its_figures_are_metrics_for_as_long_as_they_are_true(answers: Answers) -> None:
    for gauge in (metrics.SCALING_DESIRED, metrics.SCALING_INPUT):
        gauge.clear()  # of the tests before
    made = await rounds(model(autoscaling=ACTS), source=answers)
    answers.pool("team/base", reserved=2000, queued=400)
    decided = metrics.SCALING_DECISIONS.labels("SharedDecoder", "LoadRose")
    before = decided._value.get()
    await made.round()
    assert decided._value.get() == before + 1
    assert exported(metrics.SCALING_DESIRED) == {("SharedDecoder", "base"): 3, ("SunModel", "maths"): 1}
    found = exported(metrics.SCALING_INPUT)
    assert found["SharedDecoder", "base", "queued"] == 400
    assert found["SharedDecoder", "base", "need"] == 3
    status = made.world.store.objects["SunModel", "team", "maths"]["status"]["scaling"]["inputs"]
    assert {key[2]: value for key, value in found.items() if key[1] == "maths"} == {
        name: float(value) for name, value in status.items()
    }
    answers.fault = UnreachableError("refused")
    await made.round()
    assert exported(metrics.SCALING_INPUT) == {}  # figures of an earlier time say nothing of this decision
    answers.fault = None
    await made.round()
    made.world.store.put(model(replicas=1, autoscaling={**ACTS, "mode": "External"}))
    made.world.store.remove("SharedDecoder", "team", "base")
    made.world.store.objects.pop(("SharedDecoder", "team", "base"), None)
    await made.round()
    assert exported(metrics.SCALING_DESIRED, metrics.SCALING_INPUT) == {}


PROFILE: dict[str, Any] = {
    "apiVersion": names.API_VERSION, "kind": "ServingProfile", "metadata": {"name": "p", "namespace": "team"},
    "spec": {"autoscaling": ACTS},
}  # fmt: skip


async def test_a_profile_may_say_that_an_object_scales(answers: Answers) -> None:
    made = await rounds(source=answers)
    made.world.store.put(PROFILE)
    made.world.store.put(model(profileRefs=[{"name": "p"}], replicas=2))
    await made.world.settle()
    made.pods()
    answers.task("maths", in_flight=9, backlog=5000, oldest=9)
    await made.round()
    assert made.replicas("maths") == 3


async def test_an_object_whose_profiles_are_not_known_yet_keeps_what_it_has(answers: Answers) -> None:
    made = await rounds(pool=decoder(gpuBudget=[{"resourceName": "nvidia.com/gpu", "limit": 9}]), source=answers)
    made.world.store.put(PROFILE)
    made.world.store.put(model(profileRefs=[{"name": "p"}], autoscaling={"minReplicas": 4, "maxReplicas": 8}))
    for _ in range(3):
        await made.round()
    assert made.replicas("maths") == 4
    successor = Rounds(made.world, answers)  # it has reconciled nothing yet
    successor.index.rebuild(made.world.store.all(MODEL), made.world.store.all(DECODER))
    await successor.scaler.round()
    told = successor.scaler.told(TASK)
    assert told is not None
    assert (told.acts, told.decision.replicas) == (False, 4)


@pytest.mark.parametrize(("limit", "expected"), [(4, 1), (3, 0)])
async def test_a_canary_has_pods_within_the_budget_only(answers: Answers, limit: int, expected: int) -> None:
    pool = decoder(gpuBudget=[{"resourceName": "nvidia.com/gpu", "limit": limit}])
    made = await rounds(model(replicas=2), pool=pool, source=answers)
    for _ in range(4):
        await made.round()
    (old,) = made.world.deployments("maths")
    beside = {"prefill": {"adapter": {"uri": "pvc://models/adapters/maths2"}}, "steps": [{"weight": 50}]}
    made.world.store.put(model(replicas=2, canary=beside))
    for _ in range(6):
        await made.round()
    counts = {name: live["spec"]["replicas"] for name, live in made.world.deployments("maths").items()}
    assert counts.pop(old) == 2
    assert list(counts.values()) == [expected]
