"""Reads a dataset: a JSONL file, a folder or name that Hugging Face ``datasets`` knows. Records are plain mappings."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from sunfleet_tuner.errors import TuningError

Record = Mapping[str, Any]
_JSON_LINES = (".jsonl", ".ndjson")


def records(source: str, split: str) -> Iterator[Record]:
    """Records of ``source``: a ``.jsonl`` file, or what :func:`datasets.load_dataset` (or ``load_from_disk``) takes.

    ``split`` counts for the latter only. Raises :class:`.errors.TuningError`.
    """
    path = Path(source).expanduser()
    if path.suffix in _JSON_LINES:
        return _json_lines(path)
    return _hugging_face(source, path, split)


def _json_lines(path: Path) -> Iterator[Record]:
    if not path.is_file():
        raise TuningError(f"there is no dataset at {path}")
    with path.open(encoding="utf-8") as lines:
        for number, line in enumerate(lines, start=1):
            if not line.strip():
                continue
            try:
                record = json.loads(line)
            except json.JSONDecodeError as error:
                raise TuningError(f"{path}, line {number} is not JSON: {error}") from error
            if not isinstance(record, dict):
                raise TuningError(f"{path}, line {number} holds no JSON object")
            yield record


def _hugging_face(source: str, path: Path, split: str) -> Iterator[Record]:
    try:
        import datasets  # noqa: PLC0415 - an extra of its own: a JSONL file needs none of it
    except ImportError as error:
        raise TuningError(
            f"{source} is no .jsonl file, and anything else needs Hugging Face datasets: install the extra 'tuner-hub'"
        ) from error
    try:
        if (path / "state.json").is_file() or (path / "dataset_dict.json").is_file():
            loaded = datasets.load_from_disk(str(path))
            loaded = loaded[split] if isinstance(loaded, Mapping) else loaded
        else:
            loaded = datasets.load_dataset(source, split=split)
    except (OSError, ValueError, KeyError) as error:  # no such dataset, split or file; no network
        raise TuningError(f"dataset {source}, split {split} cannot be loaded: {error}") from error
    return iter(loaded)
