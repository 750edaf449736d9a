"""Checkpoints in object stores: ``s3://BUCKET/PREFIX`` (and what speaks S3) and ``gs://BUCKET/PREFIX``.

Buckets have no commits. What a prefix holds is pinned by a *manifest digest*: SHA-256 over names, sizes and ETags of
the files that count. Every later read demands those ETags (``If-Match``), so an object that is overwritten between
resolving and downloading is an error and never other weights.
"""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from typing import Final

import obstore
from obstore.exceptions import BaseError, PermissionDeniedError, PreconditionError, UnauthenticatedError
from obstore.store import GCSStore, S3Store

from sunfleet_api.files import META_FILE, relevant_files
from sunfleet_weights.errors import (
    AuthenticationFailed,
    SourceChanged,
    SourceError,
    SourceUnreachable,
    WeightsError,
    WeightsNotFound,
)
from sunfleet_weights.progress import Progress
from sunfleet_weights.source import SourceFile

_log = logging.getLogger(__name__)
_PIECE: Final = 8 << 20  # bytes that are written or hashed at a time
_IDLE_ATTEMPTS: Final = 5  # of a download that breaks without having got any further

Store = S3Store | GCSStore


class BucketFolder:
    """The objects directly below a prefix. ``given`` is the digest that the URI pins, empty for what is there now."""

    def __init__(self, name: str, store: Store, prefix: str, given: str, *, workers: int) -> None:
        self._name = name  # scheme, bucket and prefix, without the digest
        self._store = store
        self._prefix = prefix
        self._given = given
        self._workers = workers

    @property
    def uri(self) -> str:
        """With the manifest digest."""
        return f"{self._name}@{self._manifest}"

    def files(self) -> Sequence[SourceFile]:
        """Every object of the top folder. Raises :class:`.errors.SourceChanged` when it is not what the URI pins."""
        if self._given and self._given != self._manifest:
            raise SourceChanged(
                f"{self._name} is no longer what was resolved: its objects now have the manifest digest"
                f" {self._manifest}, not {self._given}. Put the old objects back, or name the new ones by another URI"
            )
        return self._objects

    def read(self, path: str) -> bytes:
        """A small object."""
        file = next((file for file in self._objects if file.path == path), None)
        if file is None:
            raise WeightsNotFound(f"{self._name} has no {path}")
        return b"".join(self._pieces(file, 0))

    def hashes(self, files: Sequence[SourceFile]) -> Mapping[str, str]:
        """Read everything once, a few objects at a time; nothing touches a disk."""
        total = sum(file.size for file in files)
        _log.info("hashing %d objects of %s (%.1f GB)", len(files), self._name, total / 1e9)
        progress = Progress("hashed", total)

        def one(file: SourceFile) -> tuple[str, str]:
            digest = hashlib.sha256()
            for piece in self._pieces(file, 0):
                digest.update(piece)
                progress.add(len(piece))
            return file.path, digest.hexdigest()

        with ThreadPoolExecutor(self._workers) as threads:
            return dict(threads.map(one, sorted(files, key=lambda file: -file.size)))

    @property
    def folder(self) -> str:
        """The top."""
        return ""

    def prepare(self, folder: Path) -> None:
        """Objects are files already."""

    def save(self, file: SourceFile, folder: Path) -> None:
        """Download an object; one that is there in part goes on where it ended."""
        target = folder / file.path
        if target.exists():
            return
        part = folder / part_name(file)
        done = part.stat().st_size if part.exists() else 0
        with part.open("ab") as stream:
            for piece in self._pieces(file, done):
                stream.write(piece)
        part.replace(target)

    def _pieces(self, file: SourceFile, start: int) -> Iterator[bytes]:
        """The content from ``start`` on. A stream that breaks is taken up where it broke."""
        done, idle = start, 0
        while done < file.size:
            before = done
            try:
                with self._explained(file.path):
                    options: obstore.GetOptions = {"if_match": file.etag, "range": {"offset": done}}
                    stream = obstore.get(self._store, self._key(file.path), options=options).stream(_PIECE)
                while piece := self._next(stream, file.path):
                    done += len(piece)
                    yield piece
            except (SourceUnreachable, SourceError) as error:
                idle = 0 if done > before else idle + 1
                if idle >= _IDLE_ATTEMPTS:
                    raise
                _log.warning("%s broke at byte %d of %d, going on: %s", file.path, done, file.size, error)

    def _next(self, stream: Iterator[bytes], path: str) -> bytes:
        with self._explained(path):
            return next(stream, b"")

    @cached_property
    def _objects(self) -> list[SourceFile]:
        with self._explained():
            found = obstore.list_with_delimiter(self._store, self._prefix)["objects"]
        files = [_file(meta) for meta in found]
        if not files:
            raise WeightsNotFound(f"{self._name} holds no objects: check bucket and prefix (it is a folder's name)")
        return files

    @cached_property
    def _manifest(self) -> str:
        files = {file.path: file for file in self._objects}
        counted = [*relevant_files(files), *([META_FILE] if META_FILE in files else [])]
        facts = [[path, files[path].size, files[path].etag] for path in counted]
        return f"sha256:{hashlib.sha256(json.dumps(facts, separators=(',', ':')).encode()).hexdigest()}"

    def _key(self, path: str) -> str:
        return f"{self._prefix}/{path}" if self._prefix else path

    @contextmanager
    def _explained(self, path: str = "") -> Iterator[None]:
        """The library's errors, as ours."""
        what = self._name + (f", object {path}," if path else "")
        try:
            yield
        except FileNotFoundError as error:
            raise WeightsNotFound(f"{what} does not exist") from error
        except PreconditionError as error:
            raise SourceChanged(f"{what} was overwritten since it was resolved") from error
        except (PermissionDeniedError, UnauthenticatedError) as error:
            raise AuthenticationFailed(_refused(what)) from error
        except BaseError as error:
            raise _explanation(what, _first_line(error)) from error


