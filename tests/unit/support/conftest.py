"""A pair of fake engines, whole again before each test."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from sunfleet_fakes.harness import FakeEngine


@pytest.fixture(scope="module")
def engines() -> Iterator[tuple[FakeEngine, FakeEngine]]:
    with (
        FakeEngine("prefill", identity="maths", kv_fingerprint="k") as prefill,
        FakeEngine("decode", identity="base", kv_fingerprint="k") as decoder,
    ):
        yield prefill, decoder


@pytest.fixture
def prefill(engines: tuple[FakeEngine, FakeEngine]) -> FakeEngine:
    engines[0].reset()
    return engines[0]


@pytest.fixture
def decoder(engines: tuple[FakeEngine, FakeEngine]) -> FakeEngine:
    engines[1].reset()
    return engines[1]
