"""The outermost middleware: which routes exist on a pod and who may use them, refusal before its self-check has passed
and while it drains, and the count of requests in flight.

The engine's server has some sixty routes, among them ones that generate without a hand-over, change weights or LoRA
modules, run code on workers or reset caches. A pod denies what is not listed here.
"""

from __future__ import annotations

import asyncio
import hmac
import json
from collections.abc import Awaitable, Callable, Iterator, MutableMapping
from contextlib import contextmanager
from http import HTTPStatus
from typing import Any, Final

from sunfleet_api import wire
from sunfleet_worker.errors import DRAINING, NOT_READY, KeyMissingError, RequestError, ended_by_engine
from sunfleet_worker.frontend.standing import SELF_CHECK, Standing

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

READY_PATH: Final = "/sunfleet/readyz"
INFO_PATH: Final = "/sunfleet/info"

GENERATING: Final = frozenset({("POST", "/v1/chat/completions"), ("POST", "/v1/completions")})
ALLOWED: Final = GENERATING | {
    ("GET", "/v1/models"),
    ("POST", "/tokenize"),
    ("POST", "/detokenize"),
    ("GET", "/health"),
    ("GET", "/metrics"),
    ("GET", READY_PATH),
    ("GET", INFO_PATH),
    ("POST", wire.RELEASE_PATH),  # on prefill pods
    ("GET", wire.PROGRESS_PATH),  # on decode pods
}


# For kubelet and Prometheus, which show no key.
OPEN: Final = frozenset({("GET", "/health"), ("GET", "/metrics"), ("GET", READY_PATH)})


class NotServedError(RequestError):
    """The route, or what it is asked for, does not exist on a pod."""

    status = HTTPStatus.NOT_FOUND
    kind = "invalid_request_error"


class Traffic:
    """What the pod is doing for clients: requests in flight, and whether it still takes new ones."""

    def __init__(self) -> None:
        self.draining = False
        self.in_flight = 0
        self._idle = asyncio.Event()
        self._idle.set()

    @contextmanager
    def request(self) -> Iterator[None]:
        """Count one generating request for as long as its answer is being sent."""
        self.in_flight += 1
        self._idle.clear()
        try:
            yield
        finally:
            self.in_flight -= 1
            if not self.in_flight:
                self._idle.set()

    async def idle(self) -> None:
        """Return once no generating request is in flight."""
        await self._idle.wait()


class Gate:
    """ASGI middleware; must be the outermost one."""

    def __init__(self, app: App, *, traffic: Traffic, standing: Standing, key: str = "") -> None:
        """``key``: what callers must show as a bearer token; empty lets in whoever reaches the pod."""
        self._app = app
        self._key = key.encode()
        self._traffic = traffic
        self._standing = standing

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        refusal = None if scope["type"] == "lifespan" else self._refusal(scope)
        if refusal is not None:
            await _answer(send, refusal)
        elif (scope.get("method"), scope.get("path")) in GENERATING:
            with self._traffic.request():
                await self._app(scope, receive, send)
        else:
            await self._app(scope, receive, send)

    def _refusal(self, scope: Scope) -> RequestError | None:
        route = (scope.get("method", scope["type"]), scope["path"])
        if scope["type"] != "http" or route not in ALLOWED:
            return NotServedError(
                f"{route[0]} {route[1]} is not served by Sunfleet's engine pods.", code="route_not_served"
            )
        if self._key and route not in OPEN and SELF_CHECK not in scope and not self._shown(scope):
            return KeyMissingError(
                "This engine pod answers its fleet's router alone: show the fleet's key.", code="invalid_api_key"
            )
        if self._traffic.draining and route in GENERATING:
            return ended_by_engine(DRAINING)
        if route in GENERATING and not self._standing.proven and SELF_CHECK not in scope:
            return ended_by_engine(NOT_READY)
        return None

    def _shown(self, scope: Scope) -> bool:
        shown = dict(scope.get("headers") or ()).get(b"authorization", b"")
        scheme, _, key = shown.partition(b" ")
        return scheme.lower() == b"bearer" and hmac.compare_digest(key, self._key)


async def _answer(send: Send, error: RequestError) -> None:
    body = json.dumps(error.body()).encode()
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
    await send({"type": "http.response.start", "status": int(error.status), "headers": headers})
    await send({"type": "http.response.body", "body": body})
