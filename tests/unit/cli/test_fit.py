"""Curves are those that the figures were made of, and figures that make none are refused."""

from __future__ import annotations

from dataclasses import replace

import pytest

from sunfleet_cli.sim.costs import Costs
from sunfleet_cli.sim.fit import Decode, FitError, Known, Prefill, fitted

TRUE = Costs(
    source="test", prefill_tokens_per_second=5000, prefill_seconds=0.03, decode_seconds=0.01,
    decode_stream_seconds=0.0005, kv_tokens=9000, prefill_startup_seconds=40, decode_startup_seconds=50, gpus_per_pod=2,
)  # fmt: skip
KNOWN = Known("test", 9000, 40, 50, 2)
PREFILLS = [Prefill(tokens, TRUE.prefill(tokens)) for tokens in (100, 100, 900, 3000)]
DECODES = [Decode(streams, TRUE.per_token(streams)) for streams in (1, 4, 8)]


def test_figures_without_noise_give_their_own_curve() -> None:
    assert fitted(PREFILLS, DECODES, KNOWN).model_dump() == pytest.approx(TRUE.model_dump())


def test_noise_moves_a_curve_little() -> None:
    noisy = [replace(one, seconds=one.seconds * (1 + (-0.02, 0.02)[at % 2])) for at, one in enumerate(PREFILLS)]
    assert fitted(noisy, DECODES, KNOWN).prefill_tokens_per_second == pytest.approx(5000, rel=0.05)


def test_streams_that_cost_nothing_more_leave_the_fastest_pace() -> None:
    found = fitted(PREFILLS, [Decode(1, 0.021), Decode(8, 0.02)], KNOWN)
    assert (found.decode_seconds, found.decode_stream_seconds) == (0.02, 0.0)


@pytest.mark.parametrize(
    ("prefills", "decodes", "says"),
    [
        (PREFILLS[:2], DECODES, "two different prompt lengths"),
        (PREFILLS, DECODES[:1], "two different counts of streams"),
        ([Prefill(100, 0.2), Prefill(900, 0.1)], DECODES, "no more time"),
    ],
)
def test_what_makes_no_curve_is_said(prefills: list[Prefill], decodes: list[Decode], says: str) -> None:
    with pytest.raises(FitError, match=says):
        fitted(prefills, decodes, KNOWN)
