"""The part of the OCI distribution protocol that reads: manifests, blobs with ranges, tokens."""

from __future__ import annotations

import base64
import hashlib
import json
import logging
import re
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final

import httpx2

from sunfleet_weights.errors import (
    AuthenticationFailed,
    ChecksumMismatch,
    InvalidCheckpoint,
    RevisionNotFound,
    SourceError,
    SourceUnreachable,
    WeightsError,
)

_log = logging.getLogger(__name__)
_IDLE_ATTEMPTS: Final = 5  # of a blob that breaks without having got any further
_INDEX_TYPES: Final = (
    "application/vnd.oci.image.index.v1+json",
    "application/vnd.docker.distribution.manifest.list.v2+json",
)
_MANIFEST_TYPES: Final = (
    "application/vnd.oci.image.manifest.v1+json",
    "application/vnd.docker.distribution.manifest.v2+json",
)
_CHALLENGE: Final = re.compile(r'(\w+)="([^"]*)"')
_TIMEOUT: Final = httpx2.Timeout(60, connect=20)
_MANIFEST_LIMIT: Final = 4 << 20  # bytes; what registries accept
# Docker Hub answers under another name than the one that images bear.
_ALIASES: Final = {"docker.io": "registry-1.docker.io", "index.docker.io": "registry-1.docker.io"}


@dataclass(frozen=True)
class Login:
    """User and password of one registry; empty for anonymous."""

    user: str = ""
    password: str = ""

    def header(self) -> dict[str, str]:
        """As HTTP basic authentication."""
        if not self.user:
            return {}
        return {"Authorization": "Basic " + base64.b64encode(f"{self.user}:{self.password}".encode()).decode()}


@dataclass(frozen=True)
class Manifest:
    """A manifest and the digest that names it."""

    digest: str  # sha256:HEX
    media_type: str
    content: Mapping[str, Any]

    @property
    def is_index(self) -> bool:
        """Whether it only lists manifests, one per platform."""
        return self.media_type in _INDEX_TYPES or "manifests" in self.content


