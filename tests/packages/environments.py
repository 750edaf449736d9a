"""Environments of this suite, commands in them, and small data."""

from __future__ import annotations

import json
import os
import random
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from whole_tree import run

ROOT = Path(__file__).resolve().parents[2]
ROOMS = os.pathsep.join(str(ROOT / room) for room in ("crds", "worker_images/tuner", "tests/support"))
SECONDS = 900  # the slowest command, on a busy machine
# Nothing is fetched: neither models nor data, nor anybody told.
OFFLINE = {"HF_HUB_OFFLINE": "1", "WANDB_MODE": "offline", "TOKENIZERS_PARALLELISM": "false"}


@dataclass(frozen=True)
class Python:
    """An environment. Commands run in ``folder``."""

    python: Path
    folder: Path

    def command(self, words: Sequence[object], **variables: str) -> subprocess.CompletedProcess[str]:
        """``python -m sunfleet_tuner WORDS``."""
        return self.module("sunfleet_tuner", words, **variables)

    def module(self, name: str, words: Sequence[object], **variables: str) -> subprocess.CompletedProcess[str]:
        return self._run(["-W", "ignore", "-m", name, *map(str, words)], variables)

    def script(self, script: str, words: Sequence[object]) -> subprocess.CompletedProcess[str]:
        return self._run(["-W", "ignore", "-c", script, *map(str, words)], {})

    def ask(self, script: str, *words: str | Path) -> Any:
        """What ``script`` prints last, as JSON."""
        done = self.script(script, words)
        assert done.returncode == 0, done.stderr[-4000:]
        return json.loads(done.stdout.strip().splitlines()[-1])

    def _run(self, words: Sequence[str], variables: Mapping[str, str]) -> subprocess.CompletedProcess[str]:
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("HF_", "WANDB_"))}
        places = {"PYTHONPATH": ROOMS, "HF_HOME": str(self.folder / "hub"), "HOME": str(self.folder)}
        threads = {"OMP_NUM_THREADS": "2"}
        env = {**kept, **OFFLINE, **places, **threads, **variables}
        return run([self.python, *words], seconds=SECONDS, cwd=self.folder, env=env)


def succeeds(done: subprocess.CompletedProcess[str]) -> str:
    """What it printed."""
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]
    return done.stdout


def sums(count: int, seed: int) -> list[dict[str, Any]]:
    """Chats about sums."""
    draw = random.Random(seed)  # noqa: S311 - sample data
    pairs = [(draw.randint(1, 99), draw.randint(1, 99)) for _ in range(count)]
    return [
        {
            "messages": [
                {"role": "user", "content": f"State the final answer to the following arithmetic problem: {a} + {b} ="},
                {"role": "assistant", "content": str(a + b)},
            ]
        }
        for a, b in pairs
    ]


def write_lines(path: Path, rows: Sequence[Any]) -> Path:
    """JSON lines."""
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path
