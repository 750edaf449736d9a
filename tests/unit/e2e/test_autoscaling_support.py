"""What the autoscaling suites stand on: scrape configurations, the log of pods, the load, the samples they adapt."""

from __future__ import annotations

import shutil
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest
import yaml

from sunfleet_api import names
from sunfleet_api.shared_decoder import SharedDecoder
from sunfleet_api.sun_model import SunModel
from sunfleet_fakes.discovery import groups
from support import keda, scaled
from support.external import sample
from support.load import Load
from support.podlog import GPU, PodLog
from support.prometheus import MONITORS
from support.records import Records
from support.scrape import configuration, with_discovery_over_http
from support.streams import Reply

SETTINGS = configuration(yaml.safe_load_all(MONITORS.read_text()), "2s")


def monitor(**spec: Any) -> dict[str, Any]:
    whole = {"selector": {"matchLabels": {"a/b": "c.d"}}, "podMetricsEndpoints": [{"port": "metrics"}], **spec}
    return {"metadata": {"namespace": "there", "name": "one"}, "spec": whole}


def pod(name: str, *, task: str = "maths", gpus: int = 1, phase: str = "Running", going: bool = False) -> Any:
    labels = {names.LABEL_ROLE: names.ROLE_PREFILL, names.LABEL_MODEL: task}
    metadata = {"name": name, "labels": labels} | ({"deletionTimestamp": "2026-01-01T00:00:00Z"} if going else {})
    containers = [{"resources": {"limits": {GPU: str(gpus), "memory": "1Gi"}}}, {}]
    conditions = [{"type": "Ready", "status": "True"}]
    return {
        "metadata": metadata, "spec": {"containers": containers}, "status": {"phase": phase, "conditions": conditions},
    }  # fmt: skip


def event(kind: str, *arguments: Any, **options: Any) -> dict[str, Any]:
    return {"type": kind, "object": pod(*arguments, **options)}


def test_prometheus_itself_accepts_what_the_shipped_monitors_become(tmp_path: Path) -> None:
    promtool = shutil.which("promtool")
    assert promtool, "promtool is missing: apt-get install prometheus"
    file = tmp_path / "prometheus.yml"
    file.write_text(yaml.safe_dump(with_discovery_over_http(SETTINGS, "127.0.0.1:1", "2s")))
    subprocess.run([promtool, "check", "config", str(file)], check=True, capture_output=True, timeout=60)


def test_a_monitor_looks_in_its_own_namespace_unless_it_says_otherwise() -> None:
    (own,) = configuration([monitor()], "2s")["scrape_configs"]
    assert own["kubernetes_sd_configs"] == [{"role": "pod", "namespaces": {"names": ["there"]}}]
    (every,) = configuration([monitor(namespaceSelector={"any": True})], "2s")["scrape_configs"]
    assert every["kubernetes_sd_configs"] == [{"role": "pod"}]


def test_selectors_become_rules_that_mean_their_text_and_nothing_more() -> None:
    (job,) = configuration([monitor()], "2s")["scrape_configs"]
    kept = {rule["source_labels"]: rule["regex"] for rule in _keeping(job)}
    assert kept == {"__meta_kubernetes_pod_label_a_b": r"c\.d", "__meta_kubernetes_pod_container_port_name": "metrics"}


def _keeping(job: dict[str, Any]) -> list[dict[str, Any]]:
    rules = [rule for rule in job["relabel_configs"] if rule.get("action") == "keep"]
    return [{**rule, "source_labels": rule["source_labels"][0]} for rule in rules]


@pytest.mark.parametrize(
    "spec",
    [
        {"jobLabel": "x"},
        {"podMetricsEndpoints": [{"port": "metrics", "scheme": "https"}]},
        {"selector": {"matchExpressions": [{"key": "a", "operator": "Exists"}]}},
    ],
)
def test_what_is_not_known_of_a_monitor_is_refused(spec: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="known"):
        configuration([monitor(**spec)], "2s")


def test_discovery_names_each_port_of_each_pod_that_has_an_address() -> None:
    container = {"name": "engine", "ports": [{"name": "http", "containerPort": 8000}, {"containerPort": 5600}]}
    meta = {"namespace": "n", "name": "p", "labels": {"serving.sunfleet.dev/role": "decode"}}
    live = {"metadata": meta, "spec": {"containers": [container]}, "status": {"podIP": "10.1.2.3", "phase": "Running"}}
    pending = {**live, "status": {"phase": "Pending"}}
    found = list(groups([pending, live]))
    assert [group["targets"] for group in found] == [["10.1.2.3:8000"], ["10.1.2.3:5600"]]
    labels = found[0]["labels"]
    assert labels["__meta_kubernetes_pod_label_serving_sunfleet_dev_role"] == "decode"
    assert labels["__meta_kubernetes_pod_container_port_name"] == "http"
    assert labels["__meta_kubernetes_pod_phase"] == "Running"


