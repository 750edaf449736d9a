"""Reads a dataset: a file, or a folder or name that Hugging Face ``datasets`` knows. Records are plain mappings."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from sunfleet_tuner.errors import InvalidData, StoreFailed
from sunfleet_tuner.served import without_nulls

Record = Mapping[str, Any]
_JSON_LINES: Final = (".jsonl", ".ndjson")
# Single files that ``datasets`` reads, by the builder that does it: it finds one by itself in folders only.
_BUILDERS: Final = {".parquet": "parquet", ".json": "json", ".csv": "csv", ".arrow": "arrow"}


def records(source: str, *splits: str, subset: str = "") -> Iterator[Record]:
    """Records of ``source``: a file, or what :func:`datasets.load_dataset` (or ``load_from_disk``) takes.

    Of a folder or a name the first of ``splits`` that it has, in the configuration ``subset`` where it has several; a
    single file has neither. A name on the hub may end in ``@REVISION``. Raises :class:`.errors.InvalidData`, and
    :class:`.errors.StoreFailed` when the hub cannot be reached.
    """
    path = Path(source).expanduser()
    if subset and (path.is_file() or path.suffix in _JSON_LINES):
        raise InvalidData(f"{source} is a file, which has no subset {subset}: a Hugging Face dataset may have some")
    if path.suffix in _JSON_LINES:
        return _json_lines(path)
    if path.is_file() and path.suffix not in _BUILDERS:
        known = ", ".join((*_JSON_LINES, *_BUILDERS))
        raise InvalidData(f"{source} is a file of none of the kinds that are read: {known}")
    return _hugging_face(source, path, splits, subset)


def _json_lines(path: Path) -> Iterator[Record]:
    if not path.is_file():
        raise InvalidData(f"there is no dataset at {path}")
    with path.open(encoding="utf-8") as lines:
        for number, line in enumerate(lines, start=1):
            if not line.strip():
                continue
            try:
                record = json.loads(line)
            except json.JSONDecodeError as error:
                raise InvalidData(f"{path}, line {number} is not JSON: {error}") from error
            if not isinstance(record, dict):
                raise InvalidData(f"{path}, line {number} holds no JSON object")
            yield record


def _hugging_face(source: str, path: Path, splits: tuple[str, ...], subset: str) -> Iterator[Record]:
    try:
        import datasets  # noqa: PLC0415 - an extra of its own: a JSONL file needs none of it
    except ImportError as error:
        raise InvalidData(
            f"{source} is no .jsonl file, and anything else needs Hugging Face datasets: install the extra 'tuner-hub'"
        ) from error
    which = f"subset {subset}, " if subset else ""
    said = f"dataset {source}, {which}split {' or '.join(splits)} cannot be loaded"
    try:
        return map(without_nulls, _first(datasets, source, path, splits, subset))
    # No such dataset, split or file; files that are not what their names say, or do not fit together.
    except (FileNotFoundError, ValueError, datasets.exceptions.DatasetsError) as error:
        raise InvalidData(f"{said}: {_in_a_line(error)}") from error
    except OSError as error:  # no network: another attempt may find it
        raise StoreFailed(f"{said} now: {error}") from error


def _in_a_line(error: Exception) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    if lines and lines[0].startswith("Config name is missing"):  # its own advice is a line of Python
        return f"it has several configurations: name one in subset, {lines[1].rpartition(': ')[2]}"
    return " ".join(lines)


def _first(datasets: Any, source: str, path: Path, splits: tuple[str, ...], subset: str) -> Any:
    """Rows of the first split that is there; what was said of the first one when none is."""
    first: Exception | None = None
    for split in splits:
        try:
            return _loaded(datasets, source, path, split, subset)
        except ValueError as error:  # no such split, among others
            first = first or error
    raise first or ValueError("no split is named")


def _loaded(datasets: Any, source: str, path: Path, split: str, subset: str) -> Any:
    if path.is_file():
        return datasets.load_dataset(_BUILDERS[path.suffix], data_files=str(path), split="train")
    if (path / "state.json").is_file() or (path / "dataset_dict.json").is_file():
        if subset:
            raise ValueError("what save_to_disk wrote is one subset already")
        loaded = datasets.load_from_disk(str(path))
        if isinstance(loaded, Mapping) and split not in loaded:
            raise ValueError(f"there is {', '.join(loaded)}")
        return loaded[split] if isinstance(loaded, Mapping) else loaded
    name, _, revision = (source, "", "") if path.exists() else source.partition("@")
    return datasets.load_dataset(name, subset or None, split=split, revision=revision or None)
