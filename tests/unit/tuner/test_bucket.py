"""Folders in object stores, on a store in memory: what is pulled, pushed, mirrored and refused."""

from __future__ import annotations

from pathlib import Path

import obstore
import pytest
from obstore.exceptions import PermissionDeniedError
from obstore.store import MemoryStore

from sunfleet_tuner.bucket import Bucket, Mirror
from sunfleet_tuner.errors import StoreFailed


@pytest.fixture
def store() -> MemoryStore:
    return MemoryStore()


def bucket(store: MemoryStore, prefix: str = "team/maths") -> Bucket:
    return Bucket(f"s3://bucket/{prefix}", store, prefix)


def mirroring(store: MemoryStore, work: Path) -> Mirror:
    return Mirror(bucket(store), work, bucket(store, "team/maths.runs"), work / "runs")


def write(folder: Path, **files: str) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        (folder / f"{name}.json").write_text(text)


def test_a_folder_comes_back_as_it_went(store: MemoryStore, tmp_path: Path) -> None:
    write(tmp_path / "a", one="1")
    write(tmp_path / "a" / "deep", two="2")
    bucket(store).push(tmp_path / "a")
    assert bucket(store).names() == ["deep/two.json", "one.json"]
    assert bucket(store).pull(tmp_path / "b") == ["deep/two.json", "one.json"]
    assert (tmp_path / "b" / "deep" / "two.json").read_text() == "2"


def test_a_neighbour_whose_name_begins_alike_is_left_alone(store: MemoryStore, tmp_path: Path) -> None:
    write(tmp_path / "a", one="1")
    bucket(store).push(tmp_path / "a")
    bucket(store).beside(".work").push(tmp_path / "a")
    bucket(store, "team/maths-2").push(tmp_path / "a")
    assert bucket(store).names() == ["one.json"]
    bucket(store).beside(".work").remove()
    assert bucket(store).beside(".work").names() == []
    assert bucket(store).names() == bucket(store, "team/maths-2").names() == ["one.json"]


def test_a_single_object_is_a_file(store: MemoryStore, tmp_path: Path) -> None:
    obstore.put(store, "rows/train.jsonl", b"{}\n")
    assert bucket(store, "rows/train.jsonl").pull(tmp_path) == ["train.jsonl"]
    assert (tmp_path / "train.jsonl").read_text() == "{}\n"


def test_what_is_not_there_is_nothing(store: MemoryStore, tmp_path: Path) -> None:
    assert bucket(store).pull(tmp_path) == []


def test_checkpoints_follow_the_run_and_old_ones_go(store: MemoryStore, tmp_path: Path) -> None:
    mirror = mirroring(store, tmp_path)
    write(tmp_path / "step-1", module="m", record="r")
    write(tmp_path / ".step-new", module="half")
    mirror.copy()
    assert bucket(store).names() == ["step-1/module.json", "step-1/record.json"]
    write(tmp_path / "step-2", module="m", record="r")
    for path in (tmp_path / "step-1").iterdir():
        path.unlink()
    (tmp_path / "metrics.jsonl").write_text("{}\n")
    mirror.copy()
    assert bucket(store).names() == ["metrics.jsonl", "step-2/module.json", "step-2/record.json"]


def test_what_trackers_wrote_goes_with_each_checkpoint(store: MemoryStore, tmp_path: Path) -> None:
    mirror, events = mirroring(store, tmp_path), bucket(store, "team/maths.runs")
    write(tmp_path / "runs" / "sunfleet", first="{}")
    mirror.copy()
    assert events.names() == [], "no attempt goes on from here"
    write(tmp_path / "step-1", record="r")
    mirror.copy()
    assert events.names() == ["sunfleet/first.json"]


def test_a_checkpoint_is_one_only_once_its_record_has_arrived(
    store: MemoryStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path / "step-1", record="r", weights="m")
    order: list[str] = []
    monkeypatch.setattr(obstore, "put", lambda _, path, __: order.append(path))
    mirroring(store, tmp_path).copy()
    assert order == ["team/maths/step-1/weights.json", "team/maths/step-1/record.json"]


def test_a_new_pod_does_not_send_again_what_an_earlier_one_sent(
    store: MemoryStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path / "old" / "step-1", module="m", record="r")
    mirroring(store, tmp_path / "old").copy()
    bucket(store).pull(tmp_path / "new")
    monkeypatch.setattr(obstore, "put", lambda *_: pytest.fail("sent again"))
    mirroring(store, tmp_path / "new").copy()


def test_the_end_of_a_run_copies_what_is_left(store: MemoryStore, tmp_path: Path) -> None:
    mirror = mirroring(store, tmp_path)
    mirror.start()
    write(tmp_path / "step-1", record="r")
    mirror.stop()
    assert bucket(store).names() == ["step-1/record.json"]


def test_a_refusal_says_what_to_look_at(store: MemoryStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise PermissionDeniedError("Generic S3 error: 403 Forbidden\nlong")

    monkeypatch.setattr(obstore, "list", refuse)
    with pytest.raises(StoreFailed, match=r"s3://bucket/team/maths: .*403 Forbidden\. Check the Secret") as caught:
        bucket(store).pull(tmp_path)
    assert caught.value.reason == "StoreFailed"


def test_the_secrets_words_open_the_store() -> None:
    given = {"AWS_ACCESS_KEY_ID": "id", "AWS_SECRET_ACCESS_KEY": "key", "AWS_REGION": "eu", "HF_TOKEN": "other"}
    made = Bucket.of("s3://bucket/team/maths", given)
    assert "access_key_id" in str(made._store.config)  # type: ignore[union-attr]
