"""JSON without nulls, and back. Pure.

kubectl's own check refuses a null within ``ControllerRevision.data``, so a backup of a record that held one could not
be restored without a flag. Yet another thing must not come back than was written: identities are hashes of it. So nulls
are left out, and where they were is kept beside.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from sunfleet_operator.types import Json

PLACES: Final = "nulls"  # beside the data: the path of each, of names and of positions in lists
_Path = tuple[str | int, ...]


def without(data: Json) -> dict[str, Any]:
    """The same, with a list of what is missing where anything is."""
    places = [list(path) for path in _nulls(data, ())]
    found: dict[str, Any] = _stripped(data)
    return {**found, PLACES: places} if places else found


def with_nulls(data: Json) -> dict[str, Any]:
    """What :func:`without` was given. Data that holds nulls itself, as earlier operators wrote them, stays as it is.

    :class:`ValueError` where the places are not in the data: somebody else wrote it.
    """
    if PLACES not in data:
        return dict(data)
    found: dict[str, Any] = _copy({name: value for name, value in data.items() if name != PLACES})
    try:
        for *path, last in data.get(PLACES) or ():
            inner: Any = found
            for step in path:
                inner = inner[step]
            inner[last] = None
    except (KeyError, IndexError, TypeError, ValueError) as error:
        raise ValueError(f"{PLACES} names what is not there: {error}") from error
    return found


def _nulls(value: Any, path: _Path) -> Iterator[_Path]:
    if value is None:
        yield path
    elif isinstance(value, Mapping):
        for name, inner in value.items():
            yield from _nulls(inner, (*path, name))
    elif isinstance(value, list):
        for position, inner in enumerate(value):
            yield from _nulls(inner, (*path, position))


def _stripped(value: Any) -> Any:
    """In a list the others keep their places, so something else has to stand there."""
    if isinstance(value, Mapping):
        return {name: _stripped(inner) for name, inner in value.items() if inner is not None}
    if isinstance(value, list):
        return ["" if inner is None else _stripped(inner) for inner in value]
    return value


def _copy(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {name: _copy(inner) for name, inner in value.items()}
    return [_copy(inner) for inner in value] if isinstance(value, list) else value
