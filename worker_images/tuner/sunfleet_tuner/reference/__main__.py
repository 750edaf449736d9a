"""``python -m sunfleet_tuner.reference --decoder DIR``: a JSON request a line in, an answer a line out.

Models load once, on first use. It ends when standard input ends.

    echo '{"module": {"adapter": "adapters/arith"}, "messages": [{"role": "user", "content": "1 + 2 ="}]}' |
        python -m sunfleet_tuner.reference --decoder base
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import torch
from transformers.utils import logging

from sunfleet_tuner.reference.modules import Modules
from sunfleet_tuner.reference.protocol import respond


def main() -> int:
    """Serve until standard input ends; 1 when the decoder cannot be loaded."""
    parser = argparse.ArgumentParser(prog="python -m sunfleet_tuner.reference", description=__doc__)
    parser.add_argument("--decoder", type=Path, required=True, help="folder of the frozen decoder's weights")
    parser.add_argument("--threads", type=int, default=1, help="CPU threads (1: leave the others to the engines)")
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    logging.disable_progress_bar()
    try:
        modules = Modules(args.decoder)
    except (ValueError, OSError) as error:  # no folder, or no checkpoint in it
        sys.stderr.write(f"error: {error}\n")
        return 1
    for line in sys.stdin:
        if line.strip():
            print(respond(modules, line).model_dump_json(), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
