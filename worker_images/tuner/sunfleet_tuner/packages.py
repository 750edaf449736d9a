"""Packages that the tuner meets only when asked, as requirements for pip: the versions that it was run with.

``make e2e-packages`` runs it with exactly these, and the documentation names no others.
"""

from __future__ import annotations

from typing import Final

COMPRESSOR: Final = "llmcompressor==0.14.0.1"  # GPTQ and AWQ; in an environment of its own
LM_EVAL: Final = "lm-eval[api]==0.4.13"
WANDB: Final = "wandb==0.31.0"
