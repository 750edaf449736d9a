"""Reads a dataset: a JSONL file, a folder or name that Hugging Face ``datasets`` knows. Records are plain mappings."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from sunfleet_tuner.errors import InvalidData, StoreFailed
from sunfleet_tuner.served import without_nulls

Record = Mapping[str, Any]
_JSON_LINES = (".jsonl", ".ndjson")


def records(source: str, split: str) -> Iterator[Record]:
    """Records of ``source``: a ``.jsonl`` file, or what :func:`datasets.load_dataset` (or ``load_from_disk``) takes.

    ``split`` counts for the latter only, and a name on the hub may end in ``@REVISION``.
    Raises :class:`.errors.InvalidData`.
    """
    path = Path(source).expanduser()
    if path.suffix in _JSON_LINES:
        return _json_lines(path)
    return _hugging_face(source, path, split)


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


def _hugging_face(source: str, path: Path, split: str) -> Iterator[Record]:
    try:
        import datasets  # noqa: PLC0415 - an extra of its own: a JSONL file needs none of it
    except ImportError as error:
        raise InvalidData(
            f"{source} is no .jsonl file, and anything else needs Hugging Face datasets: install the extra 'tuner-hub'"
        ) from error
    try:
        if (path / "state.json").is_file() or (path / "dataset_dict.json").is_file():
            loaded = datasets.load_from_disk(str(path))
            loaded = loaded[split] if isinstance(loaded, Mapping) else loaded
        else:
            name, _, revision = (source, "", "") if path.exists() else source.partition("@")
            loaded = datasets.load_dataset(name, split=split, revision=revision or None)
    except (FileNotFoundError, ValueError, KeyError) as error:  # no such dataset, split or file
        raise InvalidData(f"dataset {source}, split {split} cannot be loaded: {error}") from error
    except OSError as error:  # no network: another attempt may find it
        raise StoreFailed(f"dataset {source}, split {split} cannot be loaded now: {error}") from error
    return map(without_nulls, loaded)
