"""kubectl as a library: the very commands a person would type, with JSON for answers."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import threading
import time
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import yaml

from sunfleet_api.settings import read
from sunfleet_cluster.choose import open_cluster
from sunfleet_cluster.settings import ClusterSettings

Json = dict[str, Any]

FIELD_MANAGER = "sunfleet-e2e"


class KubectlError(Exception):
    """kubectl failed; the message is what it said."""


@dataclass(frozen=True)
class Kubectl:
    """Runs ``binary`` against the cluster of ``kubeconfig``; every method raises :class:`KubectlError`."""

    binary: str
    kubeconfig: Path

    @classmethod
    def for_this_machine(cls) -> Self:
        """kubectl of the state folder (else of the PATH) and the cluster that ``make cluster-up`` would look after."""
        settings = read(ClusterSettings)
        own = settings.state / "bin" / "kubectl"
        binary = str(own) if own.is_file() else shutil.which("kubectl")
        if binary is None:
            raise KubectlError("kubectl is missing: run 'make cluster-up', which builds one, or install it")
        return cls(binary, open_cluster(settings).kubeconfig)

    def run(self, *arguments: str, stdin: str | None = None, timeout: float = 120.0) -> str:
        """Standard output of ``kubectl ARGUMENTS``."""
        try:
            done = subprocess.run(
                self.command(*arguments), input=stdin, env=self._environment(), capture_output=True, text=True,
                check=False, timeout=timeout,
            )  # fmt: skip
        except subprocess.TimeoutExpired:
            raise KubectlError(f"kubectl {' '.join(arguments)} did not end within {timeout:.0f} s") from None
        if done.returncode:
            raise KubectlError(f"kubectl {' '.join(arguments)}: {done.stderr.strip() or done.stdout.strip()}")
        return done.stdout

    def get(self, *arguments: str) -> Json:
        """``kubectl get ARGUMENTS -o json``."""
        found: Json = json.loads(self.run("get", *arguments, "-o", "json"))
        return found

    def items(self, *arguments: str) -> list[Json]:
        """The objects of a list; empty when there are none."""
        found: list[Json] = self.get(*arguments)["items"]
        return found

    def find(self, *arguments: str) -> Json | None:
        """One object, or None when it is not there."""
        text = self.run("get", *arguments, "-o", "json", "--ignore-not-found")
        return json.loads(text) if text.strip() else None

    def apply(self, manifests: Path | Sequence[Json], namespace: str | None = None) -> str:
        """Server-side apply of a file, a folder, or objects."""
        place = ("--namespace", namespace) if namespace else ()
        arguments = ("apply", "--server-side", f"--field-manager={FIELD_MANAGER}", *place, "--filename")
        if isinstance(manifests, Path):
            return self.run(*arguments, str(manifests))
        return self.run(*arguments, "-", stdin=yaml.safe_dump_all(manifests))

    def delete(self, *arguments: str, timeout: float = 120.0) -> None:
        """``kubectl delete ARGUMENTS`` and wait until it is gone; what is not there is no error."""
        self.run(
            "delete", *arguments, "--ignore-not-found", "--wait", f"--timeout={timeout:.0f}s", timeout=timeout + 10
        )

    def pod_get(self, namespace: str, pod: str, port: int, path: str) -> str:
        """GET from a pod's port through the API server."""
        return self.run("get", "--raw", f"/api/v1/namespaces/{namespace}/pods/{pod}:{port}/proxy{path}")

    @contextmanager
    def port_forward(self, namespace: str, target: str, port: int, local: int = 0) -> Iterator[str]:
        """``http://127.0.0.1:PORT`` of ``target`` (``service/NAME``, ``pod/NAME``) for the time of the block."""
        command = self.command(
            "port-forward", "--namespace", namespace, target, f"{local or ''}:{port}", "--address=127.0.0.1"
        )
        with subprocess.Popen(
            command, env=self._environment(), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        ) as process:
            # It says a line for each connection, and would stand still once nobody has read some two thousand of them.
            reader = threading.Thread(target=deque, args=(process.stdout, 0), daemon=True)
            try:
                port = _forwarded_port(process)
                reader.start()
                yield f"http://127.0.0.1:{port}"
            finally:
                process.terminate()
                if reader.ident is not None:
                    reader.join()  # until the end of what it says

    def command(self, *arguments: str) -> list[str]:
        """The command line, to run or to show."""
        return [self.binary, f"--kubeconfig={self.kubeconfig}", *arguments]

    @staticmethod
    def _environment() -> dict[str, str]:
        # kubectl obeys proxy settings even for a cluster on this machine.
        return {**os.environ, "NO_PROXY": "*", "no_proxy": "*"}


def _forwarded_port(process: subprocess.Popen[str]) -> int:
    assert process.stdout is not None
    said = process.stdout.readline()
    match = re.search(r"127\.0\.0\.1:(\d+) ->", said)
    if match is None:
        raise KubectlError(f"kubectl port-forward: {said.strip() or 'ended without a word'}")
    return int(match.group(1))


def wait_until(what: str, holds: Any, timeout: float, interval: float = 1.0) -> Any:
    """The first true result of ``holds()``; TimeoutError naming ``what`` and the last result otherwise."""
    deadline = time.monotonic() + timeout
    while not (result := holds()):
        if time.monotonic() > deadline:
            raise TimeoutError(f"{what}: not within {timeout:.0f} s (last seen: {result!r})")
        time.sleep(interval)
    return result
