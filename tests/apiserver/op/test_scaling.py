"""Scaling on a real API server: the operator as a process, an API like Prometheus, HPAs and /scale."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs

import pytest

from sunfleet_api import names
from sunfleet_apitest.client import Api
from sunfleet_operator.promql import queries
from sunfleet_optest.live import Fleet, Process
from sunfleet_optest.objects import decoder, model
from sunfleet_optest.scaling import AT_ONCE

from .conftest import end_in_order, make_process, wait_leading

pytestmark = pytest.mark.timeout(300)
QUERIES = queries(60, {})
DECODER, TASK = ("SharedDecoder", "base"), ("SunModel", "maths")
ACTS = {"maxReplicas": 6, "behavior": AT_ONCE}


class Answers:
    """Answers the scaler's queries by their text; ``down`` refuses all of them."""

    def __init__(self) -> None:
        self.tasks: dict[str, dict[str, float]] = {}
        self.pools: dict[str, dict[str, float]] = {}
        self.down = False
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                form = parse_qs(self.rfile.read(int(self.headers["Content-Length"])).decode())
                body = json.dumps(outer.answer(form["query"][0])).encode()
                self.send_response(503 if outer.down else 200)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: object) -> None:
                """Quiet."""

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def answer(self, query: str) -> dict[str, Any]:
        found: list[tuple[dict[str, str], float]] = []
        for part, texts, label in (("prefill", QUERIES.prefill, "task"), ("decode", QUERIES.decode, "decoder")):
            said = self.tasks if part == "prefill" else self.pools
            for field, text in texts.items():
                if text == query:
                    found = [({label: name}, figures[field]) for name, figures in said.items()]
        result = [{"metric": labels, "value": [0, str(value)]} for labels, value in found]
        return {"status": "success", "data": {"resultType": "vector", "result": result}}

    def task(self, name: str, **figures: float) -> None:
        self.tasks[name] = {**dict.fromkeys(QUERIES.prefill, 0.0), **figures}

    def pool(self, name: str, **figures: float) -> None:
        quiet = {"age": 0.0, "reserved": 0.0, "queued": 0.0, "capacity": 1000.0, "endpoints": 1.0}
        self.pools[name] = {**quiet, **figures}


@pytest.fixture(scope="module")
def answers() -> Iterator[Answers]:
    made = Answers()
    yield made
    made.server.shutdown()
    made.server.server_close()


@pytest.fixture(scope="module")
def scaling_operator(identity: Path, answers: Answers, operator: Process) -> Iterator[Process]:
    """An operator that scales twice a second, in place of the folder's own: one Lease, one that works."""
    assert operator.stop() == 0
    process = make_process(identity, "scaling")
    scales = {
        "SUNFLEET_OPERATOR_PROMETHEUS__URL": answers.url,
        "SUNFLEET_OPERATOR_SCALING_INTERVAL_SECONDS": "0.5",
    }
    process.env = {**process.env, **scales}
    process.start()
    wait_leading(process)
    yield process
    end_in_order(process)
    operator.start()
    wait_leading(operator)


@pytest.fixture
def scaled(scaling_operator: Process, api: Api, namespace: str, answers: Answers) -> Iterator[Fleet]:
    answers.tasks, answers.pools, answers.down = {}, {}, False
    answers.pool(f"{namespace}/base")
    answers.task("maths")
    made = Fleet(api, namespace)
    yield made
    made.clear()


def replicas(fleet: Fleet, owner: str) -> int:
    return sum(int(live["spec"]["replicas"]) for live in fleet.deployments(owner).values())


def start(fleet: Fleet, task: dict[str, Any], **pool: Any) -> None:
    fleet.apply(decoder(**pool))
    fleet.apply(task)
    fleet.until_ready(DECODER, TASK)


def serve(fleet: Fleet, owner: str) -> None:
    """One Ready engine pod: no kubelet runs here."""
    (deployment,) = fleet.deployments(owner).values()
    template = deployment["spec"]["template"]
    pods = f"/api/v1/namespaces/{fleet.namespace}/pods"
    pod = {"metadata": {"name": f"{owner}-engine", "labels": template["metadata"]["labels"]}, "spec": template["spec"]}
    fleet.api.create(pods, pod, strict=False)
    ready = {"type": "Ready", "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z"}
    fleet.api.merge(f"{pods}/{owner}-engine/status", {"status": {"phase": "Running", "conditions": [ready]}})


def decided(fleet: Fleet) -> dict[str, Any]:
    scaling: dict[str, Any] = fleet.get(*TASK)["status"]["scaling"]
    return scaling


