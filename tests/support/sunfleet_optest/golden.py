"""Golden prompts: a task that asks for them, and what a verifier says."""

from __future__ import annotations

from typing import Any, Final

from sunfleet_api.worker import VerificationReport

CHECKED: Final[dict[str, Any]] = {"verification": {"policy": "Enforce"}}
WRONG: Final = VerificationReport(passed=2, total=3, first_mismatch="prompt 1: token 4 is 7, expected 9")
