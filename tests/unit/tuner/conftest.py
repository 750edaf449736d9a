"""torch lives in the engine's environment only: there this folder runs whole, elsewhere one test starts it there."""

from __future__ import annotations

import importlib.util

HAS_TORCH = importlib.util.find_spec("torch") is not None
collect_ignore_glob = ["test_engine_environment.py"] if HAS_TORCH else ["test_tuner_*.py"]
