"""vLLM lives in the engine's environment only: there this folder runs whole, elsewhere one test starts it there."""

from __future__ import annotations

import importlib.util

HAS_VLLM = importlib.util.find_spec("vllm") is not None
collect_ignore_glob = ["test_engine_environment.py"] if HAS_VLLM else ["test_hooks_*.py"]
