"""Checkpoints on a Hugging Face hub (``hf://ORGANISATION/NAME@REVISION``), or on anything that speaks its protocol."""

from __future__ import annotations

import errno
import hashlib
import logging
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path

import httpx2
from huggingface_hub import HfApi
from huggingface_hub.errors import (
    FileMetadataError,
    GatedRepoError,
    HfHubHTTPError,
    LocalEntryNotFoundError,
    RemoteEntryNotFoundError,
    RepositoryNotFoundError,
)
from huggingface_hub.errors import RevisionNotFoundError as HubRevisionNotFoundError
from huggingface_hub.hf_api import ModelInfo
from huggingface_hub.utils.tqdm import disable_progress_bars

from sunfleet_weights.errors import (
    AuthenticationFailed,
    RevisionNotFound,
    SourceError,
    SourceUnreachable,
    WeightsError,
    WeightsNotFound,
    of_disk,
)
from sunfleet_weights.source import SourceFile

_log = logging.getLogger(__name__)
_INFO_TIMEOUT_SECONDS = 30


class HubRepository:
    """A model repository at a revision; the first look pins it to a commit."""

    def __init__(self, repository: str, revision: str, *, endpoint: str, token: str, workers: int) -> None:
        self._repository = repository
        self._revision = revision or "main"
        self._endpoint = endpoint
        self._has_token = bool(token)
        self._workers = workers
        # token=False: never one from this machine's own login
        self._api = HfApi(endpoint=endpoint, token=token or False, library_name="sunfleet")
        disable_progress_bars()  # they are for terminals; see sunfleet_weights.progress

    @property
    def uri(self) -> str:
        """With the commit in place of a branch or tag."""
        return f"hf://{self._repository}@{self._info.sha}"

    def files(self) -> Sequence[SourceFile]:
        """Every file of the commit."""
        return [
            SourceFile(
                path=sibling.rfilename,
                size=sibling.size or 0,
                sha256=sibling.lfs.sha256 if sibling.lfs else "",
                git_oid=sibling.blob_id or "" if not sibling.lfs else "",
            )
            for sibling in self._info.siblings or []
        ]

    def read(self, path: str) -> bytes:
        """Download a small file and forget it on disk."""
        with tempfile.TemporaryDirectory() as folder:
            self._download(path, Path(folder))
            return (Path(folder) / path).read_bytes()

    def hashes(self, files: Sequence[SourceFile]) -> Mapping[str, str]:
        """From the hub's own metadata; files outside large-file storage are small and hashed here."""

        def one(file: SourceFile) -> tuple[str, str]:
            return file.path, file.sha256 or hashlib.sha256(self.read(file.path)).hexdigest()

        with ThreadPoolExecutor(self._workers) as threads:
            return dict(threads.map(one, files))

    @property
    def folder(self) -> str:
        """The top."""
        return ""

    def prepare(self, folder: Path) -> None:
        """Nothing is packed."""

    def save(self, file: SourceFile, folder: Path) -> None:
        """Download a file; a broken connection is taken up where it broke, a file that is whole is not loaded again."""
        self._download(file.path, folder)

    @cached_property
    def _info(self) -> ModelInfo:
        with self._explained():
            info = self._api.model_info(
                self._repository, revision=self._revision, files_metadata=True, timeout=_INFO_TIMEOUT_SECONDS
            )
        if not info.sha:
            raise SourceUnreachable(
                f"{self._endpoint} named no commit for {self._repository}: is HF_ENDPOINT a hub's address?"
            )
        _log.info("%s@%s is commit %s", self._repository, self._revision, info.sha)
        return info

    def _download(self, path: str, folder: Path) -> None:
        with self._explained(path):
            self._api.hf_hub_download(self._repository, path, revision=self._info.sha, local_dir=folder)

    @contextmanager
    def _explained(self, path: str = "") -> Iterator[None]:
        """The library's errors, as ours. Order matters: theirs inherit from each other."""
        what = f"hf://{self._repository}" + (f", file {path}," if path else "")
        try:
            yield
        except HubRevisionNotFoundError as error:
            raise RevisionNotFound(
                f"{what} has no revision {self._revision!r}: name a branch, a tag or a commit of 40 hex digits"
            ) from error
        except GatedRepoError as error:
            raise AuthenticationFailed(
                f"{what} is gated: accept its terms on the hub and {self._token_hint()} of that account"
            ) from error
        except RepositoryNotFoundError as error:
            raise WeightsNotFound(
                f"{what} does not exist on {self._endpoint}, or is private: check the name, or {self._token_hint()}"
            ) from error
        except RemoteEntryNotFoundError as error:
            raise WeightsNotFound(f"{what} is listed but missing on {self._endpoint}") from error
        except HfHubHTTPError as error:
            raise self._http_error(what, error) from error
        except (httpx2.TransportError, LocalEntryNotFoundError, FileMetadataError) as error:
            raise SourceUnreachable(
                f"{self._endpoint} cannot be reached or is no hub ({_innermost(error)}): check HF_ENDPOINT, the proxy,"
                " the CA bundle and the network policy"
            ) from error
        except OSError as error:
            if error.filename or error.errno in {errno.ENOSPC, errno.EDQUOT}:  # of a file of ours
                raise of_disk(error, what) from error
            raise SourceError(f"{what}: {error}") from error
        except ValueError as error:  # an answer that is not JSON
            raise SourceUnreachable(
                f"{self._endpoint} gave no hub's answer ({error}): check HF_ENDPOINT and the proxy"
            ) from error

    def _http_error(self, what: str, error: HfHubHTTPError) -> WeightsError:
        status = error.response.status_code
        if status in (401, 403):
            return AuthenticationFailed(f"{what}: {self._endpoint} refused the token ({status}): {self._token_hint()}")
        return SourceError(f"{what}: {self._endpoint} answered {status} {error.server_message or ''}".rstrip())

    def _token_hint(self) -> str:
        verb = "replace the HF_TOKEN in" if self._has_token else "set"
        return f"{verb} the Secret of credentialsSecretRef{'' if self._has_token else ' with a key HF_TOKEN'}"


def _innermost(error: BaseException) -> str:
    while error.__cause__ is not None:
        error = error.__cause__
    return str(error) or type(error).__name__
