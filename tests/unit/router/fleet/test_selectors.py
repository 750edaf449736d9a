"""Label selectors, read as Kubernetes reads them."""

from __future__ import annotations

import pytest

from sunfleet_router.fleet import selectors

LABELS = {"app": "x", "tier": "gold", "serving.sunfleet.dev/role": "prefill"}


@pytest.mark.parametrize(
    ("text", "matches"),
    [
        ("app=x", True),
        ("app==x", True),
        ("app = x , tier = gold", True),
        ("app=y", False),
        ("app=x,tier=y", False),
        ("app!=y", True),
        ("app!=x", False),
        ("nope!=x", True),
        ("app", True),
        ("nope", False),
        ("!nope", True),
        ("!app", False),
        ("app in (x,y)", True),
        ("app in (y, z)", False),
        ("app notin (y)", True),
        ("app notin (x)", False),
        ("serving.sunfleet.dev/role=prefill,tier in (gold)", True),
        ("", False),
    ],
)
def test_a_selector_selects_what_kubernetes_would(text: str, matches: bool) -> None:
    assert selectors.parse(text).matches(LABELS) == matches


@pytest.mark.parametrize("text", ["a b", "a=b=c", "=x", "a in x", "a in (", ",", "a=b,,c=d"])
def test_a_bad_selector_is_refused(text: str) -> None:
    with pytest.raises(selectors.SelectorError):
        selectors.parse(text)
