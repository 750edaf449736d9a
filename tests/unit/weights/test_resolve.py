"""``resolve``: what a URI is, wherever it lies, and why it is not what it should be."""

from __future__ import annotations

import json
import socket
from collections.abc import Callable
from pathlib import Path

import pytest

from sunfleet_api import names
from sunfleet_api.checkpoint import kv_relevant
from sunfleet_api.worker import ResolverReport
from sunfleet_fakes.checkpoints import adapter_files, model_files, tokenizer, write
from sunfleet_fakes.hub.server import FakeHub

Run = Callable[..., tuple[int, ResolverReport]]


def test_a_branch_is_resolved_to_its_commit(hub: FakeHub, run: Run) -> None:
    commit = hub.commit("acme/base", model_files(1))
    code, report = run("resolve", "hf://acme/base")
    assert (code, report.resolved_uri) == (0, f"hf://acme/base@{commit}")


def test_an_older_commit_and_a_tag_can_be_named(hub: FakeHub, run: Run) -> None:
    old = hub.commit("acme/base", model_files(1), branch="v1.0")
    hub.commit("acme/base", model_files(2))
    by_commit = run("resolve", f"hf://acme/base@{old}")[1]
    assert by_commit == run("resolve", "hf://acme/base@v1.0")[1]
    assert by_commit.digest != run("resolve", "hf://acme/base")[1].digest


def test_no_tensors_are_downloaded(hub: FakeHub, run: Run) -> None:
    hub.commit("acme/base", model_files(1))
    run("resolve", "hf://acme/base")
    assert hub.downloads("model.safetensors") == []


def test_hub_and_claim_give_the_same_report_for_the_same_files(hub: FakeHub, run: Run, tmp_path: Path) -> None:
    hub.commit("acme/base", model_files(1))
    folder = write(tmp_path / "claim", model_files(1))
    from_hub = run("resolve", "hf://acme/base")[1]
    from_claim = run("resolve", "pvc://models/base", "--to", str(folder))[1]
    assert from_claim.resolved_uri == "pvc://models/base"
    assert from_hub.model_copy(update={"resolved_uri": ""}) == from_claim.model_copy(update={"resolved_uri": ""})


def test_documentation_is_no_part_of_the_digest(run: Run, tmp_path: Path) -> None:
    files = model_files(1)
    plain = run("resolve", f"file://{write(tmp_path / 'a', files)}")[1]
    other = run("resolve", f"file://{write(tmp_path / 'b', {**files, 'README.md': b'new', 'notes.md': b'x'})}")[1]
    assert plain.digest == other.digest


@pytest.mark.parametrize("name", ["model.safetensors", "config.json", "generation_config.json", "tokenizer.json"])
def test_every_file_that_decides_the_output_is_part_of_the_digest(run: Run, tmp_path: Path, name: str) -> None:
    files = model_files(1)
    plain = run("resolve", f"file://{write(tmp_path / 'a', files)}")[1]
    other = run("resolve", f"file://{write(tmp_path / 'b', {**files, name: files[name] + b' '})}")[1]
    assert plain.digest != other.digest


def test_the_report_holds_what_kv_depends_on(run: Run, tmp_path: Path) -> None:
    report = run("resolve", f"file://{write(tmp_path / 'm', model_files(1))}")[1]
    assert report.config == kv_relevant(json.loads(model_files(1)["config.json"]))
    assert report.tokenizer_hash.startswith("sha256:")
    assert report.size_bytes == sum(len(raw) for name, raw in model_files(1).items() if name != "README.md")


def test_an_adapter_says_which_decoder_it_was_tuned_against(run: Run, tmp_path: Path) -> None:
    report = run("resolve", f"file://{write(tmp_path / 'a', adapter_files(1, 'sha256:abc'))}")[1]
    assert report.tuned_against == "sha256:abc"
    assert report.config["adapter"]["rank"] == 4


def test_how_a_tokenizer_was_written_does_not_matter(run: Run, tmp_path: Path) -> None:
    older = tokenizer()
    older["model"] = {"type": "BPE", "vocab": older["model"]["vocab"], "merges": ["a b"]}
    older["truncation"] = {"max_length": 10}
    files = {**model_files(1), "tokenizer.json": json.dumps(older).encode()}
    one = run("resolve", f"file://{write(tmp_path / 'a', model_files(1))}")[1]
    two = run("resolve", f"file://{write(tmp_path / 'b', files)}")[1]
    assert one.tokenizer_hash == two.tokenizer_hash


def test_another_vocabulary_is_another_tokenizer(run: Run, tmp_path: Path) -> None:
    changed = tokenizer()
    changed["model"]["vocab"]["z"] = 99
    files = {**model_files(1), "tokenizer.json": json.dumps(changed).encode()}
    one = run("resolve", f"file://{write(tmp_path / 'a', model_files(1))}")[1]
    two = run("resolve", f"file://{write(tmp_path / 'b', files)}")[1]
    assert one.tokenizer_hash != two.tokenizer_hash


