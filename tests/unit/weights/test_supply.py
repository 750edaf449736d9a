"""Adapters that a pod asks for while it runs: they appear whole, failures are told, what nobody asks for goes."""

from __future__ import annotations

import errno
from collections.abc import Callable
from concurrent.futures import Executor, Future
from pathlib import Path
from typing import Any

import pytest

from sunfleet_api.pooling import FAILURES, REQUESTS, Failure, Request
from sunfleet_weights.errors import AuthenticationFailed
from sunfleet_weights.supply import Supply


class AtOnce(Executor):
    """Runs what is submitted before it returns; ``before`` comes between."""

    def __init__(self) -> None:
        self.before: Callable[[], None] = lambda: None

    def submit(self, fn: Any, /, *arguments: Any, **named: Any) -> Future[Any]:
        self.before()
        future: Future[Any] = Future()
        future.set_result(fn(*arguments, **named))
        return future


class World:
    def __init__(self, root: Path) -> None:
        self.root, self.now = root, 0.0
        self.error: Exception | None = None
        self.downloads: list[str] = []
        self.threads = AtOnce()
        self.supply = Supply(root, self._download, self.threads, clock=lambda: self.now)

    def _download(self, request: Request, target: Path) -> None:
        self.downloads.append(request.uri)
        target.mkdir(parents=True, exist_ok=True)
        (target / "adapter_config.json").write_text("{}")
        if self.error is not None:
            raise self.error

    def ask(self, digest: str = "sha256:aa") -> Path:
        path = self.root / REQUESTS / f"{digest.replace(':', '-')}.json"
        path.write_text(Request(uri="hf://acme/maths@c", digest=digest).model_dump_json())
        return path

    @property
    def entry(self) -> Path:
        return self.root / "sha256-aa"


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


def test_what_is_asked_for_appears_whole_and_once(world: World) -> None:
    world.ask()
    for _ in range(3):
        world.supply.step()
    assert [path.name for path in world.entry.iterdir()] == ["adapter_config.json"]
    assert world.downloads == ["hf://acme/maths@c"]


def test_a_failure_is_told_and_tried_again_with_growing_pauses(world: World) -> None:
    world.error = AuthenticationFailed("401")
    world.ask()
    world.supply.step()
    told = world.root / FAILURES / "sha256-aa.json"
    assert Failure.model_validate_json(told.read_text()) == Failure(reason="AuthenticationFailed", message="401")
    assert not world.entry.exists(), "half an adapter is none"
    for now, tries in ((4.9, 1), (5.0, 2), (14.9, 2)):
        world.now = now
        world.supply.step()
        assert len(world.downloads) == tries
    world.error, world.now = None, 15.0
    world.supply.step()
    assert world.entry.is_dir()
    assert not told.exists()


def test_what_nobody_asks_for_any_more_is_removed(world: World) -> None:
    asked = world.ask()
    world.supply.step()
    asked.unlink()
    world.supply.step()
    world.supply.step()
    assert not world.entry.exists()


def test_a_file_that_goes_away_under_a_download_is_a_failure_and_no_request_that_was_taken_back(world: World) -> None:
    world.error = FileNotFoundError(2, "No such file or directory", "model.safetensors")
    world.ask()
    for _ in range(3):
        world.supply.step()
    told = Failure.model_validate_json((world.root / FAILURES / "sha256-aa.json").read_text())
    assert told.reason == "DiskFailed"
    assert "model.safetensors" in told.message
    assert len(world.downloads) == 1, "tried again without a pause"


def test_a_request_that_is_taken_back_before_it_begins_is_no_failure(world: World) -> None:
    asked = world.ask()
    world.threads.before = asked.unlink
    world.supply.step()
    assert world.downloads == []
    assert list((world.root / FAILURES).iterdir()) == []


@pytest.mark.parametrize("error", [KeyError("weight_map"), RuntimeError("of a library")])
def test_whatever_a_download_raises_is_told_and_tried_again(world: World, error: Exception) -> None:
    world.error = error
    world.ask()
    for _ in range(3):
        world.supply.step()
    told = Failure.model_validate_json((world.root / FAILURES / "sha256-aa.json").read_text())
    assert (told.reason, len(world.downloads)) == (type(error).__name__, 1)
    world.error, world.now = None, 5.0
    world.supply.step()
    assert world.entry.is_dir()


def test_a_full_disk_that_takes_not_even_the_reason_ends_nothing_and_is_given_room_back(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(path: Path, *_: Any, **__: Any) -> int:
        raise OSError(errno.ENOSPC, "No space left on device", str(path))

    world.error = OSError(errno.ENOSPC, "No space left on device")
    asked = world.ask()
    with monkeypatch.context() as patched:
        write = Path.write_text
        patched.setattr(Path, "write_text", lambda path, text: (full if FAILURES in path.parts else write)(path, text))
        for _ in range(3):
            world.supply.step()
    assert len(world.downloads) == 1, "tried again without a pause"
    assert list((world.root / ".partial").iterdir()) == []
    world.now = 5.0
    world.supply.step()
    told = Failure.model_validate_json((world.root / FAILURES / "sha256-aa.json").read_text())
    assert told.reason == "NotEnoughSpace"
    assert asked.exists()


def test_a_request_that_cannot_be_read_is_told_and_holds_up_no_other(world: World) -> None:
    world.ask().unlink()
    (world.root / REQUESTS / "sha256-aa.json").mkdir()
    world.ask("sha256:bb")
    for _ in range(2):
        world.supply.step()
    assert (world.root / "sha256-bb").is_dir()
    told = Failure.model_validate_json((world.root / FAILURES / "sha256-aa.json").read_text())
    assert told.reason == "DiskFailed"


def test_a_connection_that_breaks_under_a_download_is_no_fault_of_the_disk(world: World) -> None:
    world.error = ConnectionResetError(errno.ECONNRESET, "Connection reset by peer")
    world.ask()
    world.supply.step()
    told = Failure.model_validate_json((world.root / FAILURES / "sha256-aa.json").read_text())
    assert told.reason == "SourceUnreachable"
