"""Checkpoints in OCI registries (``oci://REGISTRY/REPOSITORY:TAG``): images and artifacts.

Layers of two forms are read, and may be mixed: one that *is* a file (``oras push``, CNCF ModelPack ``raw``), and one
that is a tar archive (container images, ModelPack ``tar``), plain or gzip, with the files at its top or in ``/models``.
A blob's digest is the SHA-256 of its content, so nothing needs a second hash from anywhere.
"""

from __future__ import annotations

import hashlib
import io
import json
import logging
import platform
import tarfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Final

from sunfleet_api.files import META_FILE, relevant_files
from sunfleet_weights.errors import ChecksumMismatch, InvalidCheckpoint, WeightsNotFound
from sunfleet_weights.progress import Progress
from sunfleet_weights.registry import Manifest, Repository
from sunfleet_weights.source import SourceFile

_log = logging.getLogger(__name__)
FOLDER: Final = "models"  # where images of models keep their files, unless at the top
_TITLES: Final = ("org.cncf.model.filepath", "org.opencontainers.image.title")
_SMALL: Final = 64 << 20  # bytes of a file that is kept in memory while an archive is only looked at
_PIECE: Final = 1 << 20
_ARCHITECTURES: Final = {"x86_64": "amd64", "aarch64": "arm64"}


@dataclass(frozen=True)
class Layer:
    """One blob: a file when ``title`` is set, else an archive."""

    digest: str  # sha256:HEX
    size: int
    title: str
    gzip: bool = False


class ImageFiles:
    """The files of one image or artifact. ``reference`` is a tag or a digest; the first look pins it."""

    def __init__(self, repository: Repository, reference: str) -> None:
        self._repository = repository
        self._reference = reference or "latest"
        self._packed: dict[str, SourceFile] = {}  # from archives
        self._small: dict[str, bytes] = {}  # contents of small ones
        self._looked = False
        self._folders: set[str] = set()

    @property
    def uri(self) -> str:
        """With the digest of what the tag names: of the index where there is one for several platforms."""
        return f"oci://{self._repository.name}@{self._named.digest}"

    @property
    def folder(self) -> str:
        """Path in the image where the files lie; empty for its top."""
        self._look()
        return FOLDER if FOLDER in self._folders else ""

    def files(self) -> Sequence[SourceFile]:
        """Every file. Archives are read once for it, unless they were unpacked."""
        self._look()
        plain = [
            SourceFile(layer.title, layer.size, sha256=layer.digest.removeprefix("sha256:"))
            for layer in self._layers
            if layer.title
        ]
        return [*plain, *self._packed.values()]

    def read(self, path: str) -> bytes:
        """A small file."""
        layer = self._titled(path)
        if layer is not None:
            return b"".join(_checked(layer, self._repository.blob(layer.digest, layer.size)))
        self._look()
        if path not in self._small:
            raise WeightsNotFound(f"{self.uri} has no small file {path}")
        return self._small[path]

    def hashes(self, files: Sequence[SourceFile]) -> Mapping[str, str]:
        """All known by now."""
        return {file.path: file.sha256 for file in files}

    def prepare(self, folder: Path) -> None:
        """Unpack archives into ``folder``: what an engine needs, checked by the digest of each archive."""
        for layer in self._archives:
            try:
                self._unpack(layer, folder)
            except ChecksumMismatch as error:
                _log.warning("%s, once more", error)
                self._unpack(layer, folder)
        self._looked = True

    def save(self, file: SourceFile, folder: Path) -> None:
        """Download a layer that is a file; the others were unpacked."""
        layer, target = self._titled(file.path), folder / file.path
        if target.exists() or layer is None:
            return
        part = folder / f"{file.path}.{layer.digest.removeprefix('sha256:')[:16]}.part"
        done = part.stat().st_size if part.exists() else 0
        with part.open("ab") as stream:
            for piece in self._repository.blob(layer.digest, layer.size, done):
                stream.write(piece)
        part.replace(target)

    @cached_property
    def _named(self) -> Manifest:
        found = self._repository.manifest(self._reference)
        _log.info("oci://%s:%s is %s", self._repository.name, self._reference, found.digest)
        return found

    @cached_property
    def _layers(self) -> list[Layer]:
        manifest = self._named
        if manifest.is_index:
            manifest = self._repository.manifest(_platform(manifest, self.uri))
        return [layer for entry in manifest.content.get("layers") or () if (layer := _layer(entry, self.uri))]

    @property
    def _archives(self) -> list[Layer]:
        return [layer for layer in self._layers if not layer.title]

    def _titled(self, path: str) -> Layer | None:
        return next((layer for layer in self._layers if layer.title == path), None)

    def _look(self) -> None:
        """Read archives without keeping them: names, sizes, hashes, and the small files' contents."""
        if self._looked:
            return
        total = sum(layer.size for layer in self._archives)
        progress = Progress("read", total)
        for layer in self._archives:
            for path, member in self._members(layer, progress):
                kept = io.BytesIO()
                found = _copy(path, member, kept, limit=_SMALL)
                self._packed[path] = found
                if found.size <= _SMALL:
                    self._small[path] = kept.getvalue()
        self._looked = True

    def _unpack(self, layer: Layer, folder: Path) -> None:
        """One archive; a list of what it held, written last, says that it is done."""
        done = folder / f".unpacked-{layer.digest.removeprefix('sha256:')[:16]}"
        if done.exists():
            for path, size, digest in json.loads(done.read_bytes()):
                self._packed[path] = SourceFile(path, size, sha256=digest)
            return
        progress, here = Progress("unpacked", layer.size), []
        for path, member in self._members(layer, progress):
            if not relevant_files([path]) and path != META_FILE:
                continue
            with (folder / path).open("wb") as stream:
                here.append(_copy(path, member, stream))
        self._packed |= {file.path: file for file in here}
        part = done.with_suffix(".part")  # half a list would be taken for one by every later run
        part.write_text(json.dumps([[file.path, file.size, file.sha256] for file in here]))
        part.replace(done)

    def _members(self, layer: Layer, progress: Progress) -> Iterator[tuple[str, Any]]:
        """Name and open content of the files that an archive holds at its top or in its folder of models; afterwards
        the archive's own digest is checked."""
        stream = _Readable(_counted(_checked(layer, self._repository.blob(layer.digest, layer.size)), progress))
        try:
            with tarfile.open(fileobj=stream, mode="r|gz" if layer.gzip else "r|") as archive:
                for member in archive:
                    folder, path = _place(member.name)
                    if member.isfile() and path:
                        self._folders.add(folder)
                        yield path, archive.extractfile(member)
        except tarfile.TarError as error:
            stream.drain()  # if it arrived damaged, that is the reason
            raise InvalidCheckpoint(f"{self.uri}: layer {layer.digest} is no readable archive: {error}") from error
        stream.drain()


