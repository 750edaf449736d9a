"""For every unit test: examples of properties take as long as they take."""

from __future__ import annotations

import importlib.util

if importlib.util.find_spec("hypothesis"):  # the engine's environment has none
    from hypothesis import HealthCheck, settings

    # A busy machine is no fault of the code. Each test as a whole has its limit.
    settings.register_profile("unhurried", deadline=None, suppress_health_check=[HealthCheck.too_slow])
    settings.load_profile("unhurried")
