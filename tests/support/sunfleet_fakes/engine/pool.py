"""The adapters of a PrefillPool's pod: the worker's, over the real folder that the downloader fills."""

from __future__ import annotations

from pathlib import Path

from sunfleet_api import pooling
from sunfleet_api.pooling import Failure, Held, HeldAdapter, Wanted, WantedAdapter, folder


class Adapters:
    """What the operator wants this pod to hold. An adapter counts as loaded as soon as its files are whole."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._wanted: dict[str, WantedAdapter] = {}

    def want(self, wanted: Wanted) -> None:
        """From now on exactly these: ask for what is new, let go of what is not wanted any more."""
        before = {adapter.digest for adapter in self._wanted.values()}
        self._wanted = {adapter.name: adapter for adapter in wanted.adapters}
        for digest in before - {adapter.digest for adapter in wanted.adapters}:
            self._request(digest).unlink(missing_ok=True)
        for adapter in wanted.adapters:
            if not adapter.path:
                self._ask(adapter)

    def held(self) -> Held:
        """How far it is with each."""
        return Held(adapters=tuple(self._state(adapter) for _, adapter in sorted(self._wanted.items())))

    def loaded(self) -> frozenset[str]:
        """Names of those that requests may name."""
        return self.held().loaded()

    def find(self, name: str) -> Path | None:
        """Files of a loaded adapter."""
        adapter = self._wanted.get(name)
        if adapter is None:
            return None
        path = Path(adapter.path) if adapter.path else self._root / folder(adapter.digest)
        return path if path.is_dir() else None

    def _state(self, adapter: WantedAdapter) -> HeldAdapter:
        about = {"name": adapter.name, "digest": adapter.digest}
        if self.find(adapter.name) is not None:
            return HeldAdapter(**about, state="Loaded")
        failure = self._root / pooling.FAILURES / f"{folder(adapter.digest)}.json"
        if not failure.exists():
            return HeldAdapter(**about, state="Downloading")
        said = Failure.model_validate_json(failure.read_bytes())
        return HeldAdapter(**about, state="Failed", reason=said.reason, message=said.message)

    def _ask(self, adapter: WantedAdapter) -> None:
        path = self._request(adapter.digest)
        path.parent.mkdir(parents=True, exist_ok=True)
        part = path.with_suffix(".part")
        part.write_text(pooling.Request(uri=adapter.uri, digest=adapter.digest).model_dump_json())
        part.replace(path)

    def _request(self, digest: str) -> Path:
        return self._root / pooling.REQUESTS / f"{folder(digest)}.json"
