"""From objects to a snapshot: who is served by which pods, who owns a name, and what becomes of the metrics."""

from __future__ import annotations

from typing import Any

import pytest
from prometheus_client import generate_latest

from sunfleet_api import names
from sunfleet_api.sun_model import SunModel
from sunfleet_api.wire import EngineInfo
from sunfleet_router.admission.decode_room import Admission
from sunfleet_router.admission.load import Load
from sunfleet_router.admission.waiting import Bounds, Waiting
from sunfleet_router.fleet.assemble import Pod, assemble, pod_of
from sunfleet_router.fleet.current import Fleet
from sunfleet_router.fleet.replicas import Replicas
from sunfleet_router.fleet.snapshot import Snapshot, Task
from sunfleet_router.policies import Choice, Reject
from sunfleet_router.policies.decode import DecodeFacts, choose
from sunfleet_router.telemetry.metrics import Metrics

INFO = EngineInfo(role="decode", kv_capacity_tokens=64, block_size=16, max_model_len=32)
SELECTOR = f"{names.LABEL_MODEL}=maths"


def pod_document(name: str, role: str, namespace: str = "n", **labels: str) -> dict[str, Any]:
    fixed = {names.LABEL_ROLE: role, names.LABEL_KV_FINGERPRINT: "f"}
    return {
        "metadata": {"uid": f"uid-{name}", "name": name, "namespace": namespace, "labels": fixed | labels},
        "status": {"podIP": "10.0.0.1", "conditions": [{"type": "Ready", "status": "True"}]},
    }


def pods(*documents: dict[str, Any]) -> list[Pod]:
    return [pod for document in documents if (pod := pod_of(document))]


def model(name: str, created: str, *, model_name: str | None = None, traffic: bool = True) -> SunModel:
    target = {
        "revision": "r", "weight": 100, "decoder": "n/base", "prefill": {"selector": SELECTOR}, "cacheSalt": "s",
    }  # fmt: skip
    return SunModel.parse({
        "metadata": {"name": name, "namespace": "n", "creationTimestamp": created},
        "spec": {
            "modelName": model_name, "decoderRef": {"name": "base"}, "prefill": {"weights": {"uri": "hf://a/b"}},
            "generation": {"defaults": {"temperature": "0.5"}},
        },
        "status": {"traffic": [target] if traffic else []},
    })  # fmt: skip


MATHS = {names.LABEL_MODEL: "maths"}
BASE = {names.LABEL_DECODER: "base"}


def test_a_task_gets_the_pods_of_its_selector_and_its_decoders_pool() -> None:
    documents = [
        pod_document("p", "prefill", **MATHS),
        pod_document("d", "decode", **BASE),
        pod_document("elsewhere", "prefill", "m", **MATHS),
        pod_document("other", "prefill", **{names.LABEL_MODEL: "code"}),
        pod_document("not-a-decoder", "prefill", **BASE),
        pod_document("not-a-prefill", "decode", **MATHS),
    ]
    told = {f"uid-{document['metadata']['name']}": INFO for document in documents}
    snapshot = assemble([model("maths", "2026-01-01T00:00:00Z")], ["n/base"], pods(*documents), told)
    task = snapshot.tasks["maths"]
    assert [pod.name for pod in task.routes[0].prefill] == ["p"]
    assert [(pod.name, pod.capacity) for pod in snapshot.pool("n/base")] == [("d", 64)]
    assert (task.routes[0].salt, task.defaults, task.created) == ("s", {"temperature": 0.5}, 1767225600)
    assert set(snapshot.endpoints()) == {"uid-p", "uid-d"}


