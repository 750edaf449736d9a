"""Run the fake hub: in a thread of a test, or as a program with sample repositories."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from sunfleet_fakes.hub.app import Hub, create_app
from sunfleet_fakes.hub.repositories import Repository, Visibility
from sunfleet_fakes.serving import Serving


class FakeHub(Serving):
    """A hub on a free port of this machine, in a thread; its ``url`` is for ``HF_ENDPOINT``. ``state`` is live."""

    def __init__(self, certificate: Path | None = None) -> None:
        self.state = Hub()
        super().__init__(create_app(self.state), certificate)

    def commit(
        self, name: str, files: Mapping[str, bytes], *, branch: str = "main", visibility: Visibility = "public"
    ) -> str:
        """Publish these files as a new commit of a repository; its id."""
        repository = self.state.repositories.setdefault(name, Repository())
        repository.visibility = visibility
        return repository.commit(files, branch)

    def downloads(self, path: str) -> list[str]:
        """The ranges of every download of a file so far, empty for whole ones."""
        return self.state.downloads(path)
