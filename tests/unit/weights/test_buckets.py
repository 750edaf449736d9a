"""``s3://`` and ``gs://``: pinned by what the store calls the content, resumable, and refused once it differs."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from sunfleet_api.worker import ResolverReport
from sunfleet_fakes.bucket import FakeBuckets
from sunfleet_fakes.checkpoints import adapter_files, model_files, tensors, write
from sunfleet_weights import bucket
from sunfleet_weights.bucket import BucketFolder
from sunfleet_weights.hold import MARKER
from sunfleet_weights.source import SourceFile

Run = Callable[..., tuple[int, ResolverReport]]
URIS = {"s3": "s3://acme/models/maths", "gs": "gs://acme/models/maths"}


@pytest.fixture
def store(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeBuckets]:
    with FakeBuckets() as server:
        for name, value in {
            "AWS_ENDPOINT_URL": server.url, "AWS_ACCESS_KEY_ID": "open-sesame", "AWS_SECRET_ACCESS_KEY": "never-told",
            "AWS_REGION": "us-east-1", "GOOGLE_BASE_URL": server.url, "GOOGLE_BEARER_TOKEN": "open-sesame",
        }.items():  # fmt: skip
            monkeypatch.setenv(name, value)
        server.put("acme", "models/maths", model_files(1))
        yield server


@pytest.fixture(params=sorted(URIS))
def uri(request: pytest.FixtureRequest) -> str:
    return URIS[request.param]


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.name != MARKER}


def test_a_prefix_is_pinned_by_a_digest_of_its_objects(store: FakeBuckets, run: Run, uri: str) -> None:
    code, first = run("resolve", uri)
    name, _, digest = first.resolved_uri.partition("@sha256:")
    assert (code, name, len(digest)) == (0, uri, 64)
    assert run("resolve", uri)[1] == first
    assert run("resolve", first.resolved_uri)[1] == first
    store.put("acme", "models/maths", {"README.md": b"other words"})
    assert run("resolve", uri)[1] == first
    store.put("acme", "models/maths", model_files(2))
    assert run("resolve", uri)[1].resolved_uri != first.resolved_uri


def test_the_digest_is_that_of_the_same_files_in_a_folder(
    store: FakeBuckets, run: Run, uri: str, tmp_path: Path
) -> None:
    in_folder = run("resolve", f"file://{write(tmp_path / 'maths', model_files(1))}")[1]
    in_bucket = run("resolve", uri)[1]
    assert in_bucket.model_copy(update={"resolved_uri": ""}) == in_folder.model_copy(update={"resolved_uri": ""})


def test_the_folder_holds_what_an_engine_needs_and_a_second_run_loads_nothing(
    store: FakeBuckets, run: Run, uri: str, tmp_path: Path
) -> None:
    report = run("resolve", uri)[1]
    target, seen = tmp_path / "model", len(store.state.downloads("model.safetensors"))
    for _ in range(2):
        code, _ = run("fetch", report.resolved_uri, "--to", str(target), "--digest", report.digest)
        assert code == 0
    assert contents(target) == {name: raw for name, raw in model_files(1).items() if name != "README.md"}
    assert len(store.state.downloads("model.safetensors")) == seen + 1


def test_objects_of_a_deeper_folder_are_not_taken_for_the_prefixs_own(store: FakeBuckets, run: Run, uri: str) -> None:
    before = run("resolve", uri)[1]
    store.put("acme", "models/maths/old", model_files(9))
    store.put("acme", "models/maths-lora", adapter_files(3))
    assert run("resolve", uri)[1] == before


def test_objects_that_were_overwritten_are_refused(store: FakeBuckets, run: Run, uri: str, tmp_path: Path) -> None:
    report = run("resolve", uri)[1]
    store.put("acme", "models/maths", {"model.safetensors": tensors(7)})
    code, said = run("fetch", report.resolved_uri, "--to", str(tmp_path / "model"), "--digest", report.digest)
    assert (code, said.error_reason) == (1, "SourceChanged")
    assert not (tmp_path / "model/model.safetensors").exists()


def test_an_object_that_is_overwritten_while_it_is_read_is_refused(store: FakeBuckets, run: Run, uri: str) -> None:
    store.state.after_list = {"models/maths/model.safetensors": tensors(7)}
    code, said = run("resolve", uri)
    assert (code, said.error_reason) == (1, "SourceChanged")


def test_a_cut_connection_is_taken_up_where_it_broke(store: FakeBuckets, run: Run, uri: str, tmp_path: Path) -> None:
    store.put("acme", "models/maths", {"model.safetensors": tensors(1, 1 << 20)})
    store.state.cut["model.safetensors"] = 2
    assert run("fetch", uri, "--to", str(tmp_path / "model"))[0] == 0
    assert (tmp_path / "model/model.safetensors").read_bytes() == tensors(1, 1 << 20)
    starts = [int(span.removeprefix("bytes=").partition("-")[0]) for span in store.state.downloads("model.safetensors")]
    assert starts == sorted(set(starts))
    assert len(starts) == 3


def test_what_an_interrupted_run_had_is_not_loaded_again(
    store: FakeBuckets, run: Run, uri: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.put("acme", "models/maths", {"model.safetensors": tensors(1, 1 << 20)})
    pieces = BucketFolder._pieces

    def killed(self: BucketFolder, file: SourceFile, start: int) -> Iterator[bytes]:
        for number, piece in enumerate(pieces(self, file, start)):
            if number == 2 and file.path == "model.safetensors":
                raise KeyboardInterrupt
            yield piece

    with monkeypatch.context() as patched:
        patched.setattr(bucket, "_PIECE", 128 << 10)
        patched.setattr(BucketFolder, "_pieces", killed)
        with pytest.raises(KeyboardInterrupt):
            run("fetch", uri, "--to", str(tmp_path / "model"))
    assert run("fetch", uri, "--to", str(tmp_path / "model"))[0] == 0
    assert (tmp_path / "model/model.safetensors").read_bytes() == tensors(1, 1 << 20)
    assert int(store.state.downloads("model.safetensors")[-1].removeprefix("bytes=").partition("-")[0]) >= 256 << 10


def test_content_that_changes_on_the_way_is_not_what_was_resolved(
    store: FakeBuckets, run: Run, uri: str, tmp_path: Path
) -> None:
    report = run("resolve", uri)[1]
    store.state.damage["model.safetensors"] = 1
    arguments = ("fetch", report.resolved_uri, "--to", str(tmp_path / "model"), "--digest", report.digest)
    code, said = run(*arguments)
    assert (code, said.error_reason) == (1, "ChecksumMismatch")
    assert run(*arguments)[0] == 0


def test_what_is_wrong_with_a_bucket_is_told_apart(
    store: FakeBuckets, run: Run, uri: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    scheme = uri.partition(":")[0]
    assert run("resolve", f"{scheme}://nowhere/models/maths")[1].error_reason == "WeightsNotFound"
    assert run("resolve", f"{scheme}://acme/models/nothing")[1].error_reason == "WeightsNotFound"
    store.state.key = "another-key"
    said = run("resolve", uri)[1]
    assert said.error_reason == "AuthenticationFailed"
    assert "credentialsSecretRef" in said.error_message
    assert "open-sesame" not in said.error_message


def test_a_store_that_is_down_is_unreachable(
    run: Run, uri: str, store: FakeBuckets, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sunfleet_weights.sources._RETRIES", {"max_retries": 0})
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        for name in ("AWS_ENDPOINT_URL", "GOOGLE_BASE_URL"):
            monkeypatch.setenv(name, f"http://127.0.0.1:{free.getsockname()[1]}")
        code, said = run("resolve", uri)
    assert (code, said.error_reason) == (1, "SourceUnreachable")
    assert "AWS_ENDPOINT_URL" in said.error_message
    monkeypatch.setenv("AWS_ENDPOINT_URL", store.url)
    monkeypatch.setenv("GOOGLE_BASE_URL", store.url)
    store.state.status = 500
    assert run("resolve", uri)[1].error_reason == "SourceError"
