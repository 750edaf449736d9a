"""TLS to clients and to engines, and the key that engines ask for: from mounted files, read again when they change.

A kubelet replaces the files of a mounted Secret in place, and cert-manager renews certificates that way, so each is
looked at now and then: new connections use what stands there, and those that are open go on.
"""

from __future__ import annotations

import asyncio
import logging
import ssl
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Final

from sunfleet_router.settings import ConfigError, RouterSettings

logger = logging.getLogger(__name__)

_LOOK_SECONDS: Final = 10.0

Stamp = tuple[tuple[int, int], ...]


class Credentials:
    """One per process. ``to_clients`` and ``to_engines`` are ``None`` where TLS is off; the key is "" where none is.

    Raises :class:`ConfigError` for files that cannot be used at the start; later the last good ones stay.
    """

    def __init__(self, settings: RouterSettings) -> None:
        self.to_clients: ssl.SSLContext | None = None
        self.to_engines: ssl.SSLContext | None = None
        self.engine_key = ""
        self.engine_name = settings.engine_server_name
        self._settings = settings
        self._watched: list[_Watched] = []
        self._of_clients()
        self._of_engines()

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            await asyncio.sleep(_LOOK_SECONDS)
            self.look()

    def look(self) -> None:
        """Read again what has changed."""
        for watched in self._watched:
            watched.look()

    def _of_clients(self) -> None:
        certificate, key = self._settings.tls_cert_file, self._settings.tls_key_file
        if certificate is None and key is None:
            return
        if certificate is None or key is None:
            raise ConfigError("SUNFLEET_ROUTER_TLS_CERT_FILE and SUNFLEET_ROUTER_TLS_KEY_FILE need each other.")
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        context.set_alpn_protocols(["http/1.1"])
        self._watch("TLS to clients", (certificate, key), lambda: context.load_cert_chain(certificate, key))
        self.to_clients = context

    def _of_engines(self) -> None:
        authority, key = self._settings.engine_ca_file, self._settings.engine_api_key_file
        if authority is not None:
            context = ssl.create_default_context()
            self._watch("TLS to engines", (authority,), lambda: context.load_verify_locations(authority))
            self.to_engines = context
        if key is not None:
            self._watch("the engines' API key", (key,), lambda: self._read_key(key))

    def _read_key(self, path: Path) -> None:
        key = path.read_text(encoding="ascii").strip()
        if not key or not key.isprintable() or " " in key:
            raise ValueError("it must hold one word")
        self.engine_key = key

    def _watch(self, name: str, paths: tuple[Path, ...], read: Callable[[], None]) -> None:
        self._watched.append(_Watched(name, paths, read))


class _Watched:
    """Files that belong together, and how to use them."""

    def __init__(self, name: str, paths: Iterable[Path], read: Callable[[], None]) -> None:
        self._name = name
        self._paths = tuple(paths)
        self._read = read
        try:
            self._stamp = self._stamp_now()
            read()
        except (OSError, ValueError) as error:
            raise ConfigError(f"{name}: {', '.join(map(str, self._paths))} cannot be used: {error}") from error

    def look(self) -> None:
        try:
            stamp = self._stamp_now()
            if stamp == self._stamp:
                return
            self._read()
        except (OSError, ValueError) as error:
            logger.warning("%s: the changed files cannot be used, the last ones stay: %s", self._name, error)
            return
        self._stamp = stamp
        logger.info("%s: changed files are in use", self._name)

    def _stamp_now(self) -> Stamp:
        found = [path.stat() for path in self._paths]
        return tuple((one.st_mtime_ns, one.st_ino) for one in found)
