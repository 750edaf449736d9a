"""Bring a checkpoint into a folder: whole and checked, or not at all.

Files arrive in a folder of their own inside the target (which is often a mount point and cannot be renamed), are
checked there one by one, and move into place when all are good; the marker is written last. A run that is killed leaves
the good files for the next one. Only what an earlier run wrote is ever replaced or removed: a folder that holds other
files is refused.
"""

from __future__ import annotations

import json
import logging
import os
import shutil
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final

from sunfleet_api.files import META_FILE, relevant_files
from sunfleet_api.fingerprint import digest_of_files
from sunfleet_weights.errors import ChecksumMismatch, NotEnoughSpace, TargetInUse
from sunfleet_weights.hashing import git_oid_file, sha256_file
from sunfleet_weights.hold import MARKER
from sunfleet_weights.inspect import Kind, check_complete
from sunfleet_weights.progress import Progress
from sunfleet_weights.source import Source, SourceFile

_log = logging.getLogger(__name__)

_STAGE: Final = ".sunfleet-partial"
_SOURCE: Final = "source.txt"  # in the stage: the URI that its files come from
_PREVIOUS: Final = "previous.json"  # in the stage: the marker of what lies in the target while it is replaced
_ATTEMPTS: Final = 2  # of a file that arrives damaged
_MARGIN_BYTES: Final = 64 << 20  # left free on the target's file system


def fetch(source: Source, target: Path, kind: Kind | None, workers: int, digest: str = "") -> None:
    """Fill ``target``; all files together must have ``digest`` where one is given.

    Raises :class:`.errors.WeightsError`.
    """
    target.mkdir(parents=True, exist_ok=True)
    if is_fetched(target, source.uri):
        _log.info("%s is in %s already", source.uri, target)
        return
    _refuse_foreign(target)
    stage = _begun(target, source.uri)
    source.prepare(stage)
    wanted = _wanted(source, kind)
    _check_room(wanted, stage)
    hashes = _save_all(source, wanted, stage, workers)
    _check_digest(source.uri, hashes, digest, stage)
    _publish(source.uri, wanted, stage, target)
    _log.info("%s is complete in %s", source.uri, target)


def is_fetched(target: Path, uri: str = "") -> bool:
    """Whether an earlier run finished, with this very URI where one is given, and nothing is missing since."""
    found = _marker(target / MARKER)
    try:
        return (
            found is not None
            and found[0] == (uri or found[0])
            and all((target / path).stat().st_size == size for path, size in found[1].items())
        )
    except OSError:
        return False


def fetched_size(target: Path) -> int:
    """Bytes of what an earlier run finished; 0 when none did."""
    found = _marker(target / MARKER)
    return sum(found[1].values()) if found else 0


def _begun(target: Path, uri: str) -> Path:
    """The stage. What an interrupted run left there is kept only if it came from the same place."""
    stage = target / _STAGE
    stage.mkdir(exist_ok=True)
    source = stage / _SOURCE
    if not source.exists() or source.read_text() != uri:
        for path in stage.iterdir():
            if path.is_dir():
                shutil.rmtree(path)
            elif path.name != _PREVIOUS:
                path.unlink()
        source.write_text(uri)
    return stage


def _marker(path: Path) -> tuple[str, dict[str, int]] | None:
    """URI and file sizes of a marker; None where there is none that we wrote."""
    try:
        marker = json.loads(path.read_bytes())
        return str(marker["uri"]), {str(name): int(size) for name, size in marker["files"].items()}
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None


def _refuse_foreign(target: Path) -> None:
    """A folder is ours when it is empty, or when an earlier run has begun or finished in it."""
    if (target / _STAGE).is_dir() or _marker(target / MARKER):
        return
    if found := sorted(path.name for path in target.iterdir() if path.is_file()):
        shown = ", ".join([*found[:3], "..."] if len(found) > 3 else found)
        raise TargetInUse(f"{target} holds files that no fetch wrote ({shown}): name a new or empty folder")


def _wanted(source: Source, kind: Kind | None) -> list[SourceFile]:
    files = {file.path: file for file in source.files()}
    if kind is not None:
        check_complete(source.uri, files, kind)
    extra = [META_FILE] if META_FILE in files else []
    return [files[path] for path in [*relevant_files(files), *extra]]