def part_name(file: SourceFile) -> str:
    """Of what was loaded so far. The ETag is in it: a part of other content is never gone on with."""
    return f"{file.path}.{hashlib.sha256(file.etag.encode()).hexdigest()[:16]}.part"


def _file(meta: obstore.ObjectMeta) -> SourceFile:
    return SourceFile(meta["path"].rpartition("/")[2], meta["size"], etag=meta["e_tag"] or "")


def _refused(what: str) -> str:
    return (
        f"{what}: access denied. Put the credentials into the Secret of credentialsSecretRef (AWS_ACCESS_KEY_ID and"
        " AWS_SECRET_ACCESS_KEY, or GOOGLE_SERVICE_ACCOUNT_KEY), and allow listing and reading; a public bucket wants"
        " AWS_SKIP_SIGNATURE or GOOGLE_SKIP_SIGNATURE: true"
    )


# Parts of the store's message -> what went wrong. The library tells these apart only in words.
_MESSAGES: Final[tuple[tuple[str, Callable[[str, str], WeightsError]], ...]] = (
    ("NoSuchBucket", lambda what, said: WeightsNotFound(f"{what}: there is no such bucket ({said})")),
    ("404 Not Found", lambda what, said: WeightsNotFound(f"{what} does not exist ({said})")),
    ("403 Forbidden", lambda what, _: AuthenticationFailed(_refused(what))),
    ("401 Unauthorized", lambda what, _: AuthenticationFailed(_refused(what))),
    ("169.254.169.254", lambda what, _: AuthenticationFailed(_refused(what))),  # no keys, and no cloud to ask for some
    ("metadata.google.internal", lambda what, _: AuthenticationFailed(_refused(what))),
    ("412 Precondition", lambda what, _: SourceChanged(f"{what} was overwritten since it was resolved")),
    ("non-2xx status", lambda what, said: SourceError(f"{what}: {said}")),
)


def _explanation(what: str, said: str) -> WeightsError:
    for words, explain in _MESSAGES:
        if words in said:
            return explain(what, said)
    return SourceUnreachable(
        f"{what}: the store cannot be reached ({said}): check AWS_ENDPOINT_URL or GOOGLE_BASE_URL, AWS_REGION, the"
        " proxy, the CA bundle and the network policy"
    )


def _first_line(error: BaseError) -> str:
    return str(error).partition("\n")[0].removeprefix("Generic ")
