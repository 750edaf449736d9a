"""Golden prompts against a real API server: the operator's Jobs are carried out, by the verifier, on fake engines."""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from sunfleet_api import names
from sunfleet_api.golden import GOLDEN_FILE, GoldenPrompt, GoldenSet
from sunfleet_api.worker import VerificationReport
from sunfleet_fakes.harness import FakeEngine, expected_tokens
from sunfleet_optest.live import Fleet
from sunfleet_optest.objects import decoder, model
from sunfleet_weights.cli import main

pytestmark = pytest.mark.timeout(300)
DECODER, TASK = ("SharedDecoder", "base"), ("SunModel", "maths")
PROMPTS = ((20, 21, 22), (23, 24))
GOLDEN: dict[str, Any] = {"verification": {"goldenPrompts": {"configMapRef": {"name": "golden"}}}}
# Every engine listens on port 8000 of an address of its own, as pods do.
DECODE_IP, OLD_IP, NEW_IP = "127.0.8.1", "127.0.8.2", "127.0.8.3"


@pytest.fixture(scope="module")
def engines() -> Iterator[None]:
    """Modules are known by their identity: "maths" and "maths2" over the decoder "base"."""
    with (
        FakeEngine("decode", identity="base", host=DECODE_IP, port=names.ENGINE_PORT),
        FakeEngine("prefill", identity="maths", host=OLD_IP, port=names.ENGINE_PORT),
        FakeEngine("prefill", identity="maths2", host=NEW_IP, port=names.ENGINE_PORT),
    ):
        yield


def _address(live: dict[str, Any]) -> str:
    if live["metadata"]["labels"][names.LABEL_ROLE] == "decode":
        return DECODE_IP
    return NEW_IP if "adapters/maths2" in str(live["spec"]) else OLD_IP


def _golden(identity: str) -> str:
    """What the module of this name has to answer."""
    prompts = (
        GoldenPrompt(
            prompt_token_ids=prompt,
            token_ids=tuple(expected_tokens(identity, "base", prompt, answer_tokens=16, max_tokens=5)),
        )
        for prompt in PROMPTS
    )
    return GoldenSet(prompts=tuple(prompts)).model_dump_json()


def _config_map(fleet: Fleet, identity: str) -> None:
    manifest = {
        "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "golden"},
        "data": {GOLDEN_FILE: _golden(identity)},
    }  # fmt: skip
    fleet.api.apply(f"/api/v1/namespaces/{fleet.namespace}/configmaps/golden", manifest, "kubectl")


@pytest.fixture
def verified(fleet: Fleet, engines: None, tmp_path: Path) -> Fleet:
    """Verifier Jobs run the verifier, with the ConfigMap of now where it is mounted."""

    @cache
    def run(arguments: tuple[str, ...]) -> VerificationReport:
        live = fleet.api.get(f"/api/v1/namespaces/{fleet.namespace}/configmaps/golden")
        (tmp_path / GOLDEN_FILE).write_text(live["data"][GOLDEN_FILE])
        said = tmp_path / "report.json"
        mounted = [str(tmp_path) if word == "/golden" else word for word in arguments]
        main([*mounted, "--report", str(said)])
        return VerificationReport.model_validate(json.loads(said.read_bytes()))

    fleet.verify = lambda job: run(tuple(job["spec"]["template"]["spec"]["containers"][0]["args"]))
    fleet.address = _address
    return fleet


def _serving(fleet: Fleet) -> list[str]:
    return [entry["revision"] for entry in fleet.get(*TASK)["status"].get("traffic") or ()]


def test_a_revision_that_answers_otherwise_never_gets_traffic_and_the_old_one_goes_on(verified: Fleet) -> None:
    fleet = verified
    _config_map(fleet, "maths")
    fleet.apply(decoder())
    fleet.apply(model(**GOLDEN))
    fleet.until_ready(DECODER, TASK)
    (old,) = _serving(fleet)
    assert fleet.get(*TASK)["status"]["verification"]["passed"] == len(PROMPTS)
    fleet.apply(model(uri="pvc://models/adapters/maths2", **GOLDEN))
    fleet.until(lambda: fleet.condition(*TASK, "Verified")[1] == "GoldenPromptMismatch", "the mismatch")
    assert "prompt 0: token 0 is" in fleet.condition(*TASK, "Verified")[2]
    fleet.until(lambda: len(fleet.deployments("maths")) == 1, "the new revision's pods are gone")
    assert _serving(fleet) == [old]
    events = fleet.items("api/v1", "events")
    assert [e["type"] for e in events if e["reason"] == "GoldenPromptMismatch"] == ["Warning"]
    # The prompts were those of the old module: with the new one's the same revision passes.
    _config_map(fleet, "maths2")
    fleet.patch(*TASK, {"spec": {"traffic": {"weight": 2}}})
    fleet.until_ready(TASK)
    (new,) = _serving(fleet)
    assert new != old
    assert fleet.get(*TASK)["status"]["verification"]["revision"] == new


def _canary(fleet: Fleet) -> dict[str, Any]:
    return dict((fleet.get(*TASK).get("status") or {}).get("canary") or {})


BESIDE: dict[str, Any] = {
    "prefill": {"adapter": {"uri": "pvc://models/adapters/maths2"}},
    "steps": [{"weight": 5, "pauseSeconds": 1}, {"weight": 100}],
}


def test_a_canary_that_answers_otherwise_is_rolled_back_before_any_request(verified: Fleet) -> None:
    fleet = verified
    _config_map(fleet, "maths")
    fleet.apply(decoder())
    fleet.apply(model(**GOLDEN))
    fleet.until_ready(DECODER, TASK)
    (old,) = _serving(fleet)
    fleet.apply(model(canary=BESIDE, **GOLDEN))
    fleet.until(lambda: _canary(fleet).get("phase") == "RolledBack", "rolled back")
    assert "prompt 0: token 0 is" in _canary(fleet)["reason"]
    fleet.until(lambda: len(fleet.deployments("maths")) == 1, "its pods are gone")
    assert _serving(fleet) == [old]
    fleet.until_ready(TASK)


def test_a_canary_gets_its_share_waits_for_metrics_and_is_promoted_with_the_pods_it_has(fleet: Fleet) -> None:
    fleet.apply(decoder())
    fleet.apply(model())
    fleet.until_ready(DECODER, TASK)
    (old,) = _serving(fleet)
    fleet.apply(model(canary=BESIDE))
    fleet.until(lambda: _canary(fleet).get("weight") == 5, "the first step")
    new = _canary(fleet)["revision"]
    traffic = {entry["revision"]: entry["weight"] for entry in fleet.get(*TASK)["status"]["traffic"]}
    assert traffic == {old: 95, new: 5}
    fleet.until(lambda: "no Prometheus is configured" in _canary(fleet)["reason"], "no step without metrics")
    before = fleet.deployments("maths")[f"maths-{new}"]["metadata"]["uid"]
    fleet.apply(model(uri="pvc://models/adapters/maths2"))
    fleet.until(lambda: _serving(fleet) == [new], "promoted")
    fleet.until(lambda: len(fleet.deployments("maths")) == 1, "only the promoted revision is left")
    assert fleet.deployments("maths")[f"maths-{new}"]["metadata"]["uid"] == before
    fleet.until_ready(TASK)
    assert _canary(fleet) == {}
