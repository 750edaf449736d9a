"""What can go wrong with a weights URI. The name of each class is the reason that people see in a condition.

::

    WeightsError
    ├── InvalidSettings         variables of this process cannot be used
    ├── InvalidUri              the URI is malformed
    ├── UnsupportedScheme       this scheme cannot be used here
    ├── WeightsNotFound         repository, bucket, path or claim folder does not exist (or is private)
    ├── RevisionNotFound        the repository has no such branch, tag, commit or digest
    ├── SourceChanged           objects of a bucket are no longer those that were resolved
    ├── AuthenticationFailed    credentials missing, wrong, or without access
    ├── SourceUnreachable       no connection, time-out, or an answer that does not speak the protocol
    ├── SourceError             hub, store or registry answered with an error of its own
    ├── NotACheckpoint          a folder, but without what a model or adapter needs
    ├── InvalidCheckpoint       files are there and contradict themselves or cannot be read
    ├── ChecksumMismatch        what arrived is not what was promised
    ├── InvalidCredentials      the Secret's content cannot be read
    ├── InvalidBundle           certificates to trust cannot be read
    ├── NotEnoughSpace          the target or the cache cannot hold the files
    ├── TargetInUse             the target holds files that no fetch wrote, or cannot be written
    ├── DiskFailed              reading or writing a file failed otherwise
    ├── ReportTooLarge          more facts than a termination message holds
    ├── GoldenPromptsNotFound   no golden prompts where they should lie
    ├── InvalidGoldenPrompts    golden prompts that cannot be read
    ├── GoldenPromptsChanged    golden prompts that are no longer those that were asked for
    ├── EngineUnreachable       an engine pod does not answer
    └── EngineRefused           an engine pod answers, but with no completion
"""

from __future__ import annotations

import errno
import socket
import ssl
from typing import Final

_FULL: Final = frozenset({errno.ENOSPC, errno.EDQUOT})
_REFUSED: Final = frozenset({errno.EACCES, errno.EPERM, errno.EROFS})
_NETWORK: Final = (ssl.SSLError, socket.gaierror, ConnectionError, TimeoutError)
_NO_WAY: Final = frozenset({errno.ENETDOWN, errno.ENETUNREACH, errno.EHOSTDOWN, errno.EHOSTUNREACH})


class WeightsError(Exception):
    """Message: what, where, and how to mend it."""

    @property
    def reason(self) -> str:
        """CamelCase, for a condition."""
        return type(self).__name__


class InvalidSettings(WeightsError): ...  # noqa: N818 - the class name is the condition's reason


class InvalidUri(WeightsError): ...  # noqa: N818


class UnsupportedScheme(WeightsError): ...  # noqa: N818


class WeightsNotFound(WeightsError): ...  # noqa: N818


class RevisionNotFound(WeightsError): ...  # noqa: N818


class SourceChanged(WeightsError): ...  # noqa: N818


class AuthenticationFailed(WeightsError): ...  # noqa: N818


class SourceUnreachable(WeightsError): ...  # noqa: N818


class SourceError(WeightsError): ...


class NotACheckpoint(WeightsError): ...  # noqa: N818


class InvalidCheckpoint(WeightsError): ...  # noqa: N818


class ChecksumMismatch(WeightsError): ...  # noqa: N818


class InvalidCredentials(WeightsError): ...  # noqa: N818


class InvalidBundle(WeightsError): ...  # noqa: N818


class NotEnoughSpace(WeightsError): ...  # noqa: N818


class TargetInUse(WeightsError): ...  # noqa: N818


class DiskFailed(WeightsError): ...  # noqa: N818


class ReportTooLarge(WeightsError): ...  # noqa: N818


class GoldenPromptsNotFound(WeightsError): ...  # noqa: N818


class InvalidGoldenPrompts(WeightsError): ...  # noqa: N818


class GoldenPromptsChanged(WeightsError): ...  # noqa: N818


class EngineUnreachable(WeightsError): ...  # noqa: N818


class EngineRefused(WeightsError): ...  # noqa: N818


def of_system(error: OSError, where: str = "") -> WeightsError:
    """What the system refused, a connection or a file, as ours; ``where`` as in :func:`of_disk`."""
    # Disks time out as well, but then the error names a file.
    if error.filename is None and (isinstance(error, _NETWORK) or error.errno in _NO_WAY):
        return SourceUnreachable(
            f"a connection failed ({error.strerror or error or type(error).__name__}): check the address, the proxy,"
            " the CA bundle and the network policy"
        )
    return of_disk(error, where)


def of_disk(error: OSError, where: str = "") -> WeightsError:
    """What a disk refused, as ours; ``where`` it was, if the error itself does not say."""
    what = f"{error.filename or where or 'a file'}: {error.strerror or error}"
    if error.errno in _FULL:
        return NotEnoughSpace(f"{what}: give the volume or the node more room")
    if error.errno in _REFUSED:
        return TargetInUse(f"{what}: its volume must be writable for user 65532 (spec.template: fsGroup)")
    return DiskFailed(f"{what}: look at the volume and at the node's disks")
