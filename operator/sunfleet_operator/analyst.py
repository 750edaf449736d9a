"""Asks Prometheus how the requests of a canary and of the revisions beside it went, while there is a canary."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from datetime import datetime
from typing import Final

from sunfleet_operator import promql
from sunfleet_operator.figures import ByRevision
from sunfleet_operator.prometheus import MetricsError
from sunfleet_operator.references import model_name
from sunfleet_operator.scaler import NO_URL, Source
from sunfleet_operator.types import Json, full_name, status_of

_log = logging.getLogger(__name__)
# Requests of longer ago say little about now, and a query over days is a heavy one.
_LONGEST_SECONDS: Final = 3600


class Analyst:
    """``shortest``: seconds that a window must have to hold two scrapes."""

    def __init__(self, source: Source | None, matchers: Mapping[str, str], shortest: int) -> None:
        self._source, self._matchers, self._shortest = source, matchers, shortest

    async def measure(self, live: Json, now: datetime) -> ByRevision | None:
        """Since the present step began; ``None`` for a SunModel whose canary gets no requests."""
        told = status_of(live).get("canary") or {}
        if told.get("phase") not in {"Progressing", "Promotable"}:
            return None
        if self._source is None:
            return ByRevision(fault=NO_URL)
        try:
            elapsed = (now - datetime.fromisoformat(str(told.get("startedAt")))).total_seconds()
        except ValueError:
            elapsed = 0
        window = int(min(max(elapsed, self._shortest), _LONGEST_SECONDS))
        try:
            answers = await self._source.ask(promql.by_revision(window, self._matchers))
        except MetricsError as error:
            _log.warning("no figures of the canary of %s this time: %s", full_name(live), error)
            return ByRevision(
                fault="Prometheus does not answer, or not to this query: the operator's log has its words"
            )
        return ByRevision(promql.revision_figures(answers, model_name(live)))
