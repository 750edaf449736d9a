"""Reading the fields of a request that is to become a chat: what is missing or wrong is said by the field's name."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from sunfleet_router.dialects import Json
from sunfleet_router.errors import InvalidRequestError


def wrong(param: str, must: str) -> InvalidRequestError:
    """``param`` must be otherwise."""
    return InvalidRequestError(f"{param!r} must be {must}.", param=param)


def unsupported(param: str, why: str) -> InvalidRequestError:
    """``param`` cannot be served."""
    return InvalidRequestError(f"{param!r} is not supported: {why}.", param=param, code="unsupported_parameter")


def text(value: object, param: str) -> str:
    if not isinstance(value, str):
        raise wrong(param, "a string")
    return value


def flag(value: object, param: str) -> bool:
    """Null is false."""
    if value is not None and not isinstance(value, bool):
        raise wrong(param, "true or false")
    return bool(value)


def objects(value: object, param: str) -> list[Json]:
    """A list of objects; null is an empty one."""
    if value is None:
        return []
    if not isinstance(value, list) or not all(isinstance(item, dict) for item in value):
        raise wrong(param, "a list of objects")
    return value


def an_object(value: object, param: str) -> Json:
    """An object; null is an empty one."""
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise wrong(param, "an object")
    return value


def picked(request: Json, names: Iterable[str]) -> dict[str, Any]:
    """The fields of these names that are given, as they are: the engine judges them."""
    return {name: request[name] for name in names if request.get(name) is not None}
