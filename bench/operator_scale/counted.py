"""The operator, with one more metric: how many Python objects are alive, by type.

Run in its place by :mod:`operator_scale.soak`. Counting looks at every object, which a process that works should not do
at each scrape.
"""

from __future__ import annotations

import gc
from collections import Counter
from collections.abc import Iterator

from prometheus_client import REGISTRY
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

METRIC = "soak_objects"
_MOST = 400  # types; the rest has a handful each


class _Objects(Collector):
    """After a full collection, so that garbage does not count."""

    def collect(self) -> Iterator[GaugeMetricFamily]:
        gc.collect()
        counted = Counter(type(each).__qualname__ for each in gc.get_objects())
        family = GaugeMetricFamily(METRIC, "Objects that the collector tracks.", labels=("type",))
        for name, number in counted.most_common(_MOST):
            family.add_metric([name], number)
        yield family

    def describe(self) -> Iterator[GaugeMetricFamily]:
        """Without a count: the registry asks when this is registered."""
        yield GaugeMetricFamily(METRIC, "Objects that the collector tracks.", labels=("type",))


if __name__ == "__main__":
    from sunfleet_operator.main import main

    REGISTRY.register(_Objects())
    main()
