"""What a LoRA adapter's own settings say. Reads one small file; decides nothing."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from sunfleet_worker.errors import StartupError


def adapter_rank(folder: Path) -> int:
    """The largest rank of any layer of the adapter in ``folder``.

    The engine reserves and, on a CPU, multiplies with as many rows as it was started for, so a pod is started for what
    its adapter has and not for what the fleet would allow.

    Raises:
        StartupError: there is no readable adapter.
    """
    file = folder / "adapter_config.json"
    try:
        config: dict[str, Any] = json.loads(file.read_text())
        return max(int(config["r"]), *(int(rank) for rank in (config.get("rank_pattern") or {}).values()), 1)
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise StartupError(
            f"{file} is no adapter's configuration ({type(error).__name__}: {error}). "
            "spec.prefill.adapter must name a folder that peft's save_pretrained has written."
        ) from error
