"""Fills vLLM's cache of model facts, so that no engine start computes them again.

    VLLM_CACHE_ROOT=DIR python modelinfos.py [ARCHITECTURE...]

Before it loads a model, vLLM imports the model's class in a second process to learn what it supports, and keeps the
answer in ``$VLLM_CACHE_ROOT/modelinfos``. A pod's root file system forgets it: that is one import of vLLM, 13 to 30
seconds of CPU, at every start. The answers depend on the installed engine alone, so they belong into its environment.
"""

import sys
from pathlib import Path

from vllm import ModelRegistry, envs

# What the method has been shown for; other architectures work and only start later.
ARCHITECTURES = ("LlamaForCausalLM", "Qwen3ForCausalLM")


def main(architectures: tuple[str, ...]) -> None:
    for architecture in architectures:
        ModelRegistry.models[architecture].inspect_model_cls()
    for file in Path(envs.VLLM_CACHE_ROOT, "modelinfos").iterdir():
        file.chmod(0o644)  # vLLM makes them for their owner alone, but pods read them as another user


if __name__ == "__main__":
    main(tuple(sys.argv[1:]) or ARCHITECTURES)
