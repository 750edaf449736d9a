"""How long a prompt's KV is kept for a decode pod, and how long that may take to read it. One place for both ends.

A prefill pod keeps the KV for ``LEASE_SECONDS`` after it has answered, then its blocks hold other prompts. The engine
itself would read and use them all the same: it only logs. Two rules keep that from happening, and neither trusts the
heartbeats by which a decode pod may prolong a lease, since these can be lost:

- A hand-over whose KV is not there ``DEADLINE_SECONDS`` after it came to the decode pod is given up. That bounds how
  long a client waits for a prefill pod that hangs.
- KV counts as read only if the reading was seen to be complete ``MARGIN_SECONDS`` before the lease's end, on the
  prefill pod's own clock (the engines compare their monotonic clocks when they first meet). That holds also for a
  hand-over that was late when it came.
"""

from __future__ import annotations

from typing import Final

LEASE_SECONDS: Final = 30
# Covers what two monotonic clocks drift apart while a pair of pods lives, and how exactly they were compared.
MARGIN_SECONDS: Final = 5
# A hand-over comes within moments of the prefill's answer; reading takes milliseconds, or a second for a long prompt.
DEADLINE_SECONDS: Final = 20


def read_in_time(now: float, clock_offset: float, lease_end: float) -> bool:
    """Whether KV whose transfer is seen complete ``now`` was read while the prefill pod still kept it.

    Args:
        now: this pod's monotonic clock, in seconds.
        clock_offset: the prefill pod's monotonic clock minus this pod's, in seconds.
        lease_end: when the prefill pod may reuse the blocks, on its own clock.
    """
    return now + clock_offset <= lease_end - MARGIN_SECONDS
