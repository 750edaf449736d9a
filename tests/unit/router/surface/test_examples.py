"""The examples of the documentation do what they show, against a real router."""

from __future__ import annotations

import asyncio
import re
import subprocess
import sys
from pathlib import Path

import pytest

from sunfleet_router_harness import Engines, Router

DOCUMENT = (Path(__file__).parents[4] / "docs/openai-api.md").read_text(encoding="utf-8")
EXAMPLES = re.findall(r"```(bash|python)\n(.*?)```", DOCUMENT, re.DOTALL)
SHELL = {"bash": ["bash", "-euo", "pipefail", "-c"], "python": [sys.executable, "-W", "error", "-c"]}


@pytest.mark.parametrize(("language", "code"), EXAMPLES, ids=[language for language, _ in EXAMPLES])
async def test_an_example_runs_and_prints_an_answer(router: Router, engines: Engines, language: str, code: str) -> None:
    local = code.replace("http://localhost:8080", router.url).replace("curl -s", "curl -s --fail --noproxy '*'")
    environment = {"PATH": "/usr/bin:/bin", "SUNFLEET_KEY": "none", "NO_PROXY": "*"}
    done = await asyncio.to_thread(
        subprocess.run, [*SHELL[language], local], env=environment, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert " d" in done.stdout, done.stdout  # words of the fake decoder
    assert engines.prefill_requests()
