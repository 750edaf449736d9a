"""The self-check on real engines: every check has run and passed, and an engine that breaks a rule never gets ready."""

from __future__ import annotations

import json
import shutil
import time
import urllib.error
import urllib.request
from pathlib import Path

import pytest
from tests.engine.conftest import Task
from tests.engine.legs import metric
from tests.engine.test_ends import all_kv_free

from sunfleet_cluster.state import StateFolder
from support import engines as support
from support.engines import ROOT, Engine, get_json

BOTH = ("side_channel", "refusal", "handover", "release")
ONLY_DECODE = ("incompatible_peer", "guard", "expired_lease", "computed_prompt")
# Each takes one rule out of the hooks: what to replace in which file, and the check that must find it.
SABOTAGE = {
    "guard": ("hooks/guard.py", "    manager.allocate_slots = guarded\n", "", "guard"),
    "late reads": ("lease.py", "now + clock_offset <= lease_end - MARGIN_SECONDS", "True", "expired_lease"),
    "strangers": (
        "plan.py",
        '"enforce_handshake_compat": True',
        '"enforce_handshake_compat": False',
        "incompatible_peer",
    ),
}


def test_every_check_of_a_pods_role_has_passed_before_it_is_ready(lora_task: Task) -> None:
    for engine, checks in ((lora_task.pair.prefill, BOTH), (lora_task.pair.decode, (*BOTH, *ONLY_DECODE))):
        passed = {check: metric(engine, "sunfleet_worker_self_check", check=check) for check in checks}
        assert passed == dict.fromkeys(checks, 1.0), engine.name
        assert metric(engine, "sunfleet_worker_ended_requests_total") == 0 or engine is lora_task.pair.decode
    assert metric(lora_task.pair.decode, "sunfleet_decode_computed_prompt_tokens_total") == 0
    assert all_kv_free(lora_task.pair.prefill, lora_task.pair.decode)


def test_pods_that_are_a_pair_tell_the_same_contract(lora_task: Task, full_task: Task) -> None:
    told = [
        get_json(f"{pod.url}/sunfleet/info")
        for pod in (lora_task.pair.decode, lora_task.pair.prefill, full_task.pair.prefill)
    ]
    contracts = {info["kv_contract"] for info in told if isinstance(info, dict)}
    assert len(contracts) == 1
    assert len(contracts.pop()) == 32


@pytest.mark.parametrize("rule", SABOTAGE)
def test_an_engine_that_breaks_a_rule_never_gets_ready_and_says_which(
    rule: str, state: StateFolder, engine_python: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file, rule_text, without, check = SABOTAGE[rule]
    rooms = tmp_path / "root"
    for room in ("crds/sunfleet_api", "worker_images/vllm/sunfleet_worker"):
        shutil.copytree(ROOT / room, rooms / room)
    broken = rooms / "worker_images/vllm/sunfleet_worker" / file
    text = broken.read_text()
    assert text.count(rule_text) == 1
    broken.write_text(text.replace(rule_text, without))
    monkeypatch.setattr(support, "ROOT", rooms)
    engine = Engine("broken", "decode", state.models / "base", tmp_path / "engine", engine_python)
    engine.start()
    try:
        reason = _failure(engine)
        assert reason.startswith(f"self-check failed: {check}: "), reason
        assert metric(engine, "sunfleet_worker_self_check", check=check) == 0
        assert f"Self-check failed, the pod is not ready: {check}" in engine.log.read_text()
    finally:
        engine.kill()


def _failure(engine: Engine) -> str:
    """Why the engine says it is not ready, once its check has failed; an error if it gets ready."""
    assert engine.process is not None
    deadline = time.monotonic() + support.START_SECONDS
    while time.monotonic() < deadline:
        assert engine.process.poll() is None, engine.log.read_text()[-3000:]
        try:
            with urllib.request.urlopen(f"{engine.url}/sunfleet/readyz", timeout=5):
                pytest.fail("it got ready")
        except urllib.error.HTTPError as error:
            reason = str(json.loads(error.read())["reason"])
            if "failed" in reason:
                return reason
        except OSError:
            pass
        time.sleep(0.3)
    raise AssertionError("no verdict in time")
