"""The shared cache: one download per digest, what is used stays, what was used longest ago goes first."""

from __future__ import annotations

import os
import threading
import time
from collections import namedtuple
from collections.abc import Callable
from pathlib import Path

import pytest

from sunfleet_api.worker import ResolverReport
from sunfleet_fakes.checkpoints import model_files, tensors
from sunfleet_fakes.hub.server import FakeHub
from sunfleet_weights.cache import Cache
from sunfleet_weights.errors import NotEnoughSpace, TargetInUse
from sunfleet_weights.hold import MARKER, USED_WITHIN_SECONDS, hold

Run = Callable[..., tuple[int, ResolverReport]]
Fetch = Callable[..., tuple[int, ResolverReport]]


def digest(number: int) -> str:
    return f"sha256:{number:064x}"


def whole(size: int) -> Callable[[Path], None]:
    """A download of ``size`` bytes."""

    def download(folder: Path) -> None:
        (folder / "model.safetensors").write_bytes(b"x" * size)
        (folder / MARKER).write_text(f'{{"uri": "hf://a/b", "files": {{"model.safetensors": {size}}}}}')

    return download


def never(folder: Path) -> None:
    raise AssertionError(f"downloads to {folder}")


def last_used(cache: Cache, number: int, seconds_ago: float) -> None:
    moment = time.time() - seconds_ago
    os.utime(cache.entry(digest(number)) / MARKER, (moment, moment))


@pytest.fixture
def cache(tmp_path: Path) -> Cache:
    return Cache(tmp_path, limit=100)


@pytest.fixture
def fetch(hub: FakeHub, run: Run, tmp_path: Path) -> Fetch:
    """Resolve, then fetch into the cache as the operator's init container does."""

    def call(uri: str, limit: str = "1Gi") -> tuple[int, ResolverReport]:
        report = run("resolve", uri)[1]
        return run(
            "fetch", report.resolved_uri, "--cache", str(tmp_path), "--digest", report.digest,
            "--size", str(report.size_bytes), "--cache-limit", limit,
        )  # fmt: skip

    return call


def test_the_second_pod_downloads_nothing(hub: FakeHub, fetch: Fetch, run: Run, tmp_path: Path) -> None:
    hub.commit("acme/base", model_files(1))
    assert [fetch("hf://acme/base")[0] for _ in range(2)] == [0, 0]
    assert len(hub.downloads("model.safetensors")) == 1
    entry = tmp_path / run("resolve", "hf://acme/base")[1].digest.replace(":", "-")
    assert (entry / "model.safetensors").read_bytes() == model_files(1)["model.safetensors"]


def test_the_same_checkpoint_under_another_name_is_not_kept_twice(hub: FakeHub, fetch: Fetch, tmp_path: Path) -> None:
    hub.commit("acme/base", model_files(1))
    hub.commit("acme/copy", model_files(1))
    assert [fetch(uri)[0] for uri in ("hf://acme/base", "hf://acme/copy")] == [0, 0]
    assert len(list(tmp_path.glob("sha256-*"))) == 1


def test_what_an_interrupted_download_had_is_not_loaded_again(hub: FakeHub, fetch: Fetch, tmp_path: Path) -> None:
    hub.commit("acme/base", model_files(1))
    hub.state.damage = {"model.safetensors": 2}
    assert fetch("hf://acme/base")[1].error_reason == "ChecksumMismatch"
    assert not list(tmp_path.glob("sha256-*"))
    seen = len(hub.downloads("tokenizer.json"))
    assert fetch("hf://acme/base")[0] == 0
    assert len(hub.downloads("tokenizer.json")) - seen == seen - 1  # the resolver's reads alone


def test_a_checkpoint_that_lost_a_file_is_made_whole_again(hub: FakeHub, fetch: Fetch, tmp_path: Path) -> None:
    hub.commit("acme/base", model_files(1))
    fetch("hf://acme/base")
    (entry,) = tmp_path.glob("sha256-*")
    (entry / "config.json").unlink()
    assert fetch("hf://acme/base")[0] == 0
    assert (entry / "config.json").read_bytes() == model_files(1)["config.json"]


def test_a_limit_that_is_no_size_is_wrong_usage(hub: FakeHub, fetch: Fetch, capsys: pytest.CaptureFixture[str]) -> None:
    hub.commit("acme/base", model_files(1))
    with pytest.raises(SystemExit) as ended:
        fetch("hf://acme/base", limit="much")
    assert ended.value.code == 2
    assert "--cache-limit" in capsys.readouterr().err


def test_the_cache_says_when_its_limit_is_too_small(hub: FakeHub, fetch: Fetch) -> None:
    hub.commit("acme/base", {**model_files(1), "model.safetensors": tensors(1, 4096)})
    code, report = fetch("hf://acme/base", limit="1k")
    assert (code, report.error_reason) == (1, "NotEnoughSpace")
    assert "cache.sizeLimit" in report.error_message