def test_a_pod_holds_its_gpu_until_it_has_ended() -> None:
    log = PodLog()
    held = []
    for one in (
        event("ADDED", "a"),
        event("ADDED", "b"),
        event("MODIFIED", "a", going=True),
        event("MODIFIED", "a", going=True, phase="Succeeded"),
        event("DELETED", "a", going=True, phase="Succeeded"),
    ):
        log.add(one)
        held.append(log.now.gpus)
    assert held == [1, 2, 2, 1, 1]
    assert log.now.wanted(names.ROLE_PREFILL, "maths") == ["b"]


def test_a_state_between_two_looks_is_in_the_log() -> None:
    log = PodLog()
    log.add(event("ADDED", "a"))
    start = time.monotonic()
    log.add(event("ADDED", "b"))
    log.add(event("DELETED", "b"))
    assert [moment.gpus for moment in log.since(start)] == [1, 2, 1]


def test_a_log_whose_watch_broke_proves_nothing() -> None:
    log = PodLog()
    with pytest.raises(ValueError, match="broke"):
        log.add({"type": "ERROR", "object": {"message": "too old"}})
    log.broke("the watch of pods ended")
    for asked in (lambda: log.now, lambda: log.since(0.0), lambda: log.wait("anything", bool, 0.01)):
        with pytest.raises(AssertionError, match="ended"):
            asked()


def test_waiting_for_pods_in_vain_names_those_that_are_there() -> None:
    log = PodLog()
    log.add(event("ADDED", "a", going=True))
    with pytest.raises(TimeoutError, match=r"two pods: not within 0 s; pods: a \(going\)"):
        log.wait("two pods", lambda now: len(now.pods) == 2, 0.01)


def test_clients_take_a_new_task_with_their_next_question(monkeypatch: pytest.MonkeyPatch) -> None:
    load = Load("http://router", "first", {})

    def answer(_url: str, body: dict[str, Any]) -> Reply:
        if body["model"] == "second":
            load.ended.set()
        load.task = "second"
        return Reply(done=True, text=body["prompt"])

    monkeypatch.setattr("support.load.ask", answer)
    load.client(0)
    assert [one.task for one in load.asked] == ["first", "second"]
    assert not load.failures(lambda _, prompt: prompt)


@pytest.mark.parametrize("reply", [Reply(done=False, broken="reset"), Reply(done=True, text="something else")])
def test_a_broken_or_a_wrong_answer_is_a_failure(monkeypatch: pytest.MonkeyPatch, reply: Reply) -> None:
    load = Load("http://router", "maths", {})

    def answer(*_: object) -> Reply:
        load.ended.set()
        return reply

    monkeypatch.setattr("support.load.ask", answer)
    load.client(0)
    (line,) = load.failures(lambda *_: "the right one")
    assert line.startswith("maths: ")


def test_the_manifests_are_what_the_api_takes() -> None:
    pool = SharedDecoder.parse(scaled.decoder("image"))
    assert pool.spec.gpu_budget[0].limit == scaled.BUDGET
    tasks = [SunModel.parse(model) for model in scaled.models("here")]
    assert [task.spec.autoscaling is not None for task in tasks] == [True] * 3
    most = scaled.POOL + sum(task.spec.autoscaling.max_replicas for task in tasks if task.spec.autoscaling)
    assert most > scaled.BUDGET  # or it would bound nothing


def test_the_sample_scaled_object_is_asked_for_the_tests_own_model() -> None:
    made = keda.scaled_object(sample("keda.yaml"), "http://prometheus", "here.maths")
    assert made["spec"]["triggers"][0]["metadata"]["query"].count('task="here.maths"') == 2


def test_figures_are_kept_under_their_names(tmp_path: Path) -> None:
    records = Records()
    records.add("seconds until then", 1.2345)
    records.write(tmp_path / "deep" / "figures.json")
    assert records.text() == "seconds until then: 1.23"
    assert yaml.safe_load((tmp_path / "deep" / "figures.json").read_text()) == {"seconds until then": 1.23}
