"""What pods say of themselves: asked until they answer, and not believed when their labels say otherwise."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from sunfleet_api.wire import EngineInfo
from sunfleet_router.discovery.info import InfoBook
from sunfleet_router.engines.upstream import Reply
from sunfleet_router.fleet.snapshot import Endpoint

DIGEST = "sha256:" + "ab" * 32
LABEL = "ab" * 16


class Engines:
    """Stands for the HTTP client; answers in turn what it was given."""

    def __init__(self, *answers: EngineInfo | int) -> None:
        self._answers = list(answers)
        self.spent = asyncio.Event()

    async def fetch(self, *_: Any, **__: Any) -> Reply:
        answer = self._answers.pop(0)
        if not self._answers:
            self.spent.set()
        if isinstance(answer, int):
            return Reply(answer, b"{}")
        return Reply(200, answer.model_dump_json().encode())


def endpoint(label: str = LABEL) -> Endpoint:
    return Endpoint("uid", "pod", "127.0.0.1", 8000, "decode", label)


def info(**changes: Any) -> EngineInfo:
    facts = {"role": "decode", "kv_capacity_tokens": 64, "block_size": 16, "max_model_len": 32}
    return EngineInfo.model_validate(facts | changes)


async def told(label: str, *answers: EngineInfo | int) -> EngineInfo | None:
    """What the book knows of a pod once all its answers were taken."""
    upstream = Engines(*answers)
    stands_in: Any = upstream
    book = InfoBook(stands_in, lambda: None, interval=0.001)
    book.follow([endpoint(label)])
    await asyncio.wait_for(upstream.spent.wait(), 5)
    await asyncio.sleep(0.001)  # the last answer is read
    known = book.known.get("uid")
    await book.close()
    return known


@pytest.mark.parametrize(("label", "said"), [(LABEL, DIGEST), (LABEL, ""), ("", DIGEST), (LABEL, LABEL)], ids=str)
async def test_a_pod_that_agrees_with_its_labels_is_known(label: str, said: str) -> None:
    assert await told(label, info(kv_fingerprint=said)) == info(kv_fingerprint=said)


@pytest.mark.parametrize("contradiction", [{"role": "prefill"}, {"kv_fingerprint": "sha256:" + "cd" * 32}], ids=str)
async def test_a_pod_that_contradicts_its_labels_is_not_known_and_says_so_in_the_log(
    contradiction: dict[str, str], caplog: pytest.LogCaptureFixture
) -> None:
    good, bad = info(kv_fingerprint=DIGEST), info(**{"kv_fingerprint": DIGEST, **contradiction})
    assert await told(LABEL, bad, good) == good
    (warning,) = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    assert "pod gets no requests" in warning
    assert "labelled" in warning


async def test_a_pod_before_its_self_check_has_passed_is_asked_again() -> None:
    assert await told(LABEL, 503, 503, info()) == info()
