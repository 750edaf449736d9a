"""The API keys of clients: read from Secrets or from the fleet's file, looked up by what a request shows.

Only SHA-256 digests are kept. A fast hash is right here: keys are 256 random bits, which nobody can guess at any speed,
so the salt and the slowness that passwords need would buy nothing. The table is searched by the first bytes of a
digest, and what is found there is compared in constant time.
"""

from __future__ import annotations

import base64
import binascii
import hmac
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from hashlib import sha256
from typing import Any, Final

from sunfleet_router.errors import UnauthenticatedError, UnavailableError
from sunfleet_router.fleet.snapshot import Rate
from sunfleet_router.keys.key import ANYONE, Key

_PREFIX: Final = 8  # bytes
_DIGEST: Final = re.compile(r"[0-9a-f]{64}")
_FIELDS: Final = frozenset({"sha256", "tasks", "maxInFlight", "requestsPerMinute", "tokensPerMinute", "priority"})


class KeyFormatError(ValueError):
    """A Secret or an entry that is no key; the text says what is wrong and holds nothing secret."""


@dataclass(frozen=True, slots=True)
class StoredKey:
    """A key and the digests of what its holder may show: several while it is being replaced."""

    key: Key
    digests: tuple[bytes, ...]


class KeyRing:
    """Those who may come in. ``required=False``: everybody; the keys are not asked for."""

    def __init__(self, *, required: bool) -> None:
        self.required = required
        self.known = not required
        self.names: frozenset[str] = frozenset()
        self._keys: dict[bytes, list[tuple[bytes, Key]]] = {}
        self._listeners: list[Callable[[frozenset[str]], None]] = []

    def on_change(self, listener: Callable[[frozenset[str]], None]) -> None:
        """``listener`` is told the names of all keys after each change."""
        self._listeners.append(listener)

    def replace(self, stored: Iterable[StoredKey]) -> None:
        """From now on exactly these. Requests that have begun go on."""
        keys: dict[bytes, list[tuple[bytes, Key]]] = {}
        names: set[str] = set()
        for one in stored:
            names.add(one.key.name)
            for digest in one.digests:
                keys.setdefault(digest[:_PREFIX], []).append((digest, one.key))
        self._keys, self.names, self.known = keys, frozenset(names), True
        for listener in self._listeners:
            listener(self.names)

    def identify(self, headers: Mapping[bytes, bytes]) -> Key:
        """Whose request this is, by ``authorization: Bearer`` or ``x-api-key`` (names in lower case).

        Raises :class:`UnauthenticatedError`, and :class:`UnavailableError` while nobody can know.
        """
        if not self.required:
            return ANYONE
        if not self.known:
            raise UnavailableError(
                "The router has not seen its API keys yet; try again in a moment.", code="not_synced"
            )
        shown = _shown(headers)
        if not shown:
            raise UnauthenticatedError("An API key is needed: send it as 'Authorization: Bearer KEY' or 'x-api-key'.")
        digest = sha256(shown).digest()
        for stored, key in self._keys.get(digest[:_PREFIX], ()):
            if hmac.compare_digest(stored, digest):
                return key
        raise UnauthenticatedError("This API key is not known here. Check it for missing characters.")


def of_secret(document: Mapping[str, Any]) -> StoredKey:
    """A Secret of the API server as a key named as it; raises :class:`KeyFormatError`."""
    data = document.get("data") or {}
    try:
        fields = {name: base64.b64decode(value, validate=True).decode().strip() for name, value in data.items()}
    except (binascii.Error, UnicodeDecodeError, TypeError):
        raise KeyFormatError("a value is not text") from None
    return of_fields(str(document["metadata"]["name"]), fields)


def of_fields(name: str, fields: Mapping[str, str]) -> StoredKey:
    """A key from its fields, as they stand in a Secret: all text, lists separated by commas or blanks."""
    unknown = sorted(set(fields) - _FIELDS)
    if unknown:
        raise KeyFormatError(f"unknown field {', '.join(unknown)}; known are {', '.join(sorted(_FIELDS))}")
    digests = _words(fields.get("sha256", ""))
    if not digests or not all(_DIGEST.fullmatch(digest) for digest in digests):
        raise KeyFormatError("sha256 must be the key's SHA-256 in 64 lower-case hex digits")
    tasks = tuple(_words(fields.get("tasks", "")))
    if not tasks:
        raise KeyFormatError("tasks must name at least one model or pattern; '*' allows all")
    rate = Rate(_count(fields, "requestsPerMinute"), _count(fields, "tokensPerMinute"))
    key = Key(name, tasks, _count(fields, "maxInFlight"), rate, _integer(fields, "priority") or 0)
    return StoredKey(key, tuple(bytes.fromhex(digest) for digest in digests))


def _shown(headers: Mapping[bytes, bytes]) -> bytes:
    scheme, _, token = headers.get(b"authorization", b"").partition(b" ")
    if scheme.lower() == b"bearer":
        return token.strip()
    return headers.get(b"x-api-key", b"").strip()


def _words(text: str) -> list[str]:
    return text.replace(",", " ").split()


def _integer(fields: Mapping[str, str], name: str) -> int | None:
    text = fields.get(name, "")
    if not text:
        return None
    try:
        return int(text)
    except ValueError:
        raise KeyFormatError(f"{name} must be a whole number") from None


def _count(fields: Mapping[str, str], name: str) -> int | None:
    value = _integer(fields, name)
    if value is not None and value < 1:
        raise KeyFormatError(f"{name} must be at least 1; leave it out for no limit")
    return value
