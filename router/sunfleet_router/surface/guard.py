"""Nobody passes without an API key where keys are asked for: in front of every path but the probes.

It stands before the application, so that a route that is added later cannot forget it; what it found out is in the
request's scope for those behind it.
"""

from __future__ import annotations

import uuid
from collections.abc import Awaitable
from typing import Final

from prometheus_client import Counter
from starlette.types import ASGIApp, Receive, Scope, Send

from sunfleet_router.dialects.translating import worded
from sunfleet_router.errors import UnauthenticatedError, UnavailableError
from sunfleet_router.keys.key import Key
from sunfleet_router.keys.keyring import KeyRing
from sunfleet_router.serving.reply import ClientReply

_SCOPE_KEY: Final = "sunfleet.key"
_SCOPE_HEADERS: Final = "sunfleet.headers"
_OPEN: Final = frozenset({"/livez", "/readyz"})


class Guard:
    """An ASGI application around another."""

    def __init__(self, app: ASGIApp, ring: KeyRing, outcomes: Counter) -> None:
        self._app = app
        self._ring = ring
        self._outcomes = outcomes  # by task and code

    def __call__(self, scope: Scope, receive: Receive, send: Send) -> Awaitable[None]:
        if scope["type"] == "http" and scope["path"] not in _OPEN:
            scope[_SCOPE_HEADERS] = headers = dict(scope["headers"])
            try:
                scope[_SCOPE_KEY] = self._ring.identify(headers)
            except (UnauthenticatedError, UnavailableError) as error:
                self._outcomes.labels("", error.code).inc()
                # The body is not read: a connection whose rest is unknown is of no more use.
                return ClientReply(worded(send, scope["path"]), uuid.uuid4().hex, closing=True).error(error)
        return self._app(scope, receive, send)  # no coroutine around it: each is resumed whenever the last one is


def headers_of(scope: Scope) -> dict[bytes, bytes]:
    """A request's headers by name, in lower case."""
    headers: dict[bytes, bytes] = scope[_SCOPE_HEADERS]
    return headers


def key_of(scope: Scope) -> Key:
    """Whose request this is; the guard, which has looked, stands before every route that asks."""
    key: Key = scope[_SCOPE_KEY]
    return key
