"""Two manifests become a fleet of real engines that answers exactly, and changing one task leaves the others alone."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import openai
import pytest

from sunfleet_api import names
from support.exact import assert_exact
from support.fleet import engine_pods, wait_ready
from support.kubectl import FIELD_MANAGER, Json, wait_until
from support.running import START_SECONDS, SYNC_SECONDS, RunningFleet
from support.samples import EMBEDDED, documents, sample_request

pytestmark = pytest.mark.timeout(900)  # real engines take minutes to start

FULL = "arith-full"
MODELS_CLAIM = "pvc://sunfleet-models"


def full_model(prefill: Json) -> Json:
    """The sample's first task under another name and with another prefill module."""
    model = documents(EMBEDDED / "models.yaml")[0]
    model["metadata"]["name"] = FULL
    model["spec"]["prefill"] = prefill
    return model


def uids(fleet: RunningFleet, role: str, task: str = "") -> dict[str, str]:
    pods = engine_pods(fleet.kubectl, fleet.namespace, role, task)
    return {pod["metadata"]["name"]: pod["metadata"]["uid"] for pod in pods}


def ask(fleet: RunningFleet, task: str, request: dict[str, Any]) -> Any:
    return fleet.client.chat(task, request["messages"], max_tokens=request["max_tokens"])


@pytest.fixture(scope="module")
def full(fleet: RunningFleet) -> Iterator[str]:
    """A third task whose prefill module is a checkpoint of its own."""
    fleet.kubectl.apply([full_model({"weights": {"uri": f"{MODELS_CLAIM}/{FULL}"}})], fleet.namespace)
    wait_ready(fleet.kubectl, fleet.namespace, START_SECONDS)
    wait_until("the router serves it", lambda: FULL in fleet.client.models(), SYNC_SECONDS)
    yield FULL
    fleet.kubectl.delete("sunmodel", FULL, "--namespace", fleet.namespace)


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize("task", ["arith", "toolcall"])
def test_the_samples_answer_exactly_and_share_a_decode_pod(fleet: RunningFleet, task: str, stream: bool) -> None:
    request = sample_request(task)
    answer = fleet.client.chat(task, request["messages"], max_tokens=request["max_tokens"], stream=stream)
    assert_exact(answer, fleet.expected(task, request["messages"], max_tokens=request["max_tokens"]))
    assert answer.model == task
    assert answer.prefill_pod in fleet.pods(names.ROLE_PREFILL, task)
    assert [answer.decode_pod] == fleet.pods(names.ROLE_DECODE)


def test_a_fleet_that_is_ready_differs_in_nothing_from_its_manifests(fleet: RunningFleet) -> None:
    for name in ("decoder.yaml", "models.yaml"):
        fleet.kubectl.run(
            "diff",
            "--server-side",
            f"--field-manager={FIELD_MANAGER}",
            "--namespace",
            fleet.namespace,
            "--filename",
            str(EMBEDDED / name),
        )


def test_engine_pods_are_restricted_and_hold_no_token(fleet: RunningFleet) -> None:
    for role in (names.ROLE_PREFILL, names.ROLE_DECODE):
        for pod in engine_pods(fleet.kubectl, fleet.namespace, role):
            assert pod["spec"]["automountServiceAccountToken"] is False
            assert pod["spec"]["securityContext"]["runAsNonRoot"] is True
            (engine,) = pod["spec"]["containers"]
            assert engine["securityContext"]["readOnlyRootFilesystem"] is True
            assert not [volume for volume in pod["spec"]["volumes"] if "projected" in volume or "hostPath" in volume]


