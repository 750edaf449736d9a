"""The file of golden prompts: what the tuner writes, verification can read."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from sunfleet_api.golden import GoldenPrompt, GoldenSet


def test_a_set_survives_its_file_and_a_later_writers_fields_are_passed_over() -> None:
    golden = GoldenSet(
        decoder_digest="sha256:aa",
        prompts=(GoldenPrompt(prompt_token_ids=(1, 2), token_ids=(3,), margin=0.5),),
    )
    assert GoldenSet.model_validate_json(golden.model_dump_json()) == golden
    assert GoldenSet.model_validate({**golden.model_dump(), "new": 1}) == golden


@pytest.mark.parametrize("field", ["prompt_token_ids", "token_ids"])
@pytest.mark.parametrize("value", [(), (-1,)])
def test_a_prompt_without_tokens_on_either_side_verifies_nothing_and_is_refused(
    field: str, value: tuple[int, ...]
) -> None:
    with pytest.raises(ValidationError):
        GoldenPrompt.model_validate({"prompt_token_ids": (1,), "token_ids": (2,), field: value})
