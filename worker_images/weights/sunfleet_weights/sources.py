"""From a URI to the place where it leads."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Final

import httpx2
from obstore.store import GCSStore, S3Store

from sunfleet_api.weights import WeightsUri, parse_uri
from sunfleet_weights.bucket import BucketFolder, Store
from sunfleet_weights.errors import InvalidBundle, InvalidCredentials, InvalidUri
from sunfleet_weights.hub import HubRepository
from sunfleet_weights.image import ImageFiles
from sunfleet_weights.local import LocalFolder
from sunfleet_weights.registry import Login, Repository, docker_login
from sunfleet_weights.settings import WeightsSettings
from sunfleet_weights.source import Source

if TYPE_CHECKING:  # known to type checkers only
    from obstore.store import ClientConfig, RetryConfig

# One request may carry a whole shard; what has stalled is noticed by the time between two reads.
_LONGEST_REQUEST: Final = timedelta(hours=12)
_STALLED: Final = timedelta(seconds=60)
_RETRIES: Final[RetryConfig] = {"max_retries": 4, "retry_timeout": timedelta(seconds=60)}
_USER_AGENT: Final = "sunfleet-weights"
_LOGIN_FILES: Final = (".dockerconfigjson", "config.json")


@contextmanager
def opened(text: str, mounted: str, settings: WeightsSettings) -> Iterator[Source]:
    """The place that a URI names; a claim is where it is ``mounted``.

    Raises :class:`.errors.InvalidUri`, :class:`.errors.InvalidBundle`.
    """
    try:
        uri = parse_uri(text)
    except ValueError as error:
        raise InvalidUri(str(error)) from error
    if uri.scheme in {"pvc", "file"}:  # no connection, so no certificates either
        folder = Path(mounted if uri.scheme == "pvc" else mounted or uri.location)
        yield LocalFolder(text, folder, settings.sunfleet_weights_workers)
        return
    with _client(settings) as client:
        yield _source(uri, settings, client)


def _client(settings: WeightsSettings) -> httpx2.Client:
    try:
        return httpx2.Client(headers={"User-Agent": _USER_AGENT})
    except OSError as error:  # it reads the certificates at once
        where = settings.ssl_cert_file or "the system's certificates"
        raise InvalidBundle(
            f"SSL_CERT_FILE, {where}: {error.strerror or error}: name a file of PEM certificates"
        ) from error


def _source(uri: WeightsUri, settings: WeightsSettings, client: httpx2.Client) -> Source:
    workers = settings.sunfleet_weights_workers
    match uri.scheme:
        case "hf":
            return HubRepository(
                uri.location, uri.revision, endpoint=settings.hf_endpoint.rstrip("/"),
                token=settings.hf_token.get_secret_value(), workers=workers,
            )  # fmt: skip
        case "s3" | "gs":
            name = f"{uri.scheme}://{uri.location}" + (f"/{uri.path}" if uri.path else "")
            return BucketFolder(name, _store(uri, settings), uri.path, uri.revision, workers=workers)
        case _:
            login, plain_http = _login(uri, settings), settings.oci_plain_http
            return ImageFiles(Repository(uri.location, login, plain_http=plain_http, client=client), uri.revision)


def _store(uri: WeightsUri, settings: WeightsSettings) -> Store:
    plain = (
        (settings.aws_endpoint_url_s3 or settings.aws_endpoint_url) if uri.scheme == "s3" else settings.google_base_url
    )
    options: ClientConfig = {
        "timeout": _LONGEST_REQUEST, "read_timeout": _STALLED, "connect_timeout": timedelta(seconds=20),
        "allow_http": plain.startswith("http://"), "user_agent": _USER_AGENT,
    }  # fmt: skip
    if uri.scheme == "s3":
        return S3Store(uri.location, client_options=options, retry_config=_RETRIES)
    return GCSStore(uri.location, client_options=options, retry_config=_RETRIES)


def _login(uri: WeightsUri, settings: WeightsSettings) -> Login:
    if settings.oci_username:
        return Login(settings.oci_username, settings.oci_password.get_secret_value())
    folder = settings.sunfleet_weights_secret
    files = [] if folder is None else [folder / name for name in _LOGIN_FILES if (folder / name).is_file()]
    if not files:
        return Login()
    try:
        return docker_login(files[0].read_bytes(), uri.location.partition("/")[0])
    except (OSError, ValueError, AttributeError) as error:  # no JSON, no base64, or JSON of another shape
        raise InvalidCredentials(
            f"{files[0].name} of the Secret of credentialsSecretRef is no Docker config: {error}"
        ) from error
