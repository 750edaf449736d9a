"""Whether a live object says already what a manifest says."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest

from sunfleet_operator.drift import holds, owns, parse_quantity

CASES: dict[str, tuple[Any, Any, bool]] = {
    "equal": ({"a": 1}, {"a": 1}, True),
    "defaults and fields of others do not count": ({"a": {"b": 1}}, {"a": {"b": 1, "c": 2}, "d": 3}, True),
    "another value": ({"a": 1}, {"a": 2}, False),
    "a missing field": ({"a": {"b": 1}}, {"a": {}}, False),
    "an empty value that the API server drops": ({"env": [], "a": {}}, {}, True),
    "a longer list": ({"a": [1]}, {"a": [1, 2]}, False),
    "elements compare like objects": ({"a": [{"n": 1}]}, {"a": [{"n": 1, "d": 2}]}, True),
    "a list against text": ({"a": ["x"]}, {"a": "x"}, False),
    "a quantity that was rewritten": ({"requests": {"cpu": "1000m"}}, {"requests": {"cpu": "1"}}, True),
    "another quantity": ({"requests": {"cpu": "1"}}, {"requests": {"cpu": "2"}}, False),
    "text that only looks like a quantity": ({"value": "1000m"}, {"value": "1"}, False),
    "a size limit": ({"emptyDir": {"sizeLimit": "1024Mi"}}, {"emptyDir": {"sizeLimit": "1Gi"}}, True),
}


@pytest.mark.parametrize(("manifest", "live", "expected"), CASES.values(), ids=CASES)
def test_holds(manifest: Any, live: Any, expected: bool) -> None:
    assert holds(manifest, live) is expected


@pytest.mark.parametrize(
    ("text", "number"),
    [("1", 1), ("100m", "0.1"), ("2Gi", 2 * 2**30), ("5k", 5000), ("1e3", 1000), (2, 2), ("x", None), ("m", None)],
)
def test_quantities_are_numbers(text: object, number: object) -> None:
    assert parse_quantity(text) == (None if number is None else Decimal(str(number)))


def test_ownership_is_what_server_side_apply_recorded() -> None:
    fields: dict[str, Any] = {"f:spec": {"f:replicas": {}}}
    entries = [
        {"manager": "a", "operation": "Apply", "fieldsV1": fields},
        {"manager": "b", "operation": "Update", "fieldsV1": fields},
        {"manager": "c", "operation": "Apply", "fieldsV1": fields, "subresource": "scale"},
    ]
    live = {"metadata": {"managedFields": entries}}
    assert owns(live, "a", "spec", "replicas")
    assert not owns(live, "a", "spec", "paused")
    assert not owns(live, "b", "spec", "replicas")
    assert not owns(live, "c", "spec", "replicas")
    assert not owns({"metadata": {}}, "a", "spec", "replicas")
