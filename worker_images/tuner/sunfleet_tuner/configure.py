"""A configuration from a YAML file and flags: flags win, and every value is shown with its source."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

import yaml
from pydantic import ValidationError
from pydantic.fields import FieldInfo

from sunfleet_api.explained import explained
from sunfleet_tuner.config import TuneConfig
from sunfleet_tuner.errors import InvalidSettings


@dataclass(frozen=True)
class Configured:
    """A configuration, and where each of its values comes from."""

    config: TuneConfig
    sources: dict[str, str]

    def shown(self) -> str:
        """A line a field: name, value, source. Defaults last, as they are the least news."""
        values = {name: getattr(self.config, name) for name in TuneConfig.model_fields}
        order = sorted(values, key=lambda name: self.sources[name] == "default")
        width = max(map(len, values))
        return "\n".join(f"{name:<{width}}  {_plain(values[name])}  ({self.sources[name]})" for name in order)


def add_flags(parser: argparse.ArgumentParser) -> None:
    """A flag for each field of the configuration, and ``--config`` for a YAML file of them."""
    parser.add_argument("--config", type=Path, metavar="FILE", help="YAML file of these settings")
    for name, field in TuneConfig.model_fields.items():
        flag = "--" + name.replace("_", "-")
        if field.annotation is bool:
            parser.add_argument(flag, action=argparse.BooleanOptionalAction, default=None, help=field.description)
        else:
            choices = get_args(field.annotation) if get_origin(field.annotation) is Literal else None
            metavar = None if choices else _metavar(field)
            parser.add_argument(flag, choices=choices, metavar=metavar, help=_help(field))


def configure(given: argparse.Namespace) -> Configured:
    """What file and flags say together; raises :class:`.errors.InvalidSettings` naming each setting that is wrong."""
    file: dict[str, Any] = _read(given.config) if given.config else {}
    flags = {name: getattr(given, name) for name in TuneConfig.model_fields if getattr(given, name) is not None}
    document = {**file, **flags}
    try:
        config = TuneConfig.model_validate(document)
    except ValidationError as error:
        where = f"flags, or fields of {given.config}" if given.config else "flags, or fields of a file for --config"
        faults = explained(error, document, TuneConfig)
        raise InvalidSettings(f"settings ({where}) cannot be used:\n{faults}") from error
    sources = {name: "flag" if name in flags else str(given.config) if name in file else "default" for name in _names()}
    return Configured(config, sources)


def from_arguments(arguments: Sequence[str]) -> Configured:
    """:func:`configure` of a command line alone."""
    parser = argparse.ArgumentParser()
    add_flags(parser)
    return configure(parser.parse_args(arguments))


def _names() -> list[str]:
    return list(TuneConfig.model_fields)


def _read(path: Path) -> dict[str, Any]:
    try:
        content = yaml.safe_load(path.read_text())
    except (OSError, yaml.YAMLError) as error:
        raise InvalidSettings(f"the configuration {path} cannot be read: {error}") from error
    if not isinstance(content, dict):
        raise InvalidSettings(f"the configuration {path} has to be a list of settings, `name: value`")
    return content


def _metavar(field: FieldInfo) -> str:
    return {int: "N", float: "X"}.get(field.annotation, "VALUE")  # type: ignore[arg-type]


def _help(field: FieldInfo) -> str:
    default = "" if field.is_required() or field.default in {"", (), None} else f" (default: {field.default})"
    return ((field.description or "") + default).replace("%", "%%")


def _plain(value: object) -> str:
    if isinstance(value, tuple):
        return ", ".join(value) or "-"
    return "-" if value in {"", None} else str(value)
