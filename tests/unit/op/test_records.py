"""Records as ControllerRevisions hold them: without nulls, and never another thing for it."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sunfleet_api.worker import ResolverReport
from sunfleet_operator import nulls, records
from sunfleet_operator.records import ProfilesRecord, WeightsRecord

_NAMES = st.text(max_size=3).filter(lambda name: name != nulls.PLACES)
_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_NAMES, inner, max_size=3),
    max_leaves=12,
)


@given(st.dictionaries(_NAMES, _JSON, max_size=4))
def test_what_is_written_has_no_null_and_says_the_same(data: dict[str, Any]) -> None:
    written = nulls.without(data)
    assert "null" not in json.dumps(_shape(written))
    assert nulls.with_nulls(written) == data


def _shape(value: Any) -> Any:
    """Without the words, one of which may be "null"."""
    if isinstance(value, dict):
        return [_shape(inner) for inner in value.values()]
    if isinstance(value, list):
        return [_shape(inner) for inner in value]
    return value if value is None else 0


def test_a_record_comes_back_as_it_was() -> None:
    scheme = {"type": "float", "actorder": None, "ranges": [None, 1]}
    told = WeightsRecord(uri="hf://a/b", report=ResolverReport(digest="sha256:1", config={"scheme": scheme}))
    written = told.data()
    assert "null" not in json.dumps(written).replace('"nulls"', "")
    assert records.parse({"data": written}) == told


def test_a_record_of_an_earlier_operator_is_read_with_its_nulls() -> None:
    data = {"record": "profiles", "asked": "1", "preset": {"template": {"spec": {"nodeName": None}}}}
    assert records.parse({"data": data}) == ProfilesRecord(asked="1", preset=data["preset"])


@pytest.mark.parametrize("places", [[["preset", "lost", "x"]], [["preset", "a", 7]], [[]], 7])
def test_a_damaged_record_counts_as_none(places: Any) -> None:
    data = {"record": "profiles", "asked": "1", "preset": {"a": ["b"]}, nulls.PLACES: places}
    assert records.parse({"data": data}) is None