def scaling_reason(fleet: Fleet, kind: str, name: str) -> str:
    return fleet.condition(kind, name, "ScalingReady")[1]


def test_load_raises_its_own_kind_and_a_prometheus_that_is_gone_takes_nothing_away(
    scaled: Fleet, answers: Answers
) -> None:
    start(scaled, model(autoscaling=ACTS), autoscaling=ACTS)
    serve(scaled, "maths")
    answers.pool(f"{scaled.namespace}/base", reserved=1500)
    scaled.until(lambda: replicas(scaled, "base") == 2, "decode room raises the pool")
    assert replicas(scaled, "maths") == 1
    answers.task("maths", in_flight=5, backlog=4000, oldest=9)
    scaled.until(lambda: replicas(scaled, "maths") == 2, "waiting prompts raise their task")
    scaled.until(lambda: decided(scaled)["replicas"] == 2, "the status follows: it is written after the Deployment")
    assert (decided(scaled)["mode"], decided(scaled)["inputs"]["backlog"]) == ("BuiltIn", "4000")
    (child,) = scaled.deployments("maths").values()
    owners = [
        e["manager"] for e in child["metadata"]["managedFields"] if "f:replicas" in e["fieldsV1"].get("f:spec", {})
    ]
    assert owners == [names.SCALE_FIELD_MANAGER]
    answers.down = True
    scaled.until(lambda: scaling_reason(scaled, *TASK) == "MetricsMissing", "the missing metrics are said")
    assert (replicas(scaled, "base"), replicas(scaled, "maths")) == (2, 2)
    assert scaled.ready(*TASK)


def test_switching_who_decides_never_moves_the_count(scaled: Fleet, answers: Answers) -> None:
    start(scaled, model(autoscaling=ACTS))
    serve(scaled, "maths")
    answers.task("maths", in_flight=5, backlog=4000, oldest=9)
    scaled.until(lambda: replicas(scaled, "maths") == 2, "two pods")
    scaled.apply(model(autoscaling={"mode": "External", "maxReplicas": 6}))
    scaled.until(lambda: decided(scaled)["mode"] == "External", "the switch to External")
    assert replicas(scaled, "maths") == 2
    scaled.api.merge(f"{scaled.path(*TASK)}/scale", {"spec": {"replicas": 4}})
    scaled.until(lambda: replicas(scaled, "maths") == 4, "/scale counts")
    scaled.apply(model())  # replicas: 1 in Git, and no autoscaling any more
    scaled.until(lambda: scaling_reason(scaled, *TASK) == "ReplicasHeld", "the fixed count is held")
    assert replicas(scaled, "maths") == 4
    scaled.patch(*TASK, {"spec": {"replicas": 3}})
    scaled.until(lambda: replicas(scaled, "maths") == 3, "a new count counts")


def test_an_hpa_beside_the_built_in_scaler_is_reported_until_it_goes(scaled: Fleet) -> None:
    start(scaled, model(autoscaling=ACTS))
    target = {"apiVersion": names.API_VERSION, "kind": "SunModel", "name": "maths"}
    path = f"/apis/autoscaling/v2/namespaces/{scaled.namespace}/horizontalpodautoscalers"
    metric = {
        "type": "Pods",
        "pods": {"metric": {"name": "x"}, "target": {"type": "AverageValue", "averageValue": "1"}},
    }
    hpa = {"metadata": {"name": "other"}, "spec": {"scaleTargetRef": target, "maxReplicas": 3, "metrics": [metric]}}
    scaled.api.create(path, hpa)
    scaled.until(lambda: scaling_reason(scaled, *TASK) == "SecondScaler", "the second scaler is reported")
    assert f"{scaled.namespace}/other" in scaled.condition(*TASK, "ScalingReady")[2]
    scaled.api.delete(f"{path}/other")
    scaled.until(lambda: scaling_reason(scaled, *TASK) == "DecidedFromMetrics", "it is gone again")


def test_the_budget_bounds_the_pool_and_its_task_together(scaled: Fleet, answers: Answers) -> None:
    budget = [{"resourceName": "nvidia.com/gpu", "limit": 3}]
    start(scaled, model(autoscaling=ACTS), autoscaling=ACTS, gpuBudget=budget)
    answers.pool(f"{scaled.namespace}/base", reserved=9000)
    answers.task("maths", in_flight=5, backlog=4000, oldest=9)
    scaled.until(lambda: replicas(scaled, "base") + replicas(scaled, "maths") == 3, "the budget is used")
    scaled.until(lambda: scaled.condition(*DECODER, "BudgetExceeded")[0] == "True", "and what it lacks is said")
    assert replicas(scaled, "base") + replicas(scaled, "maths") == 3
