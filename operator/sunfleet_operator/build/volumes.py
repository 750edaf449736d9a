"""Volumes that ``spec.template`` mounts into the engine: where a ``file://`` may lie. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import PurePosixPath
from typing import Any

from sunfleet_api import names
from sunfleet_operator.types import Manifest


@dataclass(frozen=True)
class GivenVolumes:
    """Volumes by name, and where the engine's container mounts them: (path, volume, path in the volume)."""

    volumes: Mapping[str, Manifest] = field(default_factory=dict)
    mounts: tuple[tuple[str, str, str], ...] = ()

    @classmethod
    def of(cls, template_spec: Mapping[str, Any], container_name: str = names.ENGINE_CONTAINER) -> GivenVolumes:
        """Of a pod spec that a user gave. What does not say which volume it mounts is no volume."""
        volumes = {str(volume.get("name")): dict(volume) for volume in template_spec.get("volumes") or ()}
        engine = [c for c in template_spec.get("containers") or () if c.get("name") == container_name]
        mounts = (
            (str(mount.get("mountPath", "")), str(mount.get("name")), str(mount.get("subPath") or ""))
            for container in engine
            for mount in container.get("volumeMounts") or ()
        )
        return cls(volumes, tuple(mount for mount in mounts if mount[1] in volumes))

    def find(self, path: str) -> tuple[Manifest, str] | None:
        """The volume that holds an absolute path, and the path in it; of nested mounts the innermost."""
        wanted = PurePosixPath(path)
        holding = [mount for mount in self.mounts if wanted.is_relative_to(mount[0])]
        if not holding:
            return None
        mount_path, name, sub_path = max(holding, key=lambda mount: len(PurePosixPath(mount[0]).parts))
        inside = PurePosixPath(sub_path) / wanted.relative_to(mount_path)
        return self.volumes[name], "" if inside == PurePosixPath() else str(inside)

    def holding(self, path: str) -> tuple[Manifest, str]:
        """As :meth:`find`; :class:`LookupError` when no volume holds it, which the plan has to ask first."""
        found = self.find(path)
        if found is None:
            raise LookupError(f"no volume of spec.template is mounted over {path}")
        return found
