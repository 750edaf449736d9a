"""Weights from a real S3 server: signed requests, its own ETags, ranges, and what it says when something is wrong."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

import obstore
import pytest
from obstore.store import S3Store

from sunfleet_api.worker import ResolverReport
from sunfleet_fakes.checkpoints import model_files, tensors, write
from sunfleet_weights.bucket import part_name
from sunfleet_weights.hold import MARKER
from sunfleet_weights.source import SourceFile

Run = Callable[..., tuple[int, ResolverReport]]
# The first run on a machine compiles the server.
pytestmark = pytest.mark.timeout(900)
BIG = 12 << 20  # bytes: more than one part of an upload


def upload(bucket: S3Store, prefix: str, files: Mapping[str, bytes]) -> str:
    """As people upload a folder; the URI."""
    for name, content in files.items():
        obstore.put(bucket, f"{prefix}/{name}", content)
    return f"s3://acme/{prefix}"


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.name != MARKER}


def test_a_prefix_is_resolved_and_fetched_as_the_same_files_of_a_folder_are(
    bucket: S3Store, run: Run, tmp_path: Path
) -> None:
    files = {**model_files(1), "model.safetensors": tensors(1, BIG)}
    uri = upload(bucket, "team/same", files)
    in_folder = run("resolve", f"file://{write(tmp_path / 'same', files)}")[1]
    code, report = run("resolve", uri)
    assert (code, report.digest) == (0, in_folder.digest)
    target = tmp_path / "model"
    assert run("fetch", report.resolved_uri, "--to", str(target), "--digest", report.digest)[0] == 0
    assert contents(target) == {name: raw for name, raw in files.items() if name != "README.md"}


def test_an_object_of_several_parts_has_another_etag_and_the_same_content(bucket: S3Store, run: Run) -> None:
    files = {**model_files(1), "model.safetensors": tensors(1, BIG)}
    whole = run("resolve", upload(bucket, "team/parts", files))[1]
    obstore.put(
        bucket, "team/parts/model.safetensors", files["model.safetensors"], chunk_size=6 << 20, use_multipart=True
    )
    in_parts = run("resolve", "s3://acme/team/parts")[1]
    assert in_parts.digest == whole.digest
    assert in_parts.resolved_uri != whole.resolved_uri


def test_an_overwritten_object_is_refused_and_putting_it_back_is_enough(
    bucket: S3Store, run: Run, tmp_path: Path
) -> None:
    report = run("resolve", upload(bucket, "team/moved", model_files(1)))[1]
    arguments = ("fetch", report.resolved_uri, "--to", str(tmp_path / "model"), "--digest", report.digest)
    upload(bucket, "team/moved", {"model.safetensors": tensors(9)})
    code, said = run(*arguments)
    assert (code, said.error_reason) == (1, "SourceChanged")
    upload(bucket, "team/moved", {"model.safetensors": model_files(1)["model.safetensors"]})
    assert run(*arguments)[0] == 0


def test_what_was_loaded_in_part_is_gone_on_with(bucket: S3Store, run: Run, tmp_path: Path) -> None:
    files = {**model_files(1), "model.safetensors": tensors(1, BIG)}
    uri, target = upload(bucket, "team/resumed", files), tmp_path / "model"
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("sunfleet_weights.fetch._save_all", _interrupted_with(files["model.safetensors"][: BIG // 2]))
        with pytest.raises(KeyboardInterrupt):
            run("fetch", uri, "--to", str(target))
    (part,) = (target / ".sunfleet-partial").glob("*.part")
    # Other bytes of the same length: they stay only if the rest is asked for by its range, and then they are found.
    part.write_bytes(b"\0" * (BIG // 2))
    report = run("resolve", uri)[1]
    code, said = run("fetch", uri, "--to", str(target), "--digest", report.digest)
    assert (code, said.error_reason) == (1, "ChecksumMismatch")
    assert run("fetch", uri, "--to", str(target), "--digest", report.digest)[0] == 0
    assert contents(target)["model.safetensors"] == files["model.safetensors"]


def _interrupted_with(begun: bytes) -> Callable[..., None]:
    def save(source: object, wanted: list[SourceFile], stage: Path, workers: int) -> None:
        for file in wanted:
            if file.path == "model.safetensors":
                (stage / part_name(file)).write_bytes(begun)
        raise KeyboardInterrupt

    return save


def test_what_is_wrong_is_told_apart(bucket: S3Store, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    uri = upload(bucket, "team/refused", model_files(1))
    assert run("resolve", "s3://nowhere/team/refused")[1].error_reason == "WeightsNotFound"
    assert run("resolve", "s3://acme/team/nothing")[1].error_reason == "WeightsNotFound"
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "not-the-secret")
    said = run("resolve", uri)[1]
    assert said.error_reason == "AuthenticationFailed"
    assert "not-the-secret" not in said.error_message
    monkeypatch.setenv("AWS_SKIP_SIGNATURE", "true")
    assert run("resolve", uri)[1].error_reason == "AuthenticationFailed"
