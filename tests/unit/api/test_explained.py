"""What is wrong with what a person wrote is said by its field, once, and without pydantic's own words."""

from __future__ import annotations

import pytest
from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator

from sunfleet_api.explained import explained
from sunfleet_api.scaling import Autoscaling


class Part(BaseModel):
    model_config = ConfigDict(extra="forbid")

    size: int


class Whole(BaseModel):
    parts: tuple[Part, ...] = ()
    name: str = ""


class Rules(BaseModel):
    parts: tuple[Part, ...] = ()
    code: str = Field(default="x", min_length=1)
    words: tuple[str, ...] = Field(default=("a",), min_length=1)
    even: int = 0

    @field_validator("even")
    @classmethod
    def _even(cls, value: int) -> int:
        if value % 2:
            raise ValueError(f"{value} is odd: add 1")
        return value


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


@pytest.mark.parametrize(
    ("document", "text"),
    [
        ({"parts": "all"}, "parts: must be a valid tuple, not 'all'"),
        ({"code": ""}, "code: must have at least 1 character, not ''"),
        ({"words": []}, "words: must have at least 1 item after validation, not 0"),
        ({"even": 3}, "even: 3 is odd: add 1"),
    ],
)
def test_every_sentence_is_about_the_value(document: object, text: str) -> None:
    assert said(document, Rules) == text


def test_a_long_value_is_cut() -> None:
    assert said({"name": list(range(100))}, Whole).endswith("...")
