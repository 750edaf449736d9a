"""List and watch: pages, events, bookmarks, 410 in both forms, refusals, silence."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any

import pytest

from sunfleet_router.discovery import reflector
from sunfleet_router.discovery.reflector import ApiFailureError, GoneError, Reflector

Script = list[bytes | Exception]


def thing(name: str, version: int = 1) -> dict[str, Any]:
    return {"metadata": {"uid": name, "name": name, "resourceVersion": str(version)}}


def event(kind: str, document: Mapping[str, Any]) -> bytes:
    return json.dumps({"type": kind, "object": document}).encode() + b"\n"


class FakeSource:
    """Answers lists and watches from a script; a watch without one stays silent."""

    name = "things"

    def __init__(self, lists: list[list[dict[str, Any]]], watches: list[Script]) -> None:
        self.lists = lists
        self.watches = watches
        self.watched_from: list[str] = []
        self.listed = 0
        self.unanswered = 0  # watches whose head never comes

    async def page(self, limit: int, token: str | None) -> Mapping[str, Any]:
        if token is None:
            self.listed += 1
        items = self.lists[min(self.listed, len(self.lists)) - 1]
        at = int(token or 0)
        more = {"continue": str(at + 2)} if at + 2 < len(items) else {}
        return {"items": items[at : at + 2], "metadata": {"resourceVersion": str(100 * self.listed), **more}}

    @asynccontextmanager
    async def watch(self, version: str) -> AsyncIterator[AsyncIterator[bytes]]:
        self.watched_from.append(version)
        if self.unanswered:
            self.unanswered -= 1
            await asyncio.Event().wait()
        yield self._play(self.watches.pop(0) if self.watches else [])

    async def _play(self, script: Script) -> AsyncIterator[bytes]:
        for step in script:
            if isinstance(step, Exception):
                raise step
            yield step
        if not script:
            await asyncio.Event().wait()


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reflector, "_FIRST_PAUSE", 0.01)


@asynccontextmanager
async def reflecting(source: FakeSource, silence: float = 5.0) -> AsyncIterator[Reflector[str]]:
    kept = Reflector[str](source, lambda document: document["metadata"]["name"], lambda: None, silence=silence)
    task = asyncio.ensure_future(kept.run())
    yield kept
    assert not task.done(), "a reflector never ends by itself"
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def until(condition: Callable[[], Any]) -> None:
    async with asyncio.timeout(5):
        while not condition():  # noqa: ASYNC110 it looks at plain attributes
            await asyncio.sleep(0.005)


async def test_every_page_of_a_list_is_read_and_the_watch_goes_on_from_it() -> None:
    source = FakeSource([[thing(name) for name in "abcde"]], [])
    async with reflecting(source) as kept:
        await until(lambda: source.watched_from)
        assert (set(kept.objects), kept.synced, source.watched_from) == (set("abcde"), True, ["100"])


async def test_events_are_applied_however_they_are_cut() -> None:
    raw = event("ADDED", thing("b", 101)) + event("MODIFIED", thing("b", 102)) + event("DELETED", thing("a", 103))
    pieces: Script = [raw[at : at + 7] for at in range(0, len(raw), 7)]
    source = FakeSource([[thing("a")]], [pieces])
    async with reflecting(source) as kept:
        await until(lambda: len(source.watched_from) == 2)
        assert (set(kept.objects), source.watched_from) == ({"b"}, ["100", "103"])


async def test_a_bookmark_moves_the_position_and_nothing_else() -> None:
    source = FakeSource([[thing("a")]], [[event("BOOKMARK", {"metadata": {"resourceVersion": "250"}})]])
    async with reflecting(source) as kept:
        await until(lambda: len(source.watched_from) == 2)
        assert (set(kept.objects), source.watched_from[1]) == ({"a"}, "250")


@pytest.mark.parametrize("gone", [GoneError(), event("ERROR", {"code": 410, "message": "too old", "metadata": {}})])
async def test_a_position_that_is_too_old_lists_again_and_drops_what_has_vanished(gone: bytes | Exception) -> None:
    source = FakeSource([[thing("a"), thing("b")], [thing("b"), thing("c")]], [[gone]])
    async with reflecting(source) as kept:
        await until(lambda: len(source.watched_from) == 2)
        assert (set(kept.objects), source.listed, source.watched_from) == ({"b", "c"}, 2, ["100", "200"])


@pytest.mark.parametrize(
    "failure", [ApiFailureError("500"), OSError("cut"), b"no json\n", event("ERROR", {"code": 500, "message": "x"})]
)
async def test_any_other_failure_goes_on_from_where_it_stood(failure: bytes | Exception) -> None:
    source = FakeSource([[thing("a")]], [[event("ADDED", thing("b", 101)), failure]])
    async with reflecting(source) as kept:
        await until(lambda: len(source.watched_from) == 2)
        assert (set(kept.objects), source.listed, source.watched_from[1]) == ({"a", "b"}, 1, "101")


async def test_a_silent_watch_is_replaced() -> None:
    source = FakeSource([[thing("a")]], [])
    async with reflecting(source, silence=0.03) as kept:
        await until(lambda: len(source.watched_from) >= 3)
        assert (set(kept.objects), source.listed) == ({"a"}, 1)


async def test_a_watch_that_is_never_answered_is_replaced() -> None:
    source = FakeSource([[thing("a")]], [[event("DELETED", thing("a", 101))]])
    source.unanswered = 2
    async with reflecting(source, silence=0.03) as kept:
        await until(lambda: kept.synced and not kept.objects)
        assert source.watched_from[:3] == ["100", "100", "100"]


@pytest.mark.parametrize("failure", [ApiFailureError("500"), GoneError(), event("ERROR", {"code": 500}), None])
async def test_the_pauses_between_failures_grow_until_something_is_applied(
    monkeypatch: pytest.MonkeyPatch, failure: bytes | Exception | None
) -> None:
    pauses: list[float] = []
    sleep = asyncio.sleep

    async def note(seconds: float) -> None:
        if seconds >= 0.01:  # the test's own are shorter
            pauses.append(seconds)
        await sleep(0)

    monkeypatch.setattr("sunfleet_router.discovery.reflector.random.uniform", lambda *_: 1.0)
    monkeypatch.setattr("sunfleet_router.discovery.reflector.asyncio.sleep", note)
    watches: list[Script] = [[b"\n"] if failure is None else [failure] for _ in range(5)]
    applied: list[Script] = [[event("ADDED", thing("b", 101)), ApiFailureError("500")]]
    async with reflecting(FakeSource([[thing("a")]], [*watches[:3], *applied, *watches[3:]])) as kept:
        await until(lambda: len(pauses) == 6)
        assert kept.synced
    assert pauses == pytest.approx([0.01, 0.02, 0.04, 0.01, 0.02, 0.04])
