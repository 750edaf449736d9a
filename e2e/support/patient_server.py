"""The engine's own OpenAI server, whose waiting processes sleep as those of engine pods do; nothing else is ours.

Spinning for a second after each message, two servers on two cores starve each other, and a comparison of their times
would only show that. The engine's other processes import this module again when they are spawned.
"""

from __future__ import annotations

import runpy

from sunfleet_worker.hooks.shm_wait import shorten_spinning

shorten_spinning()

if __name__ == "__main__":
    runpy.run_module("vllm.entrypoints.openai.api_server", run_name="__main__")
