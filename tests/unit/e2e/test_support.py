"""What the demo and the cluster suites conclude from what they see."""

from __future__ import annotations

import signal
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest

from sunfleet_api import names
from support.client import Answer, RouterClient, _add
from support.engines import end
from support.exact import compare
from support.fleet import describe_object, describe_pod, last_said
from support.kubectl import Kubectl, KubectlError
from support.metrics import PromptTokens, prompt_tokens, samples
from support.prompts import Prompts
from support.reference import Expected

METRICS = """\
# HELP vllm:prompt_tokens_by_source_total Prompt tokens by source.
# TYPE vllm:prompt_tokens_by_source_total counter
vllm:prompt_tokens_by_source_total{engine="0",model_name="sunfleet",source="local_compute"} 3.0
vllm:prompt_tokens_by_source_total{engine="0",model_name="a \\"b\\"",source="local_cache_hit"} 32.0
vllm:prompt_tokens_by_source_total{engine="0",model_name="sunfleet",source="external_kv_transfer"} 1.25e+02
vllm:num_requests_running{engine="0"} 2.0
up 1
"""


def expected(tokens: list[int], margins: list[float] | None = None) -> Expected:
    return Expected(
        prompt_token_ids=[1, 2],
        token_ids=tokens,
        text="",
        finish_reason="stop",
        logprobs=[-0.1] * len(tokens),
        margins=margins or [5.0] * len(tokens),
        runners_up=[token + 100 for token in tokens],
    )


@pytest.mark.parametrize(
    ("given", "margins", "outcome"),
    [
        ([7, 8, 9], None, "exact"),
        ([7, 8], None, "different"),
        ([7, 8, 9, 2], None, "different"),
        ([7, 108, 3], None, "different"),
        ([7, 108, 3], [5.0, 1e-5, 5.0], "near-tie"),
        ([7, 55, 3], [5.0, 1e-5, 5.0], "different"),  # neither of the two best
        ([7, 108, 3], [5.0, 2e-3, 5.0], "different"),
    ],
)
def test_only_the_runner_up_of_a_near_tie_is_excused(
    given: list[int], margins: list[float] | None, outcome: str
) -> None:
    assert compare(given, expected([7, 8, 9], margins)).outcome == outcome


def test_a_difference_is_told_with_its_place() -> None:
    assert "token 1: got 108, expected 8" in compare([7, 108], expected([7, 8])).explanation


def test_prompt_tokens_are_read_by_source() -> None:
    assert prompt_tokens(METRICS) == PromptTokens(local_compute=3, local_cache=32, transferred=125)
    assert samples(METRICS, "up") == [({}, 1.0)]
    assert prompt_tokens(METRICS) - PromptTokens(1, 2, 5) == PromptTokens(2, 30, 120)
    assert (PromptTokens(1, 2, 3) + PromptTokens(1, 1, 1)).total == 9


def condition(kind: str, status: str, **rest: Any) -> dict[str, Any]:
    return {"type": kind, "status": status, **rest}


def test_a_condition_of_an_older_generation_says_nothing() -> None:
    ready = condition("Ready", "True", reason="Available", message="", observedGeneration=1)
    thing: dict[str, Any] = {
        "kind": "SunModel",
        "metadata": {"name": "arith", "generation": 2, "creationTimestamp": "2026-01-01T00:00:00Z"},
        "status": {"conditions": [ready]},
    }
    assert not describe_object(thing).ready
    ready["observedGeneration"] = 2
    assert describe_object(thing).ready
    del thing["status"]
    assert describe_object(thing).reason == "not seen by the operator yet"


@pytest.mark.parametrize(
    ("status", "state", "reason"),
    [
        ({"conditions": [condition("Ready", "True")]}, "Ready", ""),
        (
            {"conditions": [condition("PodScheduled", "False", reason="Unschedulable", message="no GPU")]},
            "Unschedulable",
            "no GPU",
        ),
        (
            {"containerStatuses": [{"state": {"waiting": {"reason": "ErrImageNeverPull", "message": "no image"}}}]},
            "ErrImageNeverPull",
            "no image",
        ),
        (
            {
                "containerStatuses": [
                    {
                        "state": {"waiting": {"reason": "CrashLoopBackOff"}},
                        "lastState": {"terminated": {"exitCode": 1, "message": "no memory"}},
                    }
                ]
            },
            "CrashLoopBackOff",
            "no memory",
        ),
        (
            {"phase": "Running", "containerStatuses": [{"state": {"running": {}}, "started": False}]},
            "Starting",
            "the engine loads",
        ),
        ({"phase": "Succeeded"}, "Done", ""),
    ],
)
def test_a_pod_says_what_keeps_it_from_being_ready(status: dict[str, Any], state: str, reason: str) -> None:
    labels = {names.LABEL_ROLE: "decode"}
    metadata = {"name": "pod", "labels": labels, "creationTimestamp": "2026-01-01T00:00:00Z"}
    line = describe_pod({"metadata": metadata, "status": status})
    assert (line.state, line.reason) == (state, reason)


