"""From the source tree to images in a cluster, doing only what is not done yet."""

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
from sunfleet_cluster.state import StateFolder


class ImageStore(Protocol):
    """A cluster's images."""

    def has_image(self, ref: str) -> bool:
        """Whether pods can use `ref` now."""

    def load_image(self, archive: Path) -> None:
        """Take in the images of an OCI or Docker archive."""


# Builds of one image before giving up on sources that change meanwhile.
_ATTEMPTS = 3


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

    def build(self, image: Image) -> str:
        """Build `image` unless the builder holds it; its name.

        Raises:
            ClusterError: the build failed, or its sources change faster than it builds.
        """
        ref = self.ref(image)
        for _ in range(_ATTEMPTS):
            if self.builder.has(ref):
                self.progress.say(f"  = {image.name}: built already ({ref})")
                return ref
            log = self.state.images / f"{image.name}.log"
            request = BuildRequest(image.dockerfile, self.root, ref, log, args=self.args(image), secrets=self.secrets)
            with self.progress.step(f"build {image.name}") as step:
                step.outcome = ref
                self.builder.build(request)
            if (current := self.ref(image)) == ref:
                return ref
            # Which of the two states was built is unknown: the tag could lie for ever.
            self.builder.remove(ref)
            ref = current
        raise ClusterError(f"the sources of {image.name} change while it is built: build it when they stand still")

    def load(self, image: Image, ref: str, store: ImageStore) -> None:
        """Copy `ref` from the builder into the cluster; the archive between them lives only meanwhile."""
        archive = _archive(self.state, image)
        archive.parent.mkdir(parents=True, exist_ok=True)  # a new state folder, and images that an earlier one built
        archive.unlink(missing_ok=True)
        try:
            with self.progress.step(f"load {image.name} into the cluster"):
                self.builder.save(ref, archive)
                store.load_image(archive)
        finally:
            archive.unlink(missing_ok=True)


def prepare(workshop: Workshop, images: Iterable[Image], store: ImageStore | None) -> dict[str, str]:
    """Bring `images` into `store` (None: only build). Full names by short name. One loads while another builds."""
    refs: dict[str, str] = {}
    with ThreadPoolExecutor(1) as loader:
        loads: list[Future[None]] = []
        for image in images:
            ref = workshop.ref(image)
            if store is not None and store.has_image(ref):
                workshop.progress.say(f"  = {image.name}: in the cluster already ({ref})")
            else:
                ref = workshop.build(image)
                if store is not None:
                    loads.append(loader.submit(workshop.load, image, ref, store))
            refs[image.name] = ref
        for load in loads:
            load.result()
    return refs


def forget_replaced(builder: Builder, before: Mapping[str, str], refs: Mapping[str, str], progress: Progress) -> None:
    """Take images that `refs` replaces out of the builder's store; layers that others share stay, and so do images that
    something of another run uses.
    """
    for name, ref in refs.items():
        old = before.get(name, ref)
        if old != ref and builder.has(old):
            try:
                builder.remove(old)
            except ClusterError as error:  # what was asked for is done
                progress.say(f"  the old image {old} stays: {error}")


def remove_leftovers(state: StateFolder, images: Iterable[Image]) -> None:
    """Delete the archives of a run that was killed; they may be gigabytes. Call it while no other run works here."""
    for image in images:
        _archive(state, image).unlink(missing_ok=True)


def _archive(state: StateFolder, image: Image) -> Path:
    return state.images / f"{image.name}.tar"


def project_version(root: Path) -> str:
    """The version in pyproject.toml."""
    return str(tomllib.loads((root / "pyproject.toml").read_text())["project"]["version"])
