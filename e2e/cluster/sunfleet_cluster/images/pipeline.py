"""From the source tree to images in a cluster, doing only what is not done yet."""

import json
import tomllib
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from sunfleet_cluster.errors import ClusterError
from sunfleet_cluster.images.builders import Builder, BuildRequest
from sunfleet_cluster.images.catalog import Image
from sunfleet_cluster.images.tags import BuildInputs, hash_files
from sunfleet_cluster.progress import Progress
from sunfleet_cluster.state import StateFolder, write_atomic


class ImageStore(Protocol):
    """A cluster's images."""

    def has_image(self, ref: str) -> bool:
        """Whether pods can use `ref` now."""

    def load_image(self, archive: Path) -> None:
        """Take in the images of an OCI or Docker archive."""


@dataclass(frozen=True)
class Workshop:
    """Everything a build needs besides the image itself.

    `base` is empty for the Dockerfiles' default; `requirements` gives the locked packages of an extra as text.
    """

    root: Path
    state: StateFolder
    builder: Builder
    base: str
    requirements: Callable[[str], str]
    secrets: Mapping[str, Path]
    progress: Progress

    def args(self, image: Image) -> dict[str, str]:
        """Build arguments of `image`."""
        base = {"BASE_IMAGE": self.base} if self.base else {}
        return {**base, **dict(image.args), "VERSION": project_version(self.root)}

    def ref(self, image: Image) -> str:
        """Name and content-addressed tag of `image` as the source tree stands."""
        inputs = BuildInputs(
            dockerfile=(self.root / image.dockerfile).read_text(),
            requirements=self.requirements(image.extra) if image.extra else "",
            files=hash_files(self.root, image.sources(self.root)),
            base=self.base,
            args=self.args(image),
        )
        return image.ref(inputs.tag())

    def build(self, image: Image, ref: str) -> None:
        """Build `ref` unless the builder holds it."""
        if self.builder.has(ref):
            self.progress.say(f"  = {image.name}: built already ({ref})")
            return
        log = self.state.images / f"{image.name}.log"
        with self.progress.step(f"build {image.name}") as step:
            step.outcome = ref
            self.builder.build(
                BuildRequest(image.dockerfile, self.root, ref, log, args=self.args(image), secrets=self.secrets)
            )

    def load(self, image: Image, ref: str, store: ImageStore) -> None:
        """Copy `ref` from the builder into the cluster; the archive between them lives only meanwhile."""
        archive = self.state.images / f"{image.name}.tar"
        archive.unlink(missing_ok=True)
        try:
            with self.progress.step(f"load {image.name} into the cluster"):
                self.builder.save(ref, archive)
                store.load_image(archive)
        finally:
            archive.unlink(missing_ok=True)


def prepare(workshop: Workshop, images: Iterable[Image], store: ImageStore | None) -> dict[str, str]:
    """Bring `images` into `store` (None: only build); their names in full, by short name. One loads while the next builds."""
    refs = {image.name: (image, workshop.ref(image)) for image in images}
    with ThreadPoolExecutor(1) as loader:
        loads: list[Future[None]] = []
        for image, ref in refs.values():
            if store is not None and store.has_image(ref):
                workshop.progress.say(f"  = {image.name}: in the cluster already ({ref})")
                continue
            workshop.build(image, ref)
            if store is not None:
                loads.append(loader.submit(workshop.load, image, ref, store))
        for load in loads:
            load.result()
    return {name: ref for name, (_, ref) in refs.items()}


def record_refs(state: StateFolder, refs: Mapping[str, str]) -> None:
    """Remember the images that an installation shall use; others that were recorded before stay."""
    write_atomic(_refs_file(state), json.dumps({**read_refs(state), **refs}, indent=2, sort_keys=True) + "\n")


def read_refs(state: StateFolder) -> dict[str, str]:
    """Recorded images by short name; empty before the first build."""
    try:
        refs: dict[str, str] = json.loads(_refs_file(state).read_text())
    except FileNotFoundError:
        return {}
    return refs


def recorded(state: StateFolder, name: str) -> str:
    """The recorded image `name`; ClusterError when it was never built."""
    try:
        return read_refs(state)[name]
    except KeyError:
        raise ClusterError(f"the image {name} was not built yet: run `make images`") from None


def project_version(root: Path) -> str:
    """The version in pyproject.toml."""
    return str(tomllib.loads((root / "pyproject.toml").read_text())["project"]["version"])


def _refs_file(state: StateFolder) -> Path:
    return state.images / "refs.json"