@pytest.mark.parametrize(
    "line",
    [
        "(EngineCore pid=24) INFO 11-29 20:57:00 [gpu_model_runner.py:512] Loading weights",
        "(APIServer pid=1) (Worker pid=3) INFO 11-29 20:57:00 [x.py:5] Loading weights",
        "INFO 11-29 20:57:00 [x.py:5] Loading weights",
        "Loading weights",
    ],
)
def test_what_an_engine_said_is_shown_without_its_prefix(line: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Kubectl, "run", lambda *_: line + "\n")
    assert last_said(Kubectl("kubectl", Path("config")), "demo", "pod") == "Loading weights"


def test_chunks_add_up_to_an_answer() -> None:
    answer = Answer()
    choice = {"delta": {"content": "4"}, "token_ids": [36], "finish_reason": None}
    _add(answer, {"model": "arith", "prompt_token_ids": [1, 2], "choices": [choice]})
    _add(
        answer,
        {"model": "arith", "choices": [{"delta": {"content": "2"}, "token_ids": [34, 2], "finish_reason": "stop"}]},
    )
    _add(answer, {"model": "arith", "choices": [], "usage": {"prompt_tokens": 2}})
    assert (answer.text, answer.token_ids, answer.prompt_token_ids) == ("42", [36, 34, 2], [1, 2])
    assert (answer.finish_reason, answer.usage) == ("stop", {"prompt_tokens": 2})


def test_prompts_have_their_length_and_an_own_first_block() -> None:
    prompts = Prompts([[1, 2, 3], [4, 5, 6, 7]], seed=1)
    made = [prompts.new(length) for length in (1, 2, 31, 33, 33)]
    assert [len(prompt) for prompt in made] == [1, 2, 31, 33, 33]
    assert made[3][:2] != made[4][:2]
    assert Prompts([[1, 2, 3], [4, 5, 6, 7]], seed=1).new(1) == made[0]


def test_the_client_does_not_retry() -> None:
    assert RouterClient("http://127.0.0.1:1").openai.max_retries == 0


def test_nothing_of_an_engines_session_outlives_its_end() -> None:
    command = ["sh", "-c", "sleep 300 & echo $!; wait"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, start_new_session=True) as process:
        assert process.stdout is not None
        child = int(process.stdout.readline())
        assert end(process) == -signal.SIGTERM
    deadline = time.monotonic() + 10
    while _runs(child):
        assert time.monotonic() < deadline
        time.sleep(0.01)


def _runs(pid: int) -> bool:
    """Not when it was killed, whether or not somebody has waited for it."""
    try:
        return Path("/proc", str(pid), "stat").read_text().split()[2] != "Z"
    except OSError:
        return False


# As kubectl: says where, then a line for each connection. 200 kB of them are more than a pipe holds.
FORWARD = """#!/bin/sh
echo "Forwarding from 127.0.0.1:4711 -> 80"
head -c 200000 /dev/zero | tr '\\0' '\\n'
touch {done}
exec sleep 60
"""


def test_a_forwarded_port_does_not_stand_still_after_many_connections(tmp_path: Path) -> None:
    program, done = tmp_path / "kubectl", tmp_path / "done"
    program.write_text(FORWARD.format(done=done))
    program.chmod(0o755)
    with Kubectl(str(program), tmp_path / "config").port_forward("default", "service/web", 80) as url:
        assert url == "http://127.0.0.1:4711"
        deadline = time.monotonic() + 10
        while not done.exists():
            assert time.monotonic() < deadline
            time.sleep(0.01)


def test_a_port_that_cannot_be_forwarded_says_why(tmp_path: Path) -> None:
    program = tmp_path / "kubectl"
    program.write_text("#!/bin/sh\necho 'error: no such service'\n")
    program.chmod(0o755)
    with (
        pytest.raises(KubectlError, match="no such service"),
        Kubectl(str(program), tmp_path / "config").port_forward("default", "service/web", 80),
    ):
        raise AssertionError("nothing is forwarded")
