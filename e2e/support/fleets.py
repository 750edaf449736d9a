"""A small fleet of fake engines as tests handle it: its manifests, its live objects, its pods."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from support.fleet import engine_pods, wait_ready
from support.kubectl import Json, Kubectl, wait_until

READY_SECONDS = 120.0


@dataclass(frozen=True)
class Fleet:
    """One SharedDecoder ``base`` and the SunModels ``maths`` (whole weights) and ``code`` (an adapter)."""

    kubectl: Kubectl
    namespace: str
    decoder: Json
    models: list[Json]

    @property
    def manifests(self) -> list[Json]:
        return [self.decoder, *self.models]

    def get(self, kind: str, name: str) -> Json:
        return self.kubectl.get(kind, name, "--namespace", self.namespace)

    def pods(self, role: str, model: str = "") -> list[Json]:
        """Live engine pods."""
        return engine_pods(self.kubectl, self.namespace, role, model)

    def wait_ready(self, seconds: float = READY_SECONDS) -> None:
        wait_ready(self.kubectl, self.namespace, seconds)

    def wait_for(self, what: str, kind: str, name: str, holds: Callable[[Json], object], seconds: float = 60) -> Json:
        """The object, once ``holds`` is true of it."""

        def seen() -> Json | None:
            thing = self.get(kind, name)
            return thing if holds(thing) else None

        found: Json = wait_until(f"{kind}/{name}: {what}", seen, seconds)
        return found
