"""What an engine's answer means for the client, and what of its text the client gets."""

from __future__ import annotations

import pytest

from sunfleet_router.engines import verdict
from sunfleet_router.errors import EngineRefusedError, LegFailedError, sanitise


@pytest.mark.parametrize(
    ("status", "expected", "retryable"),
    [
        (400, 400, None),
        (422, 422, None),
        (401, 502, False),
        (404, 502, False),
        (429, 503, True),
        (500, 502, False),
        (503, 503, True),
    ],
)
def test_what_an_engines_status_means(status: int, expected: int, retryable: bool | None) -> None:
    error = verdict.of_answer("prefill", status, b'{"error": {"message": "m", "code": 1}}')
    assert error.status == expected
    assert isinstance(error, EngineRefusedError) if retryable is None else isinstance(error, LegFailedError)
    assert retryable is None or getattr(error, "retryable", None) == retryable


def test_an_engines_text_is_passed_on_without_addresses() -> None:
    text = sanitise("at http://a.b:1/c, 10.0.0.1:80 or [fe80::1:2:3]:9; keep 12:30 and v1.2.3. " + "x" * 9000)
    assert text.startswith("at [address] [address] or [address]; keep 12:30 and v1.2.3.")
    assert len(text) == 2000
