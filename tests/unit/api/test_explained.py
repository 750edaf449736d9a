"""What is wrong with what a person wrote is said by its field, once, and without pydantic's own words."""

from __future__ import annotations

import pytest
from pydantic import BaseModel, ConfigDict, ValidationError

from sunfleet_api.explained import explained, variables
from sunfleet_api.scaling import Autoscaling


class Part(BaseModel):
    model_config = ConfigDict(extra="forbid")

    size: int


class Whole(BaseModel):
    parts: tuple[Part, ...] = ()
    name: str = ""


def said(document: object, model: type[BaseModel]) -> str:
    with pytest.raises(ValidationError) as refused:
        model.model_validate(document)
    return explained(refused.value, document, model)


def test_a_field_of_several_types_is_named_once() -> None:
    text = said({"maxReplicas": 1, "fallback": "never"}, Autoscaling)
    assert text.startswith("fallback: must be ")
    assert " or " in text
    assert len(text.splitlines()) == 1


def test_fields_are_named_as_they_are_written_with_their_place_in_lists() -> None:
    text = said({"parts": [{"size": 1}, {"sise": 2}], "name": 3}, Whole)
    assert text.splitlines() == [
        "parts[1].size: is missing: add it",
        "parts[1].sise: is no field here: did you mean size?",
        "name: must be a valid string, not 3",
    ]


def test_a_long_value_is_cut() -> None:
    assert said({"name": list(range(100))}, Whole).endswith("...")


def test_a_variable_is_named_as_it_is_set_and_its_value_is_not_shown() -> None:
    with pytest.raises(ValidationError) as refused:
        Whole.model_validate({"parts": [{"size": "hidden"}]})
    text = variables(refused.value, "SUNFLEET_X_")
    assert text.startswith("SUNFLEET_X_PARTS[0].size: must be a valid integer")
    assert "hidden" not in text
