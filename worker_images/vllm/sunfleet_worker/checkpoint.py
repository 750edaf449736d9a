"""What a checkpoint's configuration says of its weights. Reads one small file; decides nothing."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any


def weight_bits(folder: Path) -> int | None:
    """Bits of the quantised weights in ``folder``; ``None``: not quantised, or nothing that can be read, of which the
    engine itself will say more.
    """
    try:
        config: dict[str, Any] = json.loads((folder / "config.json").read_text())
        quantisation: dict[str, Any] = config["quantization_config"]
        # compressed-tensors has groups of layers; GPTQ and AWQ one number for all.
        groups = [group["weights"]["num_bits"] for group in (quantisation.get("config_groups") or {}).values()]
        return min(int(bits) for bits in (*groups, *_plain(quantisation)))
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None


def _plain(quantisation: dict[str, Any]) -> list[Any]:
    return [quantisation[name] for name in ("bits", "w_bit") if name in quantisation]
