"""Settings that cannot be used are told by the variable that holds them, and without its value."""

from __future__ import annotations

from typing import Self

import pytest
from pydantic import BaseModel, Field, SecretStr, model_validator
from pydantic_settings import BaseSettings, SettingsConfigDict

from sunfleet_api.settings import UnusableSettings, read


class Group(BaseModel):
    sizes: tuple[int, ...] = ()
    open: bool = False


class Settings(BaseSettings):
    model_config = SettingsConfigDict(env_prefix="SUNFLEET_X_", env_nested_delimiter="__")

    role: str
    group: Group = Field(default_factory=Group)
    key: SecretStr = Field(default=SecretStr(""), max_length=3)
    config: str = Field(default="", max_length=3, validation_alias="KUBECONFIG")
    low: int = 0
    high: int = 9

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        if self.low > self.high:
            raise ValueError("low must not be above high")
        return self


class Flat(BaseSettings):
    model_config = SettingsConfigDict(env_prefix="SUNFLEET_Y_")

    groups: tuple[Group, ...] = ()


def fault(monkeypatch: pytest.MonkeyPatch, settings: type[BaseSettings], **variables: str) -> str:
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(UnusableSettings) as refused:
        read(settings)
    return str(refused.value)


@pytest.mark.parametrize(
    ("variables", "text"),
    [
        ({}, "SUNFLEET_X_ROLE: is not set: set it"),
        ({"SUNFLEET_X_GROUP__OPEN": "perhaps"}, "SUNFLEET_X_GROUP__OPEN: must be a valid boolean, unable to interpret"),
        ({"SUNFLEET_X_GROUP__SIZES": '[1, "hidden"]'}, "SUNFLEET_X_GROUP__SIZES[1]: must be a valid integer"),
        (
            {"SUNFLEET_X_GROUP__SIZES": "hidden"},
            "SUNFLEET_X_GROUP, or a variable SUNFLEET_X_GROUP__*: must be JSON: Expecting value at character 0",
        ),
        ({"SUNFLEET_X_KEY": "hidden"}, "SUNFLEET_X_KEY: must have at most 3"),
        ({"KUBECONFIG": "hidden"}, "KUBECONFIG: must have at most 3 characters"),
        ({"SUNFLEET_X_LOW": "10"}, "SUNFLEET_X_*: low must not be above high"),
    ],
)
def test_a_variable_is_named_as_it_is_set_and_its_value_is_not_shown(
    monkeypatch: pytest.MonkeyPatch, variables: dict[str, str], text: str
) -> None:
    given = {"SUNFLEET_X_ROLE": "a", **variables} if variables else {}
    said = fault(monkeypatch, Settings, **given)
    assert said.startswith(text)
    assert len(said.splitlines()) == 1
    assert "hidden" not in said


def test_without_groups_a_variable_is_json_and_the_place_in_it_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    said = fault(monkeypatch, Flat, SUNFLEET_Y_GROUPS='[{}, {"open": "hidden"}]')
    assert said.startswith("SUNFLEET_Y_GROUPS[1].open: must be a valid boolean")
    assert fault(monkeypatch, Flat, SUNFLEET_Y_GROUPS="[").startswith("SUNFLEET_Y_GROUPS: must be JSON: ")


def test_what_is_given_wins_over_the_environment_also_over_a_variable_that_is_wrong(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("SUNFLEET_X_HIGH", "many")
    assert read(Settings, role="a", high=5).high == 5