def test_every_task_names_its_own_prefill_pods_and_the_shared_decoder(fleet: RunningFleet) -> None:
    models = fleet.kubectl.items("sunmodels", "--namespace", fleet.namespace)
    salts = []
    for model in models:
        (target,) = model["status"]["traffic"]
        assert target["weight"] == 100
        assert target["decoder"] == f"{fleet.namespace}/smollm2"
        selected = fleet.kubectl.items(
            "pods", "--namespace", fleet.namespace, "--selector", target["prefill"]["selector"]
        )
        assert {pod["metadata"]["labels"][names.LABEL_MODEL] for pod in selected} == {model["metadata"]["name"]}
        salts.append(target["cacheSalt"])
    assert len(set(salts)) == len(salts)


def test_a_full_checkpoint_is_a_prefill_module_too(fleet: RunningFleet, full: str) -> None:
    request = sample_request("arith")
    module = fleet.reference.module(f"{MODELS_CLAIM}/{FULL}")
    expected = fleet.reference.answer(module, request["messages"], max_tokens=request["max_tokens"])
    answer = ask(fleet, full, request)
    assert_exact(answer, expected)
    assert [answer.decode_pod] == fleet.pods(names.ROLE_DECODE)


def test_a_new_prefill_module_leaves_every_other_pod_alone(fleet: RunningFleet, full: str) -> None:
    others = {
        "decoder": uids(fleet, names.ROLE_DECODE),
        **{task: uids(fleet, names.ROLE_PREFILL, task) for task in fleet.modules},
    }
    old = uids(fleet, names.ROLE_PREFILL, full)
    adapter = {"adapter": {"uri": f"{MODELS_CLAIM}/adapters/toolcall"}}
    fleet.kubectl.apply([full_model(adapter)], fleet.namespace)
    wait_until("the new revision is Ready", lambda: _settled(fleet, full, old), START_SECONDS, interval=3)

    request = sample_request("toolcall")
    expected = fleet.expected("toolcall", request["messages"], max_tokens=request["max_tokens"])
    answer = wait_until("the new pods answer", lambda: _served_by_new(fleet, full, request, old), SYNC_SECONDS)
    assert_exact(answer, expected)
    assert uids(fleet, names.ROLE_DECODE) == others.pop("decoder")
    for task, before in others.items():
        assert uids(fleet, names.ROLE_PREFILL, task) == before


def _settled(fleet: RunningFleet, task: str, old: dict[str, str]) -> bool:
    model = fleet.kubectl.get("sunmodel", task, "--namespace", fleet.namespace)
    ready = {c["type"]: c["status"] for c in model["status"]["conditions"]}.get("Ready") == "True"
    seen = model["status"]["observedGeneration"] == model["metadata"]["generation"]
    now = uids(fleet, names.ROLE_PREFILL, task)
    return ready and seen and bool(now) and not now.keys() & old.keys()


def _served_by_new(fleet: RunningFleet, task: str, request: dict[str, Any], old: dict[str, str]) -> Any:
    answer = ask(fleet, task, request)
    return answer if answer.prefill_pod not in old else None


def test_without_prefill_pods_a_task_is_refused_and_never_decoded_only(fleet: RunningFleet, full: str) -> None:
    before = fleet.prompt_tokens(fleet.pods(names.ROLE_DECODE))
    fleet.kubectl.run("scale", "sunmodel", full, "--replicas=0", "--namespace", fleet.namespace)
    wait_until("its prefill pods are gone", lambda: not fleet.pods(names.ROLE_PREFILL, full), 60)

    refused = wait_until("the router refuses", lambda: _refusal(fleet, full), SYNC_SECONDS)
    assert refused.status_code == 503
    assert int(refused.response.headers["retry-after"]) >= 1
    assert json.loads(refused.response.text)["error"]["message"]
    assert fleet.counted_since(before, 0).local_compute == 0

    request = sample_request("arith")
    answer = ask(fleet, "arith", request)
    assert_exact(answer, fleet.expected("arith", request["messages"], max_tokens=request["max_tokens"]))


def _refusal(fleet: RunningFleet, task: str) -> openai.APIStatusError | None:
    try:
        ask(fleet, task, sample_request("toolcall"))
    except openai.APIStatusError as error:
        return error
    return None