def _layer(entry: Mapping[str, Any], uri: str) -> Layer | None:
    media_type, annotations = str(entry.get("mediaType") or ""), entry.get("annotations") or {}
    title = next((str(annotations[key]) for key in _TITLES if annotations.get(key)), "")
    digest, size = str(entry.get("digest") or ""), int(entry.get("size") or 0)
    if not digest.startswith("sha256:"):
        raise InvalidCheckpoint(f"{uri}: layer {digest!r} is not named by a SHA-256")
    if "zstd" in media_type:
        raise InvalidCheckpoint(f"{uri}: layer {digest} is compressed with zstd: push it with gzip or uncompressed")
    if "tar" in media_type.replace("+", ".").split("."):
        return Layer(digest, size, "", gzip="gzip" in media_type)
    _, path = _place(title)
    return Layer(digest, size, path) if path else None


def _place(name: str) -> tuple[str, str]:
    """(folder, file name) of a path at the top or in the folder of models; no file name for any other."""
    parts = [part for part in name.split("/") if part not in {"", "."}]
    if len(parts) == 2 and parts[0] == FOLDER:
        return FOLDER, parts[1]
    return "", parts[0] if len(parts) == 1 and parts[0] != ".." else ""


def _platform(index: Manifest, uri: str) -> str:
    """Digest of this machine's manifest in an index, else of its first: weights are the same everywhere."""
    entries = [entry for entry in index.content.get("manifests") or () if entry.get("digest")]
    if not entries:
        raise InvalidCheckpoint(f"{uri} is an index that lists no manifest")
    own = _ARCHITECTURES.get(platform.machine(), platform.machine())
    fitting = (entry for entry in entries if (entry.get("platform") or {}).get("architecture") == own)
    return str(next(fitting, entries[0])["digest"])


def _checked(layer: Layer, pieces: Iterator[bytes]) -> Iterator[bytes]:
    digest = hashlib.sha256()
    for piece in pieces:
        digest.update(piece)
        yield piece
    if f"sha256:{digest.hexdigest()}" != layer.digest:
        raise ChecksumMismatch(f"layer {layer.digest} arrives damaged: is a proxy or mirror changing it?")


def _counted(pieces: Iterator[bytes], progress: Progress) -> Iterator[bytes]:
    for piece in pieces:
        progress.add(len(piece))
        yield piece


def _copy(path: str, member: Any, target: Any, *, limit: int | None = None) -> SourceFile:
    """Size and hash of a member, written to ``target`` up to ``limit`` bytes."""
    digest, size = hashlib.sha256(), 0
    while piece := member.read(_PIECE):
        digest.update(piece)
        size += len(piece)
        if limit is None or size <= limit:
            target.write(piece)
    return SourceFile(path, size, sha256=digest.hexdigest())


class _Readable(io.RawIOBase):
    """Pieces as a file that tarfile reads."""

    def __init__(self, pieces: Iterator[bytes]) -> None:
        self._pieces, self._rest = pieces, b""

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        """Fill what one piece fills."""
        self._rest = self._rest or next(self._pieces, b"")
        count = min(len(buffer), len(self._rest))
        buffer[:count], self._rest = self._rest[:count], self._rest[count:]
        return count

    def drain(self) -> None:
        """Read to the end, so that the digest is checked."""
        for _ in self._pieces:
            pass