def test_two_pods_at_once_download_once(cache: Cache, caplog: pytest.LogCaptureFixture) -> None:
    downloads, go_on, waits = [], threading.Event(), threading.Event()

    def slow(folder: Path) -> None:
        downloads.append(folder)
        waits.set()
        assert go_on.wait(10)
        whole(10)(folder)

    first = threading.Thread(target=cache.fill, args=(digest(1), 10, slow))
    first.start()
    assert waits.wait(10)
    second = threading.Thread(target=cache.fill, args=(digest(1), 10, slow))
    second.start()
    deadline = time.monotonic() + 10
    while "another pod downloads it" not in caplog.text:
        assert time.monotonic() < deadline
        time.sleep(0.01)
    go_on.set()
    first.join(10)
    second.join(10)
    assert len(downloads) == 1


def test_downloads_of_different_digests_do_not_wait_for_each_other(cache: Cache) -> None:
    def both(folder: Path) -> None:
        cache.fill(digest(2), 10, whole(10))
        whole(10)(folder)

    cache.fill(digest(1), 10, both)
    assert cache.fill(digest(2), 10, never).is_dir()


def test_what_was_used_longest_ago_makes_room(cache: Cache) -> None:
    for number, seconds_ago in ((1, 5000), (2, 9000), (3, 7000)):
        cache.fill(digest(number), 30, whole(30))
        last_used(cache, number, seconds_ago)
    cache.fill(digest(1), 30, never)  # used again
    cache.fill(digest(4), 60, whole(60))
    assert [cache.entry(digest(number)).exists() for number in (1, 2, 3, 4)] == [True, False, False, True]


def test_only_as_much_goes_as_has_to(cache: Cache) -> None:
    for number in (1, 2, 3):
        cache.fill(digest(number), 30, whole(30))
        last_used(cache, number, 9000 - number)
    cache.fill(digest(4), 30, whole(30))
    assert [cache.entry(digest(number)).exists() for number in (1, 2, 3)] == [False, True, True]


def test_what_a_pod_uses_is_never_removed(cache: Cache) -> None:
    for number in (1, 2):
        cache.fill(digest(number), 50, whole(50))
        last_used(cache, number, USED_WITHIN_SECONDS - 60)
    with pytest.raises(NotEnoughSpace, match="pods use each of the 2 checkpoints"):
        cache.fill(digest(3), 50, never)
    assert cache.fill(digest(1), 50, never).is_dir()


def test_a_full_volume_makes_room_too(cache: Cache, monkeypatch: pytest.MonkeyPatch) -> None:
    cache.fill(digest(1), 10, whole(10))
    last_used(cache, 1, 9000)
    usage = namedtuple("usage", "total used free")
    old = cache.entry(digest(1))
    monkeypatch.setattr("shutil.disk_usage", lambda _: usage(20, 10, 5 if old.exists() else 15))
    cache.fill(digest(2), 12, whole(12))
    assert not old.exists()


def test_a_download_that_nobody_goes_on_with_is_cleared_away(cache: Cache) -> None:
    with pytest.raises(KeyboardInterrupt):
        cache.fill(digest(1), 10, _interrupted)
    left = cache.root / ".partial" / digest(1).replace(":", "-")
    cache.fill(digest(2), 10, whole(10))
    assert left.exists()  # it may go on
    for path in (left, left / "begun"):
        os.utime(path, (0, 0))
    cache.fill(digest(3), 10, whole(10))
    assert not left.exists()


def test_files_of_another_pods_download_may_go_while_they_are_looked_at(
    cache: Cache, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(KeyboardInterrupt):
        cache.fill(digest(1), 10, _interrupted)
    left = cache.root / ".partial" / digest(1).replace(":", "-")
    for path in (left, left / "begun"):
        os.utime(path, (0, 0))
    monkeypatch.setattr(Path, "rglob", lambda folder, _: iter([folder / "gone"]))
    assert cache.fill(digest(2), 10, whole(10)).is_dir()
    assert left.exists()


def _interrupted(folder: Path) -> None:
    (folder / "begun").write_bytes(b"x")
    raise KeyboardInterrupt


@pytest.mark.parametrize("place", [".locks", ".locks/all/in-the-way"])
def test_a_volume_that_cannot_be_written_is_said(tmp_path: Path, place: str) -> None:
    (tmp_path / place).parent.mkdir(parents=True, exist_ok=True)
    (tmp_path / place).write_text("where a folder or a lock should be")
    with pytest.raises(TargetInUse, match="writable for user 65532"):
        Cache(tmp_path, 10).fill(digest(1), 1, never)


def test_holding_says_again_and_again_that_it_is_used(cache: Cache) -> None:
    entry = cache.fill(digest(1), 10, whole(10))
    last_used(cache, 1, 9000)
    stopped = threading.Event()
    stopped.set()
    assert hold(entry, stopped) == 0
    assert time.time() - (entry / MARKER).stat().st_mtime < 60
    assert hold(entry.with_name("gone"), stopped) == 1


def test_holding_goes_on_until_it_is_told_to_stop(cache: Cache) -> None:
    entry = cache.fill(digest(1), 10, whole(10))
    stopped = threading.Event()
    held = threading.Thread(target=hold, args=(entry, stopped, 0.01))
    held.start()
    last_used(cache, 1, 9000)
    deadline = time.monotonic() + 10
    while time.time() - (entry / MARKER).stat().st_mtime > 60:
        assert time.monotonic() < deadline
    stopped.set()
    held.join(10)
    assert not held.is_alive()


def test_a_cache_wants_to_know_what_is_fetched(run: Run, tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match="2"):
        run("fetch", "hf://acme/base", "--cache", str(tmp_path))
