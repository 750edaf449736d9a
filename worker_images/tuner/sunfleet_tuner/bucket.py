"""Folders in object stores, for Jobs whose data or output lies there. A run's checkpoints follow it into the bucket."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Final, TypeAlias, cast

import obstore
from obstore.exceptions import BaseError
from obstore.store import GCSStore, MemoryStore, S3Store

from sunfleet_api.weights import parse_uri
from sunfleet_tuner.errors import StoreFailed

Store: TypeAlias = S3Store | GCSStore | MemoryStore  # the last one in tests
SCHEMES: Final = ("s3", "gs")
# What a Secret may say (docs/weights.md); whatever else the clients know they read from the environment.
_SETTINGS: Final = {
    "s3": (
        "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AWS_REGION", "AWS_ENDPOINT_URL",
        "AWS_VIRTUAL_HOSTED_STYLE_REQUEST", "AWS_SKIP_SIGNATURE",
    ),
    "gs": ("GOOGLE_SERVICE_ACCOUNT_KEY", "GOOGLE_SKIP_SIGNATURE"),
}  # fmt: skip
_MIRROR_SECONDS: Final = 10.0
_RECORD: Final = "record.json"  # the last file of a checkpoint to arrive: one without it is no checkpoint


class Bucket:
    """One prefix. Raises :class:`.errors.StoreFailed` with what the store said."""

    def __init__(self, uri: str, store: Store, prefix: str) -> None:
        self.uri, self._store, self._prefix = uri, store, prefix

    @classmethod
    def of(cls, uri: str, given: Mapping[str, str]) -> Bucket:
        """``given`` holds the variables of the Secret that opens it."""
        parsed = parse_uri(uri)
        config = {name.lower(): given[name] for name in _SETTINGS[parsed.scheme] if name in given}
        plain = {"allow_http": config.get("aws_endpoint_url", "").startswith("http://")}
        make = S3Store if parsed.scheme == "s3" else GCSStore
        with _explained(uri):
            store = cast("Store", make(parsed.location, config=config, client_options=plain))  # type: ignore[arg-type]
        return cls(uri, store, parsed.path)

    def beside(self, suffix: str) -> Bucket:
        """The prefix with something behind its name."""
        return Bucket(f"{self.uri.rstrip('/')}{suffix}", self._store, f"{self._prefix}{suffix}")

    def names(self) -> list[str]:
        """Paths below the prefix; of a single object its own name."""
        with _explained(self.uri):
            found = [meta["path"] for page in obstore.list(self._store, prefix=self._prefix) for meta in page]
            if not found and self._is_object():
                return [self._prefix.rpartition("/")[2]]
        below = f"{self._prefix}/"
        return sorted(path.removeprefix(below) for path in found if path.startswith(below))

    def pull(self, folder: Path) -> list[str]:
        """Everything below the prefix into ``folder``; the paths of what came."""
        names = self.names()
        single = names == [self._prefix.rpartition("/")[2]] and self._is_object()
        for name in names:
            target = folder / name
            target.parent.mkdir(parents=True, exist_ok=True)
            part = target.with_name(f".{target.name}.part")
            with _explained(self.uri), part.open("wb") as out:
                for piece in obstore.get(self._store, self._prefix if single else f"{self._prefix}/{name}"):
                    out.write(piece)
            part.replace(target)
        return names

    def push(self, folder: Path, *, last: str = "") -> None:
        """Every file of ``folder``; those called ``last`` after all others."""
        files = sorted((path for path in folder.rglob("*") if path.is_file()), key=lambda path: path.name == last)
        for path in files:
            with _explained(self.uri):
                obstore.put(self._store, f"{self._prefix}/{path.relative_to(folder).as_posix()}", path)

    def push_file(self, path: Path) -> None:
        with _explained(self.uri):
            obstore.put(self._store, f"{self._prefix}/{path.name}", path)

    def remove(self, below: str = "") -> None:
        """Everything below the prefix, or below a path in it."""
        names = [name for name in self.names() if not below or name.startswith(f"{below}/")]
        if names:
            with _explained(self.uri):
                obstore.delete(self._store, [f"{self._prefix}/{name}" for name in names])

    def _is_object(self) -> bool:
        if not self._prefix:
            return False
        try:
            obstore.head(self._store, self._prefix)
        except FileNotFoundError:
            return False
        return True


class Mirror:
    """Checkpoints of a work folder, copied as they appear. They appear whole and never change; old ones go. With each
    go the ``runs``, what trackers wrote until then, into a bucket of their own.
    """

    def __init__(self, bucket: Bucket, work: Path, events: Bucket, runs: Path) -> None:
        self._bucket, self._work, self._events, self._runs = bucket, work, events, runs
        self._known = {name.partition("/")[0] for name in bucket.names() if name.endswith(f"/{_RECORD}")}
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._follow, name="mirror", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Copy what is left; raises StoreFailed."""
        self._done.set()
        self._thread.join()
        self.copy()

    def copy(self) -> None:
        """One look."""
        here = {path.parent.name for path in self._work.glob(f"step-*/{_RECORD}")}
        for name in sorted(here - self._known):
            Bucket.beside(self._bucket, f"/{name}").push(self._work / name, last=_RECORD)
        for name in sorted(self._known - here) if here else ():
            self._bucket.remove(name)
        if here != self._known:
            for path in self._work.glob("*.jsonl"):
                self._bucket.push_file(path)
            self._events.push(self._runs)
        self._known = here or self._known

    def _follow(self) -> None:
        while not self._done.wait(_MIRROR_SECONDS):
            try:
                self.copy()
            except (StoreFailed, OSError) as error:  # a store that is back, a folder that has just gone: next time
                print(f"checkpoints are not copied: {error}", flush=True)


@contextmanager
def _explained(uri: str) -> Iterator[None]:
    try:
        yield
    except FileNotFoundError as error:
        raise StoreFailed(f"{uri} does not exist: check bucket and path") from error
    except BaseError as error:
        said = str(error).partition("\n")[0].removeprefix("Generic ")
        raise StoreFailed(
            f"{uri}: {said}. Check the Secret of credentialsSecretRef (it has to allow listing, reading and, for an "
            "output, writing and deleting), AWS_ENDPOINT_URL and AWS_REGION"
        ) from error
