"""The transformers reference as a child process: it runs in the engine's environment, where torch is."""

from __future__ import annotations

import json
import os
import subprocess
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Self

from pydantic import BaseModel, ConfigDict

from sunfleet_cluster.state import StateFolder

ROOT = Path(__file__).resolve().parents[2]


class ReferenceFailed(Exception):  # noqa: N818 - Python has a ReferenceError
    """The reference refused a request or could not start."""


class Expected(BaseModel):
    """What an answer has to be; see ``sunfleet_tuner.reference.protocol.Response``."""

    model_config = ConfigDict(frozen=True, extra="ignore")
    prompt_token_ids: list[int]
    token_ids: list[int]
    text: str
    finish_reason: str
    logprobs: list[float]
    margins: list[float]
    runners_up: list[int]


class Scores(BaseModel):
    """A served answer by the reference's lights; see ``sunfleet_tuner.reference.score.Scores``."""

    model_config = ConfigDict(frozen=True, extra="ignore")
    prompt_token_ids: list[int]
    token_ids: list[int]
    gaps: list[float]
    logprobs: list[float]
    text: str
    finish_reason: str


class Reference:
    """Answers one question at a time; safe to share between threads. The process starts on first use.

    ``decoder``: a folder of weights, by default those of the sample base.
    """

    def __init__(self, state: StateFolder, decoder: Path | None = None) -> None:
        self._state = state
        self._decoder = decoder or state.models / "base"
        self._process: subprocess.Popen[str] | None = None
        self._lock = threading.Lock()

    def module(self, uri: str) -> dict[str, str]:
        """The module of a sample's weights URI: ``pvc://sunfleet-models/adapters/arith`` lies in the models folder."""
        folder = self._state.models / uri.removeprefix("pvc://").partition("/")[2]
        return {"adapter" if (folder / "adapter_config.json").is_file() else "weights": str(folder)}

    def answer(
        self,
        module: Mapping[str, str],
        prompt: Sequence[int] | str | Sequence[Mapping[str, str]],
        **sampling: Any,
    ) -> Expected:
        """``prompt``: token ids, text, or chat messages. ``module``: empty for the decoder itself."""
        return Expected.model_validate(self._ask(module, prompt, sampling=sampling))

    def score(
        self,
        module: Mapping[str, str],
        prompt: Sequence[int] | str | Sequence[Mapping[str, str]],
        served: Sequence[int],
        **sampling: Any,
    ) -> Scores:
        """Judge the tokens of an answer that was served: much quicker than to answer, since all go in one pass."""
        return Scores.model_validate(self._ask(module, prompt, sampling=sampling, served=list(served)))

    def _ask(self, module: Mapping[str, str], prompt: Sequence[Any] | str, **fields: Any) -> dict[str, Any]:
        request = {"module": dict(module), _prompt_field(prompt): prompt, **fields}
        with self._lock:
            process = self._process = self._process or self._start()
            assert process.stdin is not None
            assert process.stdout is not None
            line = ""
            with suppress(BrokenPipeError):  # it has ended before
                process.stdin.write(json.dumps(request) + "\n")
                process.stdin.flush()
                line = process.stdout.readline()
        if not line:
            raise ReferenceFailed(f"the reference ended (exit {process.wait()}); its errors are in {self._log}")
        response: dict[str, Any] = json.loads(line)
        if response["error"]:
            raise ReferenceFailed(response["error"])
        return response

    def close(self) -> None:
        """End the process."""
        if self._process and self._process.stdin:
            with suppress(BrokenPipeError), self._process:  # closes the pipes, which ends it, and waits
                pass
            self._process = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def _log(self) -> Path:
        return self._state.root / "reference.log"

    def _start(self) -> subprocess.Popen[str]:
        python = self._state.engine / "bin" / "python"
        if not python.is_file() or not self._decoder.is_dir():
            raise ReferenceFailed(f"{python} or {self._decoder} is missing: run 'make engine-env models'")
        path = os.pathsep.join(str(ROOT / room) for room in ("crds", "worker_images/tuner"))
        command = [
            str(python),
            "-W",
            "ignore",
            "-m",
            "sunfleet_tuner.reference",
            "--decoder",
            str(self._decoder),
        ]
        with self._log.open("wb") as log:
            return subprocess.Popen(
                command,
                env={**os.environ, "PYTHONPATH": path},
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
            )


def _prompt_field(prompt: Sequence[Any] | str) -> str:
    if isinstance(prompt, str):
        return "prompt"
    return "messages" if prompt and isinstance(prompt[0], Mapping) else "prompt_token_ids"
