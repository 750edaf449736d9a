"""A process's settings from its environment. What is wrong is told by the variable that holds it, with how to mend it.

Never with the value, which may be a secret.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from json import JSONDecodeError
from typing import Any, TypeVar

from pydantic import ValidationError
from pydantic_settings import BaseSettings, SettingsError

from sunfleet_api.explained import place, said

S = TypeVar("S", bound=BaseSettings)


class UnusableSettings(Exception):  # noqa: N818 - says it best
    """A line for each variable that is wrong."""


def read(settings: type[S], **given: Any) -> S:
    """The settings of this process; ``given`` (flags) wins over variables. Raises :class:`UnusableSettings`."""
    try:
        return settings(**given)
    except ValidationError as error:
        lines = dict.fromkeys(_line(settings, fault) for fault in error.errors())
        raise UnusableSettings("\n".join(lines)) from None
    except SettingsError as error:
        raise UnusableSettings(_not_json(settings, error)) from None


def _line(settings: type[BaseSettings], fault: Any) -> str:
    loc = fault["loc"]
    name, inside = _variable(settings, loc)
    return f"{place([name, *inside])}: {said(fault, loc[:-1], settings, variable=True)}"


def _variable(settings: type[BaseSettings], loc: Sequence[int | str]) -> tuple[str, list[int | str]]:
    """Its name, and the path inside of its value where that is JSON."""
    prefix, delimiter = settings.model_config.get("env_prefix", ""), settings.model_config.get("env_nested_delimiter")
    if not loc:  # several settings that do not fit together
        return f"{prefix}*", []
    field = settings.model_fields.get(str(loc[0]))
    alias = field.validation_alias if field else loc[0]
    name, inside = alias if isinstance(alias, str) else f"{prefix}{loc[0]}", list(loc[1:])
    while delimiter and inside and isinstance(inside[0], str):
        name += f"{delimiter}{inside.pop(0)}"
    return name.upper(), inside


def _not_json(settings: type[BaseSettings], error: SettingsError) -> str:
    """pydantic-settings names the field in its text alone."""
    found = re.search(r'field "(\w+)"', str(error))
    name, _ = _variable(settings, [found[1]]) if found else (str(error), [])
    below = settings.model_config.get("env_nested_delimiter")
    where = f"{name}, or a variable {name}{below}*" if below else name
    cause = error.__cause__
    why = f": {cause.msg} at character {cause.pos}" if isinstance(cause, JSONDecodeError) else ""
    return f"{where}: must be JSON{why}"
