"""What the operator, the pods of a PrefillPool and the routers tell each other of adapters.

Operator -> pod: ``PUT`` :data:`PATH` on the pod's admin port with all adapters that it shall hold (:class:`Wanted`);
the answer, and that of a ``GET``, says how far it is (:class:`Held`). Operator -> routers: the annotation
``names.ANNOTATION_ADAPTERS`` on the pod, made by :func:`announcement`, once they are loaded. In the pod, engine and
downloader share the folder ``names.ADAPTERS_PATH`` (:func:`folder`, :data:`REQUESTS`, :data:`FAILURES`): the one that
holds credentials listens on no port.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final, Literal

from pydantic import BaseModel, ConfigDict, Field

from sunfleet_api import names

PATH: Final = "/sunfleet/adapters"
# Below ADAPTERS_PATH, one file FOLDER.json each: what the engine asks for, and why it could not be had.
REQUESTS: Final = "requests"
FAILURES: Final = "failures"
_START_LENGTH: Final = 16

State = Literal["Waiting", "Downloading", "Loaded", "Failed"]


class _Wire(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore")


class WantedAdapter(_Wire):
    """One adapter. Its name holds the revision, so equal names are equal weights."""

    name: str = Field(min_length=1, max_length=128, pattern=r"^[a-z0-9][a-z0-9.-]*$")
    uri: str  # resolved
    digest: str = Field(pattern=r"^sha256:.+$")
    path: str = ""  # where a mounted volume holds it; empty: it is downloaded


class Wanted(_Wire):
    """All that a pod shall hold; it lets go of the others."""

    adapters: tuple[WantedAdapter, ...] = ()


class HeldAdapter(_Wire):
    """How far a pod is with one adapter; ``reason`` is a CamelCase word where it failed."""

    name: str
    digest: str
    state: State
    reason: str = ""
    message: str = ""


class Held(_Wire):
    """What a pod says of its adapters."""

    adapters: tuple[HeldAdapter, ...] = ()

    def loaded(self) -> frozenset[str]:
        """Names of those that it can serve."""
        return frozenset(one.name for one in self.adapters if one.state == "Loaded")


class Request(_Wire):
    """The engine's request to the downloader."""

    uri: str
    digest: str


class Failure(_Wire):
    """The downloader's answer when it cannot; it goes on trying."""

    reason: str
    message: str


def folder(digest: str) -> str:
    """Name of an adapter's folder: it appears whole, and never changes."""
    return digest.replace(":", "-").replace("/", "_")


def adapter_name(namespace: str, model: str, revision: str) -> str:
    """Under which pods load a task's revision: tasks of two namespaces never share a name."""
    return f"{namespace}.{model}-{revision}"


def engine_start(status: Mapping[str, Any]) -> str:
    """Which start of the engine's container a pod's status speaks of; empty when it does not run. After a restart it is
    another one, and nothing is loaded any more.
    """
    containers = status.get("containerStatuses") or ()
    engine: Mapping[str, Any] = next((one for one in containers if one.get("name") == names.ENGINE_CONTAINER), {})
    return str(engine.get("containerID") or "")[-_START_LENGTH:]


def announcement(start: str, adapters: Iterable[str]) -> str:
    """The annotation's value: what that start of the engine has loaded."""
    return f"{start}:{','.join(sorted(adapters))}"


def announced(metadata: Mapping[str, Any], status: Mapping[str, Any]) -> frozenset[str]:
    """Adapters that a pod has loaded, as far as was announced of the engine that runs now."""
    value = str((metadata.get("annotations") or {}).get(names.ANNOTATION_ADAPTERS) or "")
    start, _, listed = value.partition(":")
    current = engine_start(status)
    return frozenset(listed.split(",")) - {""} if current and start == current else frozenset()
