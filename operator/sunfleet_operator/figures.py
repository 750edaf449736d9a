"""How requests of single revisions went, as routers count them. Frozen."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Figures:
    """Of one revision since the step began: requests that ended, those among them that its engines failed, seconds and
    output tokens of the others."""

    requests: float = 0.0
    failed: float = 0.0
    seconds: float = 0.0
    tokens: float = 0.0

    @property
    def error_percent(self) -> float:
        return 100 * self.failed / self.requests if self.requests else 0.0

    @property
    def per_token(self) -> float | None:
        """Seconds per output token, waiting included; ``None`` before there was any."""
        return self.seconds / self.tokens if self.tokens else None


@dataclass(frozen=True)
class Measured:
    """Figures of a candidate and of the revisions beside it; ``fault`` is why there are none."""

    candidate: Figures = Figures()
    present: Figures = Figures()
    fault: str = ""


@dataclass(frozen=True)
class ByRevision:
    """What was measured of one task; ``fault`` as above."""

    figures: Mapping[str, Figures] = field(default_factory=dict)
    fault: str = ""

    def of(self, candidate: str) -> Measured:
        others = [figures for revision, figures in self.figures.items() if revision != candidate]
        present = Figures(
            sum(each.requests for each in others), sum(each.failed for each in others),
            sum(each.seconds for each in others), sum(each.tokens for each in others),
        )  # fmt: skip
        return Measured(self.figures.get(candidate, Figures()), present, self.fault)
