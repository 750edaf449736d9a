"""Everything that lives while a fake engine runs: behaviour, ledger, counters, and what it was asked."""

from __future__ import annotations

import asyncio
import math
import time
import uuid
from collections import Counter, deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal

from sunfleet_api import wire
from sunfleet_api.worker import WorkerSettings
from sunfleet_fakes.engine import tokens
from sunfleet_fakes.engine.behaviour import Behaviour, FakeSettings
from sunfleet_fakes.engine.ledger import KvEntry, KvLedger
from sunfleet_fakes.engine.pool import Adapters
from sunfleet_fakes.engine.request import ApiError

Outcome = Literal["running", "completed", "refused", "disconnected", "failed", "killed"]
_REMEMBERED_REQUESTS = 2000


@dataclass
class Record:
    """One request as the engine saw it; ``tokens`` counts what was sent."""

    path: str
    headers: dict[str, str]
    body: Any
    id: str  # the engine's own, never twice
    answer_id: str  # from the request's header, as the client sees it
    started: float
    finished: float = 0.0
    outcome: Outcome = "running"
    status: int = 0
    tokens: int = 0
    detail: str = ""


@dataclass
class Counters:
    """Totals since the start, for ``/metrics``."""

    prompt_tokens_by_source: Counter[str] = field(default_factory=Counter)
    generation_tokens: int = 0
    success: Counter[str] = field(default_factory=Counter)
    preemptions: int = 0
    releases: int = 0  # of KV that was still held


class Engine:
    """State of one fake engine. Lives on one event loop."""

    def __init__(self, settings: WorkerSettings, fake: FakeSettings) -> None:
        self.settings = settings
        self.identity = fake.identity or tokens.module_identity(settings.model_path, settings.adapter_path)
        self.adapters = Adapters(Path(settings.adapters_path)) if settings.adapters_path else None
        self._initial = self.behaviour = fake.behaviour
        self.ledger = KvLedger(fake.behaviour.kv_blocks, settings.block_size)
        self.counters = Counters()
        self.records: deque[Record] = deque(maxlen=_REMEMBERED_REQUESTS)
        self.running = 0
        self.waiting = 0
        self.draining = False
        self.side_channel_port = settings.side_channel_port
        self.admin_port = 0  # of a pool's pod, once it listens
        self._changed = asyncio.Condition()
        self._faulty_requests_left = fake.behaviour.requests

    @property
    def engine_id(self) -> str:
        """As NIXL's: one per engine process."""
        return f"fake-{self.settings.pod_name or self.settings.pod_ip}-{self.side_channel_port}"

    @property
    def busy(self) -> bool:
        """Requests in flight, or KV that a decoder has still to read."""
        self.ledger.expire(time.monotonic())
        return bool(self.running or self.waiting or self.ledger.leases)

    def module(self, name: str) -> str:
        """Identity of the module that a request names. Raises :class:`ApiError` where this pod does not serve it."""
        if self.adapters is not None:
            files = self.adapters.find(name)
            if files is None:
                text = "this pod has not loaded the adapter that the request names"
                raise ApiError(503, text, code="sun_adapter_not_loaded", kind="ServiceUnavailable")
            return tokens.module_identity(self.settings.model_path, str(files))
        if name not in (wire.ENGINE_MODEL, wire.ENGINE_BASE_MODEL):
            raise ApiError(404, f"The model `{name}` does not exist.", kind="NotFoundError")
        return self.identity

    def adapter_identities(self) -> dict[str, str]:
        """What :meth:`module` says of each adapter that a pool's pod has loaded."""
        return {name: self.module(name) for name in self.adapters.loaded()} if self.adapters is not None else {}

    def configure(self, behaviour: Behaviour) -> None:
        """Behave like this from the next request on."""
        self.behaviour = behaviour
        self.ledger.capacity = behaviour.kv_blocks
        self._faulty_requests_left = behaviour.requests

    def reset(self) -> None:
        """As after a fresh start, for everything that no running request holds."""
        self.configure(self._initial)
        self.ledger.expire(math.inf)
        self.ledger.expired_total = 0
        self.counters = Counters()
        self.records.clear()

    def behaviour_for_request(self) -> Behaviour:
        """Behaviour of one generation request; counts down limited faults."""
        behaviour = self.behaviour
        if self._faulty_requests_left is not None:
            self._faulty_requests_left -= 1
            if self._faulty_requests_left <= 0:
                self.configure(behaviour.healed())
        return behaviour

    def remember(self, path: str, headers: dict[str, str], body: Any, answer_id: str) -> Record:
        """Note that a request has come in."""
        record = Record(path, headers, body, f"{answer_id}-{uuid.uuid4().hex[:8]}", answer_id, time.monotonic())
        self.records.append(record)
        return record

    @asynccontextmanager
    async def scheduled(self, owner: str, prompt_tokens: int) -> AsyncIterator[None]:
        """Wait for a place in the batch and blocks for the prompt; both are given back at the end, leases aside."""
        try:
            await self._wait_for_room(owner, prompt_tokens)
            try:
                yield
            except BaseException:  # also cancellation: a broken prefill must not keep a lease
                self.ledger.free(owner)
                raise
            finally:
                self.running -= 1
                if not self.ledger.is_leased(owner):
                    self.ledger.free(owner)
        finally:
            await self.notify()

    async def idle(self) -> None:
        """Return once nothing is left to do."""
        async with self._changed:
            await self._changed.wait_for(lambda: not self.busy)

    async def _wait_for_room(self, owner: str, prompt_tokens: int) -> None:
        self.waiting += 1
        try:
            async with self._changed:
                await self._changed.wait_for(lambda: self._admit(owner, prompt_tokens))
        finally:
            self.waiting -= 1

    def _admit(self, owner: str, prompt_tokens: int) -> bool:
        self.ledger.expire(time.monotonic())
        if self.running >= self.behaviour.max_num_seqs or not self.ledger.take(owner, prompt_tokens):
            return False
        self.running += 1
        return True

    async def notify(self) -> None:
        """Wake those who wait for room."""
        async with self._changed:
            self._changed.notify_all()

    def lease(self, owner: str, entry: KvEntry) -> None:
        """Keep the blocks of a finished prefill until they are read or the lease is over."""
        seconds = self.behaviour.kv_lease_seconds
        self.ledger.lease(owner, entry, time.monotonic() + seconds)
        loop = asyncio.get_running_loop()
        loop.call_later(seconds + 0.01, lambda: loop.create_task(self.notify()))

    def dump_records(self) -> list[dict[str, Any]]:
        """All remembered requests, oldest first."""
        return [asdict(record) for record in self.records]
