"""``verify``: golden prompts through two engine pods, and what is said of their answers."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sunfleet_api.golden import GOLDEN_FILE, GoldenPrompt, GoldenSet
from sunfleet_api.pooling import PATH, Wanted, WantedAdapter, folder
from sunfleet_api.worker import VerificationReport
from sunfleet_fakes.certificates import certificate
from sunfleet_fakes.checkpoints import adapter_files, write
from sunfleet_fakes.engine.tokens import module_identity
from sunfleet_fakes.harness import EngineControl, FakeEngine, expected_tokens
from sunfleet_weights.cli import main
from sunfleet_weights.verify import run
from sunfleet_weights.verify.compare import difference, report

PROMPTS = ((20, 21, 22), (23, 24), tuple(range(20, 60)))
ANSWER_TOKENS = 6
Verify = Callable[..., tuple[int, VerificationReport]]


@pytest.fixture(scope="module")
def prefill() -> Iterator[FakeEngine]:
    with FakeEngine("prefill", identity="maths") as engine:
        yield engine


@pytest.fixture(scope="module")
def decode() -> Iterator[FakeEngine]:
    with FakeEngine("decode", identity="base") as engine:
        yield engine


@pytest.fixture(autouse=True)
def _as_started(prefill: FakeEngine, decode: FakeEngine) -> None:
    for engine in (prefill, decode):
        engine.reset()
        engine.configure(answer_tokens=ANSWER_TOKENS)


@pytest.fixture(autouse=True)
def pauses(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Seconds that were waited for; nobody waits here."""
    waited: list[float] = []
    monkeypatch.setattr(run, "sleep", waited.append)
    return waited


@pytest.fixture
def verify(tmp_path: Path, prefill: FakeEngine, decode: FakeEngine) -> Verify:
    def verified(folder: Path, *more: str) -> tuple[int, VerificationReport]:
        said = tmp_path / "report.json"
        ends = ["--prefill", prefill.url, "--decode", decode.url, *more]
        code = main(["verify", "pvc://golden/maths", "--to", str(folder), *ends, "--report", str(said)])
        return code, VerificationReport.model_validate(json.loads(said.read_bytes()))

    return verified


def _right(prompt: tuple[int, ...], most: int) -> tuple[int, ...]:
    return tuple(expected_tokens("maths", "base", prompt, answer_tokens=ANSWER_TOKENS, max_tokens=most))


def _written(folder: Path, *answers: tuple[tuple[int, ...], tuple[int, ...]]) -> bytes:
    prompts = tuple(GoldenPrompt(prompt_token_ids=prompt, token_ids=tokens) for prompt, tokens in answers)
    raw = GoldenSet(prompts=prompts).model_dump_json().encode()
    (folder / GOLDEN_FILE).write_bytes(raw)
    return raw


# The whole answer with its end, an answer that is cut, and one token, which needs no decoder.
@pytest.mark.parametrize("most", [ANSWER_TOKENS, 4, 1])
def test_exact_answers_pass(verify: Verify, tmp_path: Path, most: int) -> None:
    _written(tmp_path, *((prompt, _right(prompt, most)) for prompt in PROMPTS))
    assert verify(tmp_path) == (0, VerificationReport(passed=3, total=3))


def test_an_adapter_of_a_pool_is_asked_for_by_its_name(tmp_path: Path, decode: FakeEngine) -> None:
    adapter = WantedAdapter(name="team.maths-1", uri="hf://acme/maths-lora@1", digest="sha256:01")
    files = write(tmp_path / "pool" / folder(adapter.digest), adapter_files(1))
    tokens = expected_tokens(
        module_identity("base", str(files)), "base", PROMPTS[0], answer_tokens=ANSWER_TOKENS, max_tokens=4
    )
    _written(tmp_path, (PROMPTS[0], tuple(tokens)))
    said = tmp_path / "report.json"
    with FakeEngine("prefill", adapters_path=str(tmp_path / "pool"), admin_port=0, model_path="base") as pool:
        admin = EngineControl(f"http://{pool.host}:{pool.admin_port}")
        admin.request("PUT", PATH, Wanted(adapters=(adapter,)).model_dump())
        ends = ["--prefill", pool.url, "--decode", decode.url, "--module", adapter.name, "--report", str(said)]
        assert main(["verify", "pvc://golden/maths", "--to", str(tmp_path), *ends]) == 0
    assert VerificationReport.model_validate_json(said.read_bytes()).passed == 1