def test_a_pod_that_is_not_ready_terminates_or_has_no_fingerprint_gets_nothing() -> None:
    good = pod_document("p", "prefill", **MATHS)
    unready = {**good, "status": {"podIP": "10.0.0.1", "conditions": [{"type": "Ready", "status": "False"}]}}
    leaving = {**good, "metadata": {**good["metadata"], "deletionTimestamp": "2026-01-01T00:00:00Z"}}
    unlabelled = {**good, "metadata": {**good["metadata"], "labels": {names.LABEL_ROLE: "prefill", **MATHS}}}
    for document in (unready, leaving, unlabelled):
        snapshot = assemble([model("maths", "2026-01-01T00:00:00Z")], [], pods(document), {"uid-p": INFO})
        assert snapshot.tasks["maths"].routes[0].prefill == ()


def test_a_pod_that_has_not_said_who_it_is_gets_nothing() -> None:
    documents = pods(pod_document("p", "prefill", **MATHS), pod_document("d", "decode", **BASE))
    snapshot = assemble([model("maths", "2026-01-01T00:00:00Z")], ["n/base"], documents, {})
    assert (snapshot.tasks["maths"].routes[0].prefill, snapshot.pool("n/base")) == ((), ())


@pytest.mark.parametrize(
    ("prefill", "decode", "unpaired"),
    [("c", "c", 0), ("", "", 0), ("c", "another", 1), ("c", "", 1), ("", "c", 1)],
)
def test_pods_whose_engines_differ_in_their_kv_are_no_pair_whatever_their_labels_say(
    prefill: str, decode: str, unpaired: int
) -> None:
    documents = pods(pod_document("p", "prefill", **MATHS), pod_document("d", "decode", **BASE))
    told = {
        "uid-p": INFO.model_copy(update={"role": "prefill", "kv_contract": prefill}),
        "uid-d": INFO.model_copy(update={"kv_contract": decode}),
    }
    snapshot = assemble([model("maths", "2026-01-01T00:00:00Z")], ["n/base"], documents, told)
    task, pool = snapshot.tasks["maths"], snapshot.pool("n/base")
    facts = DecodeFacts("id", 8, {pod.fingerprint for pod in task.routes[0].prefill})
    assert isinstance(choose(facts, pool, {}), Reject if unpaired else Choice)
    fleet, load = Fleet(), Load(1.0)
    metrics = Metrics(fleet, load, Admission(fleet, load, Waiting(Bounds(1, 1, 1), Replicas())), Replicas())
    fleet.replace(snapshot)
    gauge = "sunfleet_router_unpaired_prefill_endpoints"
    assert metrics.registry.get_sample_value(gauge, {"task": "maths"}) == unpaired


def test_without_decode_pods_no_prefill_pod_counts_as_unpaired() -> None:
    documents = pods(pod_document("p", "prefill", **MATHS))
    snapshot = assemble([model("maths", "2026-01-01T00:00:00Z")], ["n/base"], documents, {"uid-p": INFO})
    assert snapshot.unpaired(snapshot.tasks["maths"]) == 0


def test_what_is_no_engine_or_has_no_address_is_no_pod() -> None:
    resolver = pod_document("r", names.ROLE_RESOLVER)
    unborn = {**pod_document("p", "prefill"), "status": {}}
    assert pods(resolver, unborn, {"metadata": {}, "status": {"podIP": "1.2.3.4"}}) == []


def test_a_deleted_decoders_pods_get_nothing() -> None:
    assert assemble([], [], pods(pod_document("d", "decode", **BASE)), {}).pool("n/base") == ()


def test_of_equal_names_the_one_with_traffic_is_served_then_the_oldest() -> None:
    old, new = "2026-01-01T00:00:00Z", "2026-02-01T00:00:00Z"
    two = [model("b", new, model_name="x"), model("a", old, model_name="x")]
    assert assemble(two, [], [], {}).tasks["x"].created == 1767225600
    two[1] = model("a", old, model_name="x", traffic=False)
    assert assemble(two, [], [], {}).tasks["x"].routes


