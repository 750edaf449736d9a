"""The pod as its self-check sees it, and how a check that fails is told."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from typing import Any, Final

from sunfleet_api import wire
from sunfleet_api.worker import WorkerSettings
from sunfleet_worker.frontend.gate import App
from sunfleet_worker.frontend.metrics import PodMetrics
from sunfleet_worker.frontend.streams import EngineEndedError, WatchedEngine
from sunfleet_worker.selfcheck.inside import Answer, post

COMPLETIONS: Final = "/v1/completions"
CHATS: Final = "/v1/chat/completions"

# Each check takes milliseconds; on a machine that starts many engines at once it may take long.
_SECONDS: Final = 60.0
_POLL_SECONDS: Final = 0.05

# Output tokens that a request of the self-check has room for, and ids that every vocabulary has.
_ROOM: Final = 8
_WORDS: Final = 50

Check = Callable[[str], AbstractAsyncContextManager[None]]


class CheckFailedError(Exception):
    """A check of the self-check failed; the text says which and what came instead."""


@dataclass(frozen=True)
class Pod:
    """Its application, its engine's client, and what it knows of both. ``kv_in_use`` is a share of the KV pool."""

    app: App
    engine: WatchedEngine
    settings: WorkerSettings
    metrics: PodMetrics
    kv_in_use: Callable[[], float]

    @property
    def module(self) -> str:
        """What the self-check may ask: the pod's one module, or the base beneath the adapters of a pool."""
        return wire.ENGINE_BASE_MODEL if self.settings.adapters_path else wire.ENGINE_MODEL

    @property
    def prompt(self) -> list[int]:
        """Token ids of a prompt that fills one block and begins another, if the longest request allows."""
        config = self.engine.vllm_config
        length = min(config.cache_config.block_size + 1, config.model_config.max_model_len - _ROOM)
        return [1 + position % _WORDS for position in range(max(1, length))]

    async def post(self, path: str, body: Mapping[str, Any]) -> Answer:
        return await post(self.app, path, body)

    async def until_kv_is_held(self, *, held: bool) -> None:
        """Return once some request holds a block, or none does. The engine reports its pool through a gauge."""
        while (self.kv_in_use() > 0) != held:  # noqa: ASYNC110 - there is no event to wait for
            await asyncio.sleep(_POLL_SECONDS)


def request(prompt: list[int], salt: str, **more: Any) -> dict[str, Any]:
    """A greedy completion of token ids that does not end by itself."""
    common = {"model": wire.ENGINE_MODEL, "temperature": 0, "ignore_eos": True, "return_token_ids": True}
    return {**common, "prompt": prompt, "cache_salt": salt, **more}


def fresh_salt() -> str:
    """Blocks of the self-check match nobody's prompt, nor those of the next one."""
    return f"self-check-{uuid.uuid4().hex}"


def expect(condition: bool, words: str) -> None:
    """Raise :class:`CheckFailedError` unless ``condition``."""
    if not condition:
        raise CheckFailedError(words)


def expect_refusal(answer: Answer, status: int, code: str) -> None:
    expect((answer.status, answer.code) == (status, code), f"expected {status} {code}, got {answer.words}")


def checking(metrics: PodMetrics, seconds: float = _SECONDS) -> Check:
    """Makes the context of one check: it bounds its time, counts how it ended, and names it in its failure."""

    @asynccontextmanager
    async def check(name: str) -> AsyncIterator[None]:
        try:
            async with asyncio.timeout(seconds):
                yield
        except Exception as error:  # whatever it is: what was to be proven is not
            metrics.self_check.labels(name).set(0)
            raise CheckFailedError(f"{name}: {_words(error, seconds)}") from error
        metrics.self_check.labels(name).set(1)

    return check


def _words(error: Exception, seconds: float) -> str:
    if isinstance(error, TimeoutError):
        return f"not done within {seconds:g} s"
    if isinstance(error, EngineEndedError):
        return f"the engine ended the request: {error.reason.code}"
    return str(error) if isinstance(error, CheckFailedError) else f"{type(error).__name__}: {error}"
