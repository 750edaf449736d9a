"""How long to wait before a failed key is tried again. Pure."""

from __future__ import annotations


def delay(failures: int, *, first: float, maximum: float, jitter: float = 0.0) -> float:
    """Seconds before attempt ``failures + 1``: doubles from ``first`` up to ``maximum``.

    ``jitter`` in [0, 1) shortens it by at most half, so that many keys that failed together do not come back together.
    """
    # 2.0 ** 1024 overflows; far beyond any maximum anyway.
    full = min(first * 2.0 ** min(max(failures - 1, 0), 64), maximum)
    return full * (1 - jitter / 2)