def test_a_private_repository_opens_with_the_token(hub: FakeHub, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    hub.commit("acme/secret", model_files(1), visibility="private")
    hub.state.tokens.add("hf_right")
    code, report = run("resolve", "hf://acme/secret")
    assert (code, report.error_reason) == (1, "WeightsNotFound")
    assert "credentialsSecretRef" in report.error_message
    monkeypatch.setenv("HF_TOKEN", "hf_right")
    assert run("resolve", "hf://acme/secret")[0] == 0


def test_a_wrong_token_and_a_gated_repository_are_about_authentication(
    hub: FakeHub, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    hub.commit("acme/gated", model_files(1), visibility="gated")
    assert run("resolve", "hf://acme/gated")[1].error_reason == "AuthenticationFailed"
    monkeypatch.setenv("HF_TOKEN", "hf_wrong")
    code, report = run("resolve", "hf://acme/gated")
    assert (code, report.error_reason) == (1, "AuthenticationFailed")
    assert "hf_wrong" not in report.error_message


def test_missing_repositories_and_revisions_are_told_apart(hub: FakeHub, run: Run) -> None:
    hub.commit("acme/base", model_files(1))
    assert run("resolve", "hf://acme/nothing")[1].error_reason == "WeightsNotFound"
    assert run("resolve", "hf://acme/base@v9")[1].error_reason == "RevisionNotFound"


def test_a_hub_that_is_down_or_none_is_unreachable(run: Run, hub: FakeHub, monkeypatch: pytest.MonkeyPatch) -> None:
    hub.state.status = 503
    assert run("resolve", "hf://acme/base")[1].error_reason == "SourceError"
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        monkeypatch.setenv("HF_ENDPOINT", f"http://127.0.0.1:{free.getsockname()[1]}")
        code, report = run("resolve", "hf://acme/base")
    assert (code, report.error_reason) == (1, "SourceUnreachable")
    assert "HF_ENDPOINT" in report.error_message


def test_a_folder_without_config_or_tensors_is_no_checkpoint(run: Run, tmp_path: Path) -> None:
    for missing in ("config.json", "model.safetensors"):
        files = {name: raw for name, raw in model_files(1).items() if name != missing}
        report = run("resolve", f"file://{write(tmp_path / missing, files)}")[1]
        assert report.error_reason == "NotACheckpoint"
        assert missing.split(".")[-1] in report.error_message


def test_an_adapter_in_the_place_of_a_model_is_told_where_it_belongs(run: Run, tmp_path: Path) -> None:
    folder = write(tmp_path / "a", adapter_files(1))
    code, report = run("resolve", f"file://{folder}", "--kind", "model")
    assert (code, report.error_reason) == (1, "NotACheckpoint")
    assert "prefill.adapter" in report.error_message


def test_the_mount_path_decides_what_is_expected(run: Run) -> None:
    report = run("resolve", "pvc://models/base", "--to", names.ADAPTER_PATH)[1]
    assert report.error_reason == "WeightsNotFound"


@pytest.mark.parametrize(
    ("files", "named"),
    [
        ({"config.json": b"{"}, "config.json is not JSON"),
        ({"config.json": b"[]"}, "config.json holds no JSON object"),
        ({"config.json": b"{}"}, "num_hidden_layers"),
        ({"tokenizer.json": b"[]"}, "tokenizer.json"),
    ],
)
def test_broken_files_are_named(run: Run, tmp_path: Path, files: dict[str, bytes], named: str) -> None:
    folder = write(tmp_path / "m", {**model_files(1), **files})
    report = run("resolve", f"file://{folder}")[1]
    assert report.error_reason == "InvalidCheckpoint"
    assert named in report.error_message


@pytest.mark.parametrize(
    ("uri", "reason"),
    [
        ("s3://bucket/key@1", "InvalidUri"),
        ("oci://registry", "InvalidUri"),
        ("ftp://x/y", "InvalidUri"),
        ("hf://only-a-name", "InvalidUri"),
        ("pvc://claim/../etc", "InvalidUri"),
    ],
)
def test_uris_that_cannot_be_read_say_why(run: Run, uri: str, reason: str) -> None:
    code, report = run("resolve", uri)
    assert (code, report.error_reason) == (1, reason)


@pytest.mark.parametrize(
    ("name", "value", "what"),
    [
        ("SUNFLEET_WEIGHTS_WORKERS", "0", "must be greater than or equal to 1"),
        ("OCI_PLAIN_HTTP", "hush", "must be a valid boolean"),
    ],
)
def test_settings_that_cannot_be_used_are_a_report_that_names_the_variable(
    run: Run, monkeypatch: pytest.MonkeyPatch, name: str, value: str, what: str
) -> None:
    monkeypatch.setenv(name, value)
    code, report = run("resolve", "hf://acme/base")
    assert (code, report.error_reason) == (1, "InvalidSettings")
    assert f"{name}: {what}" in report.error_message
    assert "hush" not in report.error_message