def test_engines_that_speak_tls_are_asked_by_it_under_their_one_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _written(tmp_path, *((prompt, _right(prompt, 4)) for prompt in PROMPTS))
    authority, _ = certificate(tmp_path, "tls", "DNS:sunfleet-engine")
    other, _ = certificate(tmp_path, "other", "DNS:sunfleet-engine")
    behaviour, said, folder = {"answer_tokens": ANSWER_TOKENS}, tmp_path / "report.json", str(tmp_path)
    with (
        FakeEngine("prefill", identity="maths", behaviour=behaviour, tls_path=folder) as first,
        FakeEngine("decode", identity="base", behaviour=behaviour, tls_path=folder) as second,
    ):
        ends = ["--prefill", first.url, "--decode", second.url, "--report", str(said)]
        reports = []
        for trusted in (authority, other):
            monkeypatch.setenv("SUNFLEET_WEIGHTS_ENGINE_CA_FILE", str(trusted))
            main(["verify", "pvc://golden/maths", "--to", folder, *ends])
            reports.append(VerificationReport.model_validate_json(said.read_bytes()))
    assert (reports[0].passed, reports[0].total) == (3, 3)
    assert reports[1].error_reason == "EngineUnreachable"
    assert "certificate" in reports[1].error_message


@pytest.mark.parametrize("content", [None, "no certificate"])
def test_an_authority_that_cannot_be_read_is_said(
    verify: Verify, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, content: str | None
) -> None:
    _written(tmp_path, (PROMPTS[0], _right(PROMPTS[0], 4)))
    file = tmp_path / "ca.crt"
    if content is not None:
        file.write_text(content)
    monkeypatch.setenv("SUNFLEET_WEIGHTS_ENGINE_CA_FILE", str(file))
    code, said = verify(tmp_path)
    assert (code, said.error_reason) == (1, "InvalidBundle")
    assert str(file) in said.error_message


def test_both_legs_are_taken_with_a_salt_of_their_own(
    verify: Verify, tmp_path: Path, prefill: FakeEngine, decode: FakeEngine
) -> None:
    _written(tmp_path, (PROMPTS[0], _right(PROMPTS[0], 4)))
    verify(tmp_path, "--salt", "check-1")
    (first,), (second,) = prefill.requests(), decode.requests()
    assert {first["body"]["cache_salt"], second["body"]["cache_salt"]} == {"check-1"}
    assert second["body"]["kv_transfer_params"]["do_remote_prefill"] is True


def test_another_answer_names_prompt_token_and_pods(
    verify: Verify, tmp_path: Path, prefill: FakeEngine, decode: FakeEngine
) -> None:
    wrong = (*_right(PROMPTS[1], 4)[:2], 99, 98)
    _written(tmp_path, (PROMPTS[0], _right(PROMPTS[0], 4)), (PROMPTS[1], wrong))
    code, said = verify(tmp_path)
    assert (code, said.passed, said.total) == (0, 1, 2)
    assert "prompt 1: token 2 is" in said.first_mismatch
    assert f"expected 99 ({prefill.url} -> {decode.url})" in said.first_mismatch


def test_a_decoder_with_other_weights_is_found_out(verify: Verify, tmp_path: Path, decode: FakeEngine) -> None:
    other = tuple(expected_tokens("maths", "another", PROMPTS[0], answer_tokens=ANSWER_TOKENS, max_tokens=4))
    _written(tmp_path, (PROMPTS[0], other))
    assert "prompt 0: token 1 is" in verify(tmp_path)[1].first_mismatch


def test_prompts_that_were_made_with_another_decoder_say_so_when_they_differ(verify: Verify, tmp_path: Path) -> None:
    prompts = (GoldenPrompt(prompt_token_ids=PROMPTS[0], token_ids=(5,)),)
    raw = GoldenSet(decoder_digest="sha256:a", prompts=prompts).model_dump_json()
    (tmp_path / GOLDEN_FILE).write_text(raw)
    assert "made with decoder sha256:a, this is sha256:b" in verify(tmp_path, "--decoder", "sha256:b")[1].first_mismatch
    assert "made with" not in verify(tmp_path, "--decoder", "sha256:a")[1].first_mismatch


def test_an_engine_that_fails_is_no_mismatch_and_its_kv_is_given_back(
    verify: Verify, tmp_path: Path, prefill: FakeEngine, decode: FakeEngine
) -> None:
    decode.configure(fail_status=503, fail_message="no room")
    _written(tmp_path, (PROMPTS[0], _right(PROMPTS[0], 4)))
    code, said = verify(tmp_path)
    assert (code, said.error_reason) == (1, "EngineRefused")
    assert "no room" in said.error_message
    assert prefill.metric("vllm:kv_cache_usage_perc") == 0


def test_pods_that_are_gone_are_passed_over_as_long_as_others_answer(verify: Verify, tmp_path: Path) -> None:
    _written(tmp_path, (PROMPTS[0], _right(PROMPTS[0], 4)))
    # Port 9 of this machine answers nobody.
    assert verify(tmp_path, "--decode", "http://127.0.0.1:9", "--prefill", "http://127.0.0.1:9")[0] == 0
    code, said = _alone(tmp_path)
    assert (code, said.error_reason) == (1, "EngineUnreachable")


