"""A failure that a person can mend, as a file: for a supervisor that sees no more than an exit code."""

from __future__ import annotations

import os
from pathlib import Path

from pydantic import BaseModel, ValidationError

from sunfleet_tuner.errors import TuningError


class Failure(BaseModel):
    """Contents of the file."""

    reason: str
    message: str


def write_failure(path: Path, error: TuningError | OSError) -> None:
    """Whole or not at all; of several processes the last one wins, and they say the same."""
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    draft.write_text(
        Failure(
            reason=error.reason if isinstance(error, TuningError) else "TuningFailed", message=str(error)
        ).model_dump_json()
    )
    draft.replace(path)


def read_failure(path: Path) -> Failure | None:
    """``None`` when there is none: the process was killed, or met a fault of the program."""
    try:
        return Failure.model_validate_json(path.read_bytes())
    except (OSError, ValidationError):
        return None