class Repository:
    """One repository of a registry, such as ``registry.example/team/model``."""

    def __init__(self, name: str, login: Login, *, plain_http: bool, client: httpx2.Client) -> None:
        host, _, self._path = name.partition("/")
        self.name = name
        self._login = login
        self._client = client
        self._base = f"{'http' if plain_http else 'https'}://{_ALIASES.get(host, host)}/v2/{self._path}"
        self._authorization: dict[str, str] = {}
        self._lock = threading.Lock()

    def manifest(self, reference: str) -> Manifest:
        """By tag or digest. Raises :class:`.errors.RevisionNotFound`; a digest is checked."""
        headers = {"Accept": ", ".join((*_INDEX_TYPES, *_MANIFEST_TYPES))}
        with self._open(f"/manifests/{reference}", headers) as response:
            raw = response.read()
            media_type = response.headers.get("content-type", "").partition(";")[0]
        digest = f"sha256:{hashlib.sha256(raw).hexdigest()}"
        if reference.startswith("sha256:") and digest != reference:
            raise ChecksumMismatch(
                f"oci://{self.name}: the manifest is not the one named {reference}: is a proxy changing it?"
            )
        if len(raw) > _MANIFEST_LIMIT:
            raise InvalidCheckpoint(f"oci://{self.name}: a manifest of {len(raw)} bytes is none")
        try:
            content = json.loads(raw)
        except ValueError as error:
            raise SourceUnreachable(
                f"oci://{self.name}: no registry's answer: {error}. Check the address and the proxy"
            ) from error
        if not isinstance(content, dict):
            raise InvalidCheckpoint(f"oci://{self.name}: the manifest holds no JSON object")
        return Manifest(digest, str(content.get("mediaType") or media_type), content)

    def blob(self, digest: str, size: int, start: int = 0) -> Iterator[bytes]:
        """The content from byte ``start`` on. A connection that breaks is taken up where it broke; the caller checks
        the digest."""
        done, idle = start, 0
        while done < size:
            before = done
            try:
                for piece in self._rest(digest, done):
                    done += len(piece)
                    yield piece
                self._must_end(digest, done, size)
            except (SourceUnreachable, SourceError) as error:
                idle = 0 if done > before else idle + 1
                if idle >= _IDLE_ATTEMPTS:
                    raise
                _log.warning("%s broke at byte %d of %d, going on: %s", digest, done, size, error)

    def _rest(self, digest: str, start: int) -> Iterator[bytes]:
        """One attempt, as far as it gets."""
        # Identity, since ranges count the bytes of the blob itself.
        headers = {"Accept-Encoding": "identity", **({"Range": f"bytes={start}-"} if start else {})}
        with self._open(f"/blobs/{digest}", headers) as response:
            skip = start if response.status_code == httpx2.codes.OK else 0  # a registry without ranges
            for piece in response.iter_bytes():
                fresh = piece[skip:]
                skip = max(0, skip - len(piece))
                if fresh:
                    yield fresh

    def _must_end(self, digest: str, done: int, size: int) -> None:
        if done < size:
            raise SourceUnreachable(f"oci://{self.name}: blob {digest} ended at byte {done} of {size}")

    @contextmanager
    def _open(self, path: str, headers: Mapping[str, str]) -> Iterator[httpx2.Response]:
        """A good answer, authenticated as the registry asks; errors as ours."""
        with self._explained():
            response = self._send(path, headers)
            if response.status_code == httpx2.codes.UNAUTHORIZED:
                response.close()
                self._authenticate(response.headers.get("www-authenticate", ""))
                response = self._send(path, headers)
            try:
                if response.status_code >= httpx2.codes.BAD_REQUEST:
                    raise self._http_error(response, path)
                yield response
            finally:
                response.close()

    def _send(self, path: str, headers: Mapping[str, str]) -> httpx2.Response:
        request = self._client.build_request(
            "GET", self._base + path, headers={**headers, **self._authorization}, timeout=_TIMEOUT
        )
        # A redirect leads to storage on another host; the client keeps the authorization for this one.
        return self._client.send(request, stream=True, follow_redirects=True)

    def _authenticate(self, challenge: str) -> None:
        """Answer a ``WWW-Authenticate``: basic, or a token from the named service."""
        kind, _, rest = challenge.partition(" ")
        with self._lock:
            if kind.lower() == "basic":
                self._authorization = self._login.header()
                return
            asked = dict(_CHALLENGE.findall(rest))
            if kind.lower() != "bearer" or "realm" not in asked:
                raise SourceUnreachable(
                    f"oci://{self.name}: the registry wants an authentication that is not known: {kind}"
                )
            wanted = {"scope": asked.get("scope") or f"repository:{self._path}:pull"}
            service = {"service": asked["service"]} if "service" in asked else {}
            answer = self._client.get(
                asked["realm"], params={**service, **wanted}, headers=self._login.header(), timeout=_TIMEOUT
            )
            if answer.status_code >= httpx2.codes.BAD_REQUEST:
                raise self._http_error(answer, "token")
            said = answer.json()
            self._authorization = {"Authorization": f"Bearer {said.get('token') or said.get('access_token') or ''}"}

    def _http_error(self, response: httpx2.Response, path: str) -> WeightsError:
        status, what = response.status_code, f"oci://{self.name}"
        if status in {httpx2.codes.UNAUTHORIZED, httpx2.codes.FORBIDDEN}:
            whose = f"the login of {self._login.user!r}" if self._login.user else "no login"
            return AuthenticationFailed(
                f"{what}: the registry refuses {whose} ({status}): put a login for it into the Secret of"
                " credentialsSecretRef (type kubernetes.io/dockerconfigjson, or keys OCI_USERNAME and OCI_PASSWORD)"
            )
        if status == httpx2.codes.NOT_FOUND:
            return RevisionNotFound(f"{what} has no {path.removeprefix('/')}: check repository, tag and digest")
        return SourceError(f"{what}: the registry answered {status} for {path}")

    @contextmanager
    def _explained(self) -> Iterator[None]:
        try:
            yield
        except httpx2.HTTPError as error:
            raise SourceUnreachable(
                f"oci://{self.name}: the registry cannot be reached ({error or type(error).__name__}): check the"
                " address, the proxy, the CA bundle and the network policy"
            ) from error
        except ValueError as error:  # a token service's answer that is not JSON
            raise SourceUnreachable(f"oci://{self.name}: no registry's answer ({error}): check the proxy") from error


def docker_login(config: bytes, registry: str) -> Login:
    """The login for a registry in a Docker ``config.json``; :class:`ValueError` when it cannot be read."""
    auths = json.loads(config).get("auths") or {}
    for name, entry in auths.items():
        host = re.sub("^https?://", "", name).partition("/")[0]
        if _ALIASES.get(host, host) != _ALIASES.get(registry, registry):
            continue
        user, password = str(entry.get("username") or ""), str(entry.get("password") or "")
        if not user and entry.get("auth"):
            user, _, password = base64.b64decode(entry["auth"]).decode().partition(":")
        return Login(user, password)
    return Login()