def test_a_new_pod_is_given_half_a_minute_to_become_known_to_the_network(
    verify: Verify, tmp_path: Path, decode: FakeEngine, monkeypatch: pytest.MonkeyPatch, pauses: list[float]
) -> None:
    _written(tmp_path, (PROMPTS[0], _right(PROMPTS[0], 4)))
    assert _alone(tmp_path)[0] == 1
    assert pauses[0] == 0, "another pod is asked at once"
    assert 30 <= sum(pauses) <= 60
    waited: list[float] = []

    def until_it_is_known(seconds: float) -> None:
        waited.append(seconds)
        if len(waited) == 3:
            decode.reset()
            decode.configure(answer_tokens=ANSWER_TOKENS)

    monkeypatch.setattr(run, "sleep", until_it_is_known)
    decode.configure(fail_status=503, fail_message="not yet")
    assert verify(tmp_path) == (0, VerificationReport(passed=1, total=1))
    assert len(waited) == 3


def _alone(folder: Path) -> tuple[int, VerificationReport]:
    said, gone = folder / "alone.json", "http://127.0.0.1:9"
    ends = ["--prefill", gone, "--decode", gone, "--report", str(said)]
    code = main(["verify", "pvc://golden/maths", "--to", str(folder), *ends])
    return code, VerificationReport.model_validate(json.loads(said.read_bytes()))


def test_an_incomplete_hand_over_never_reaches_the_decoder(
    verify: Verify, tmp_path: Path, prefill: FakeEngine, decode: FakeEngine
) -> None:
    prefill.configure(drop_transfer_fields=["remote_host"])
    _written(tmp_path, (PROMPTS[0], _right(PROMPTS[0], 4)))
    code, said = verify(tmp_path)
    assert (code, said.error_reason) == (1, "EngineRefused")
    assert "remote_host" in said.error_message
    assert decode.requests() == []


BAD: dict[str, tuple[Any, str, str]] = {
    "no file": (None, "GoldenPromptsNotFound", "has no golden.json"),
    "no JSON": (b"{", "InvalidGoldenPrompts", "golden.json is no JSON: Expecting property name"),
    "no prompts": (b"{}", "InvalidGoldenPrompts", "holds no prompts"),
    "a prompt without an answer": (
        b'{"prompts": [{"prompt_token_ids": [1], "token_ids": []}]}', "InvalidGoldenPrompts",
        "golden.json: prompts[0].token_ids: must have at least 1 item",
    ),
}  # fmt: skip


@pytest.mark.parametrize(("raw", "reason", "words"), BAD.values(), ids=BAD)
def test_prompts_that_cannot_be_read_are_said(
    verify: Verify, tmp_path: Path, raw: bytes | None, reason: str, words: str
) -> None:
    folder = tmp_path / "golden"
    folder.mkdir()
    if raw is not None:
        (folder / GOLDEN_FILE).write_bytes(raw)
    code, said = verify(folder)
    assert (code, said.error_reason) == (1, reason)
    assert words in said.error_message


def test_prompts_that_changed_since_the_check_was_made_are_not_asked(verify: Verify, tmp_path: Path) -> None:
    raw = _written(tmp_path, (PROMPTS[0], _right(PROMPTS[0], 4)))
    assert verify(tmp_path, "--expect", hashlib.sha256(raw).hexdigest())[0] == 0
    code, said = verify(tmp_path, "--expect", hashlib.sha256(b"before").hexdigest())
    assert (code, said.error_reason) == (1, "GoldenPromptsChanged")


ANSWERS = st.lists(st.integers(0, 3), max_size=5)


@given(ANSWERS, ANSWERS)
def test_there_is_a_difference_exactly_between_unequal_answers(one: list[int], other: list[int]) -> None:
    assert (difference(one, other) == "") == (one == other)


@given(st.lists(st.sampled_from(["", "differs"]), max_size=6))
def test_a_report_counts_exact_answers_and_names_the_first_other_one(differences: list[str]) -> None:
    said = report(differences)
    assert (said.passed, said.total) == (differences.count(""), len(differences))
    wrong = [number for number, text in enumerate(differences) if text]
    assert said.first_mismatch == (f"prompt {wrong[0]}: differs" if wrong else "")


def test_engines_that_ask_for_a_key_are_shown_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _written(tmp_path, (PROMPTS[0], _right(PROMPTS[0], 4)))
    said = tmp_path / "report.json"
    settings: dict[str, Any] = {"api_key": "fleet-secret", "behaviour": {"answer_tokens": ANSWER_TOKENS}}
    with (
        FakeEngine("prefill", identity="maths", **settings) as prefill,
        FakeEngine("decode", identity="base", **settings) as decode,
    ):
        command = ["verify", "pvc://golden/maths", "--to", str(tmp_path), "--report", str(said)]
        command += ["--prefill", prefill.url, "--decode", decode.url]
        assert main(command) == 1
        assert json.loads(said.read_bytes())["error_reason"] == "EngineRefused"
        monkeypatch.setenv("SUNFLEET_WEIGHTS_ENGINE_KEY", "fleet-secret")
        assert main(command) == 0
    assert json.loads(said.read_bytes())["passed"] == 1
