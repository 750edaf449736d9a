"""What a finished folder says of itself, for the report of a Job."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from sunfleet_api.files import META_FILE
from sunfleet_api.golden import GOLDEN_FILE
from sunfleet_api.tuning import TuningReport
from sunfleet_tuner.files import folder_digest


def tuned(folder: Path) -> TuningReport:
    """Of a prefill module."""
    meta: dict[str, Any] = json.loads((folder / META_FILE).read_text())
    return TuningReport(
        digest=folder_digest(folder),
        decoder_digest=meta["tuned_against"],
        kv_fingerprint=meta["kv_fingerprint"],
        golden=(folder / GOLDEN_FILE).is_file(),
        metrics={name: f"{value:g}" for name, value in meta["metrics"].items()},
    )


def quantised(folder: Path) -> TuningReport:
    """Of a decoder's checkpoint."""
    return TuningReport(digest=folder_digest(folder))
