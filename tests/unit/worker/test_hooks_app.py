"""The pod's own routes, and what a prefill pod does not keep."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from fastapi import FastAPI
from fastapi.testclient import TestClient
from prometheus_client import CollectorRegistry

from sunfleet_api import wire
from sunfleet_api.worker import WorkerSettings
from sunfleet_worker.frontend.app import install
from sunfleet_worker.frontend.metrics import PodMetrics
from sunfleet_worker.frontend.serving import SunCompletion, serving_for
from sunfleet_worker.frontend.standing import Standing
from sunfleet_worker.frontend.streams import WatchedEngine
from sunfleet_worker.handover import KEY_RELEASE, released_requests


class Engine:
    """Stands for the engine's client; keeps what it is told."""

    def __init__(self) -> None:
        self.told: list[frozenset[str]] = []
        model, cache = SimpleNamespace(max_model_len=100), SimpleNamespace(num_gpu_blocks=11, block_size=16)
        self.vllm_config = SimpleNamespace(model_config=model, cache_config=cache)
        state = SimpleNamespace(detokenizer=SimpleNamespace(num_output_tokens=lambda: 7))
        self.output_processor = SimpleNamespace(external_req_ids={"cmpl-abc-0": ["i"]}, request_states={"i": state})

    async def notify_kv_transfer_request_rejected(self, request_id: str, params: dict[str, Any]) -> None:
        assert list(params) == [KEY_RELEASE]
        self.told.append(released_requests(params))


@pytest.fixture
def engine() -> Engine:
    return Engine()


def pod(role: Any, engine: Engine, standing: Standing | None = None) -> tuple[TestClient, CollectorRegistry]:
    registry, app = CollectorRegistry(), FastAPI()
    app.state.openai_serving_chat = app.state.openai_serving_completion = SimpleNamespace()
    stock: Any = engine
    watched = WatchedEngine(stock, print)
    install(app, WorkerSettings(role=role), watched, PodMetrics(role, registry), standing or Standing(), "0")
    return TestClient(app), registry


def test_a_prefill_pod_releases_kv_as_often_as_it_is_asked(engine: Engine) -> None:
    client, registry = pod("prefill", engine)
    for _ in range(2):
        answer = client.post(wire.RELEASE_PATH, json={"kv_transfer_params": {"remote_request_id": "r", "more": 1}})
        assert (answer.status_code, answer.content) == (204, b"")
    assert engine.told == [frozenset({"r"})] * 2
    assert registry.get_sample_value("sunfleet_worker_released_prompts_total") == 2


@pytest.mark.parametrize("body", [{}, {"kv_transfer_params": {}}, {"kv_transfer_params": {"remote_request_id": 7}}])
def test_a_release_without_a_request_is_refused(engine: Engine, body: dict[str, Any]) -> None:
    assert pod("prefill", engine)[0].post(wire.RELEASE_PATH, json=body).status_code == 422
    assert engine.told == []


def test_a_decode_pod_has_nothing_to_release(engine: Engine) -> None:
    client, _ = pod("decode", engine)
    body = {"kv_transfer_params": {"remote_request_id": "r"}}
    assert client.post(wire.RELEASE_PATH, json=body).status_code == 404


def test_a_decode_pod_tells_how_far_a_request_is(engine: Engine) -> None:
    client, _ = pod("decode", engine)
    assert client.get(wire.PROGRESS_PATH, params={"request": "abc"}).json() == {"tokens": 7}
    unknown = client.get(wire.PROGRESS_PATH, params={"request": "other"})
    assert (unknown.status_code, unknown.json()["error"]["code"]) == (404, "request_not_found")
    assert pod("prefill", engine)[0].get(wire.PROGRESS_PATH, params={"request": "abc"}).status_code == 404


@pytest.mark.parametrize(("role", "exported"), [("decode", 0.0), ("prefill", None)])
def test_only_decode_pods_export_the_prompt_tokens_that_they_computed(
    engine: Engine, role: str, exported: float | None
) -> None:
    _, registry = pod(role, engine)
    assert registry.get_sample_value("sunfleet_decode_computed_prompt_tokens_total") == exported


def test_a_pod_tells_that_it_is_ready_and_who_it_is_once_it_has_proven_itself(engine: Engine) -> None:
    standing = Standing()
    client, _ = pod("decode", engine, standing)
    standing.reason = "self-check failed: guard: not done within 60 s"
    ready, info = client.get("/sunfleet/readyz"), client.get("/sunfleet/info")
    assert (ready.status_code, ready.json()) == (503, {"ready": False, "reason": standing.reason})
    assert (info.status_code, info.json()["error"]["code"]) == (503, "sun_not_ready")
    standing.reason, standing.kv_contract = "", "c" * 32
    ready, info = client.get("/sunfleet/readyz"), client.get("/sunfleet/info")
    assert (ready.status_code, ready.json()) == (200, {"ready": True, "reason": ""})
    assert (info.status_code, info.json()["kv_contract"]) == (200, "c" * 32)


@pytest.mark.parametrize(("finish", "kept"), [("length", True), ("stop", False), ("tool_calls", False)])
async def test_a_prefills_answer_that_has_ended_hands_nothing_over(engine: Engine, finish: str, kept: bool) -> None:
    stock: Any = engine
    server = serving_for(
        SimpleNamespace(engine_client=WatchedEngine(stock, print)),
        SunCompletion,
        "prefill",
        PodMetrics("prefill", CollectorRegistry()),
    )
    transfer = {"remote_request_id": "r"}
    answer = SimpleNamespace(kv_transfer_params=transfer, choices=[SimpleNamespace(finish_reason=finish)])

    async def answered() -> Any:
        return answer

    assert await server._answered(answered()) is answer
    assert answer.kv_transfer_params == (transfer if kept else None)
    assert engine.told == ([] if kept else [frozenset({"r"})])