def _check_room(wanted: Sequence[SourceFile], stage: Path) -> None:
    missing = sum(file.size for file in wanted if not (stage / file.path).exists())
    free = shutil.disk_usage(stage).free
    if missing + _MARGIN_BYTES > free:
        raise NotEnoughSpace(
            f"{missing / 1e9:.1f} GB are to be written to {stage.parent}, which has {free / 1e9:.1f} GB free:"
            " give the volume or the node more room"
        )


def _save_all(source: Source, wanted: Sequence[SourceFile], stage: Path, workers: int) -> dict[str, str]:
    """Path -> SHA-256 of every file."""
    total = sum(file.size for file in wanted)
    _log.info("fetching %d files of %s (%.1f GB)", len(wanted), source.uri, total / 1e9)
    progress = Progress("fetched", total)

    def one(file: SourceFile) -> tuple[str, str]:
        sha256 = _save_checked(source, file, stage)
        progress.add(file.size)
        _log.info("%s is complete and checked (%.1f MB)", file.path, file.size / 1e6)
        return file.path, sha256

    with ThreadPoolExecutor(workers) as threads:
        futures = [threads.submit(one, file) for file in sorted(wanted, key=lambda file: -file.size)]
        try:
            return dict(future.result() for future in futures)
        except BaseException:  # one failed, or we are told to go: start no other
            threads.shutdown(cancel_futures=True)
            raise


def _save_checked(source: Source, file: SourceFile, stage: Path) -> str:
    """The SHA-256 of the saved file."""
    path = stage / file.path
    for attempt in range(1, _ATTEMPTS + 1):
        source.save(file, stage)
        sha256 = sha256_file(path)
        fault = _fault(path, file, sha256)
        if not fault:
            return sha256
        _log.warning("%s is damaged (%s), attempt %d of %d", file.path, fault, attempt, _ATTEMPTS)
        path.unlink()
    raise ChecksumMismatch(f"{source.uri}: {file.path} arrives damaged ({fault}): is a proxy or mirror changing files?")


def _fault(path: Path, file: SourceFile, sha256: str) -> str:
    """What is wrong with a saved file; empty when nothing is."""
    size = path.stat().st_size
    if size != file.size:
        return f"{size} bytes instead of {file.size}"
    if file.sha256 and sha256 != file.sha256:
        return "its SHA-256 differs"
    if file.git_oid and git_oid_file(path) != file.git_oid:
        return "its git object id differs"
    return ""


def _check_digest(uri: str, hashes: Mapping[str, str], digest: str, stage: Path) -> None:
    """The files that count, together. They are thrown away when they are not what was resolved."""
    found = digest_of_files({path: sha256 for path, sha256 in hashes.items() if path != META_FILE})
    if digest and found != digest:
        shutil.rmtree(stage)
        raise ChecksumMismatch(f"{uri}: the files have the digest {found}, but {digest} was resolved")


def _publish(uri: str, wanted: Sequence[SourceFile], stage: Path, target: Path) -> None:
    if (target / MARKER).exists():
        (target / MARKER).replace(stage / _PREVIOUS)  # kept, or a run killed below would not know what is stale
    _, previous = _marker(stage / _PREVIOUS) or ("", {})
    given = {file.path: file.size for file in wanted}
    _write(stage / _PREVIOUS, uri, previous | given)  # a run killed below leaves files of both
    for stale in previous.keys() - given.keys():
        (target / stale).unlink(missing_ok=True)
    for file in wanted:
        (stage / file.path).replace(target / file.path)
    _write(stage / MARKER, uri, given)
    (stage / MARKER).replace(target / MARKER)
    shutil.rmtree(stage)


def _write(marker: Path, uri: str, files: Mapping[str, int]) -> None:
    part = marker.with_name(f"{marker.name}.part")
    part.write_bytes(json.dumps({"uri": uri, "files": dict(files)}).encode())
    with part.open("rb") as stream:
        os.fsync(stream.fileno())
    part.replace(marker)