def test_every_known_task_is_in_the_metrics_as_0_and_an_unknown_one_vanishes() -> None:
    fleet, load = Fleet(), Load(1.0)
    metrics = Metrics(fleet, load, Admission(fleet, load, Waiting(Bounds(1, 1, 1), Replicas())), Replicas())
    fleet.replace(Snapshot({"a": Task("a"), "b": Task("b")}, {"n/d": ()}))
    text = generate_latest(metrics.registry).decode()
    for series in (
        'in_flight_requests{task="a"} 0.0',
        'queue_depth{task="b"} 0.0',
        'queued_prompt_tokens{task="a"} 0.0',
        'queued_tokens{task="a"} 0.0',
        'queued_bytes{task="a"} 0.0',
        'requests_total{code="ok",task="a"} 0.0',
        'output_tokens_total{task="b"} 0.0',
        'decode_queued_tokens{decoder="n/d"} 0.0',
        'prompt_tokens_total{task="b"} 0.0',
        'prefill_endpoints{task="b"} 0.0',
        'time_to_first_token_seconds_count{task="a"} 0.0',
        'decode_kv_reserved_tokens{decoder="n/d"} 0.0',
        'decode_kv_others_tokens{decoder="n/d"} 0.0',
        'gpu_seconds_total{leg="decode",task="a"} 0.0',
        "shunned_endpoints 0.0",
        "synced 1.0",
    ):
        assert f"sunfleet_router_{series}" in text
    fleet.replace(Snapshot({"b": Task("b")}, {}))
    assert 'task="a"' not in generate_latest(metrics.registry).decode()


def _pool_pod(name: str, announcement: str, *, start: str = "start-1", **labels: str) -> dict[str, Any]:
    document = pod_document(name, "prefill", "platform", **({names.LABEL_POOL: "spool"} | labels))
    document["metadata"]["annotations"] = {names.ANNOTATION_ADAPTERS: announcement}
    document["status"]["containerStatuses"] = [{"name": names.ENGINE_CONTAINER, "containerID": start}]
    return document


def _pooled_model(**queue: int) -> SunModel:
    adapter = {"uri": "hf://a/b", "poolRef": {"name": "spool", "namespace": "platform"}}
    prefill = {"pool": "platform/spool", "adapter": "n.maths-1"}
    target = {"revision": "r", "weight": 100, "decoder": "n/base", "prefill": prefill, "cacheSalt": "s"}
    return SunModel.parse({
        "metadata": {"name": "maths", "namespace": "n", "creationTimestamp": "2026-01-01T00:00:00Z"},
        "spec": {"decoderRef": {"name": "base"}, "prefill": {"adapter": adapter}, "traffic": {"queue": queue}},
        "status": {"traffic": [target]},
    })  # fmt: skip


def test_a_task_of_a_pool_gets_the_pods_that_have_loaded_its_adapter_and_asks_for_it_by_name() -> None:
    documents = [
        _pool_pod("has-it", "start-1:n.code-1,n.maths-1"),
        _pool_pod("has-another", "start-1:n.maths-2"),
        _pool_pod("has-none", "start-1:"),
        _pool_pod("of-another-pool", "start-1:n.maths-1", **{names.LABEL_POOL: "other"}),
    ]
    infos = {f"uid-{document['metadata']['name']}": INFO for document in documents}
    (route,) = assemble([_pooled_model()], ["n/base"], pods(*documents), infos).tasks["maths"].routes
    assert [pod.name for pod in route.prefill] == ["has-it"]
    assert route.module == "n.maths-1"


def test_what_was_announced_of_an_engine_before_its_restart_counts_no_more() -> None:
    document = _pool_pod("restarted", "start-1:n.maths-1", start="start-2")
    fleet = assemble([_pooled_model()], ["n/base"], pods(document), {"uid-restarted": INFO})
    assert fleet.tasks["maths"].routes[0].prefill == ()


def test_requests_of_a_pools_task_wait_while_no_pod_has_its_adapter_unless_it_says_otherwise() -> None:
    assert assemble([_pooled_model()], [], [], {}).tasks["maths"].limits.hold == 300
    assert assemble([_pooled_model(holdSeconds=7)], [], [], {}).tasks["maths"].limits.hold == 7
