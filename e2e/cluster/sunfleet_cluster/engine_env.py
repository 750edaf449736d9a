"""The engine's Python environment: 7 GB that pods of the embedded cluster mount instead of carrying them in an image.

It is made of the lock file by uv, with bytecode, by Debian's interpreter, which the base image has at the same path.
The one for ``cuda`` is mounted by no pod: suites on loopback run in it, on a machine that only has a GPU.
Two files beside it say how far it is: `engine.installing` while uv works on it, `engine.json` (what it was made of)
once it is whole.
"""

import hashlib
import json
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from sunfleet_cluster.commands import follow
from sunfleet_cluster.errors import ClusterError
from sunfleet_cluster.preflight import ENGINE_DISK, require_disk
from sunfleet_cluster.progress import Progress, Step
from sunfleet_cluster.state import StateFolder, refuse_foreign, write_atomic
from sunfleet_cluster.uv import export_requirements, find_uv

Device = Literal["cpu", "cuda"]
INTERPRETER = Path("/usr/bin/python3")
INTERPRETER_VERSION = (3, 11)
# Where in it vLLM's model facts lie: the worker's Dockerfile sets VLLM_CACHE_ROOT to the same place.
CACHE = Path("share") / "vllm"


@dataclass(frozen=True)
class EngineEnvironment:
    """The environment of one state folder, made from the source tree `project`."""

    state: StateFolder
    project: Path
    device: Device = "cpu"

    @property
    def extras(self) -> tuple[str, ...]:
        """Of the project, which make it up."""
        return (f"engine-{self.device}", "tuner", "samples")

    @property
    def python(self) -> Path:
        """Its interpreter."""
        return self.state.engine / "bin" / "python"

    @property
    def record(self) -> Path:
        """What the whole environment was made of."""
        return self.state.root / "engine.json"

    @property
    def unfinished(self) -> Path:
        """There while an installation runs, and after one was killed."""
        return self.state.root / "engine.installing"

    def is_current(self, key: str) -> bool:
        """Whether the environment is whole and made of `key`."""
        try:
            recorded = json.loads(self.record.read_text()).get("key")
        except (FileNotFoundError, json.JSONDecodeError):
            return False
        return recorded == key and self.python.exists() and not self.unfinished.exists()

    def ensure(self, progress: Progress) -> bool:
        """Make it current; whether there was anything to do.

        Raises:
            ClusterError: uv, the interpreter or a compiler is missing, or the installation failed.
        """
        _check_machine()
        uv = find_uv(self.state)
        key = environment_key(export_requirements(uv, self.project, self.extras), self._model_facts().read_text())
        if self.is_current(key):
            progress.say("  = engine environment: unchanged")
            return False
        if not self.record.exists() and not self.unfinished.exists():
            refuse_foreign(self.state.engine, {"pyvenv.cfg"})
        if not self.record.exists():
            require_disk(self.state.root, ENGINE_DISK, "the engine's environment")
        if self.unfinished.exists():
            progress.say("  the last installation was interrupted: starting anew, with what is downloaded already")
            self._empty()
        write_atomic(self.unfinished, "")
        with progress.step("install the engine's environment (7 GB)") as step:
            _run(sync_command(uv, self.project, self.extras), {"UV_PROJECT_ENVIRONMENT": str(self.state.engine)}, step)
        with progress.step("learn vLLM's model facts") as step:
            facts = [str(self.python), str(self._model_facts())]
            _run(facts, {"VLLM_CACHE_ROOT": str(self.state.engine / CACHE)}, step)
        write_atomic(self.record, json.dumps({"key": key}) + "\n")
        self.unfinished.unlink()
        return True

    def _empty(self) -> None:
        """A killed uv can leave a package that looks installed and is not. The folder itself stays: volumes hold it."""
        for path in self.state.engine.glob("*"):
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path)
            else:
                path.unlink()

    def _model_facts(self) -> Path:
        return self.project / "worker_images" / "vllm" / "modelinfos.py"


def environment_key(requirements: str, model_facts: str) -> str:
    """Identity of an environment made of `requirements` whose cache the script `model_facts` filled."""
    text = json.dumps([requirements, model_facts, str(INTERPRETER), INTERPRETER_VERSION])
    return hashlib.sha256(text.encode()).hexdigest()


def sync_command(uv: str, project: Path, extras: Sequence[str]) -> list[str]:
    """The command that brings the environment in line with the lock file."""
    command = [uv, "sync", "--frozen", "--no-install-project", "--no-default-groups", "--compile-bytecode"]
    chosen = [word for extra in extras for word in ("--extra", extra)]
    return [*command, "--project", str(project), "--python", str(INTERPRETER), *chosen]


def _check_machine() -> None:
    wanted = ".".join(map(str, INTERPRETER_VERSION))
    program = "import sys; print(*sys.version_info[:2], sep='.')"
    result = subprocess.run([INTERPRETER, "-c", program], capture_output=True, text=True, check=False)
    if result.returncode or result.stdout.strip() != wanted:
        raise ClusterError(
            f"the engine's environment needs Python {wanted} at {INTERPRETER}, as in Debian bookworm: the pods that "
            "mount it have their interpreter there. Elsewhere build the worker with SUNFLEET_WORKER_ENGINE=cpu."
        )
    header = Path(f"/usr/include/python{wanted}/Python.h")
    if shutil.which("gcc") is None or not header.exists():
        raise ClusterError("a package of the samples is compiled from C: apt-get install gcc python3-dev")


def _run(command: Sequence[str], variables: dict[str, str], step: Step) -> None:
    follow(command, step.heard, variables=variables)
