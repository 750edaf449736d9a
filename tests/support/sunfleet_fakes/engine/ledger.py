"""KV blocks: who holds which, and the leases under which a prefill keeps blocks for a decoder.

No I/O, and no clock of its own.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass


class LeaseLostError(LookupError):
    """The blocks of this request were read before, were never held, or their lease ran out."""


@dataclass(frozen=True)
class KvEntry:
    """What a decoder gets for a hand-over: enough to go on, and to see that it fits."""

    tag: int
    prompt_tag: int  # of the prompt ids alone
    fingerprint: str


@dataclass(frozen=True)
class _Lease:
    entry: KvEntry
    expires_at: float


class KvLedger:
    """Block accounting of one engine. Times are seconds of any monotonic clock, given by the caller."""

    def __init__(self, blocks: int, block_size: int) -> None:
        self.capacity = blocks  # may be changed at any time
        self.block_size = block_size
        self._ids = itertools.count(1)  # never used twice, so that a stale id cannot look right
        self._held: dict[str, list[int]] = {}
        self._leases: dict[str, _Lease] = {}
        self.expired_total = 0

    @property
    def used(self) -> int:
        """Blocks held by running requests and by leases."""
        return sum(map(len, self._held.values()))

    @property
    def leases(self) -> int:
        """Requests whose blocks wait for their decoder."""
        return len(self._leases)

    def blocks_for(self, tokens: int) -> int:
        """Blocks that so many tokens need."""
        return math.ceil(tokens / self.block_size)

    def take(self, owner: str, tokens: int) -> bool:
        """Let ``owner`` hold room for ``tokens`` in all; False, and no change, when there is none."""
        held = self._held.setdefault(owner, [])
        missing = self.blocks_for(tokens) - len(held)
        if missing > self.capacity - self.used:
            if not held:
                del self._held[owner]
            return False
        held.extend(itertools.islice(self._ids, max(missing, 0)))
        return True

    def block_ids(self, owner: str) -> list[int]:
        """Blocks of ``owner`` in order."""
        return list(self._held.get(owner, []))

    def free(self, owner: str) -> None:
        """Give back all blocks of ``owner``; nothing happens when it holds none."""
        self._held.pop(owner, None)
        self._leases.pop(owner, None)

    def lease(self, owner: str, entry: KvEntry, expires_at: float) -> None:
        """Keep the blocks of ``owner`` until a decoder reads them or the lease expires."""
        self._leases[owner] = _Lease(entry, expires_at)

    def is_leased(self, owner: str) -> bool:
        """Whether the blocks of ``owner`` wait for a decoder."""
        return owner in self._leases

    def read(self, owner: str, now: float) -> KvEntry:
        """Hand the KV over, once, and free its blocks. Raises :class:`LeaseLostError`."""
        self.expire(now)
        lease = self._leases.get(owner)
        if lease is None:
            raise LeaseLostError(owner)
        self.free(owner)
        return lease.entry

    def expire(self, now: float) -> None:
        """Free the blocks of every lease that has run out."""
        for owner in [owner for owner, lease in self._leases.items() if lease.expires_at <= now]:
            self.free(owner)
            self.expired_total += 1
