"""Raw ASGI applications of the routes that ask engines: from a client's body to an answer, and errors to the client."""

from __future__ import annotations

import logging
import random
import re
import time
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Mapping
from dataclasses import dataclass

from starlette.types import Receive, Scope, Send

from sunfleet_router.errors import ClientGoneError, InternalError, RouterError
from sunfleet_router.fleet.snapshot import Task
from sunfleet_router.keys.key import Key
from sunfleet_router.serving.flow import Flow
from sunfleet_router.serving.reply import ClientReply
from sunfleet_router.surface.desk import Desk
from sunfleet_router.surface.guard import headers_of, key_of
from sunfleet_router.surface.presence import Presence, read_body, take_body
from sunfleet_router.telemetry.logs import REQUEST
from sunfleet_router.telemetry.metrics import Metrics

logger = logging.getLogger(__name__)

# Engines make their own request ids from it, and it ends up in logs: plain and short, or we make another.
_REQUEST_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:-]{0,127}")
# The only headers of a client that reach an engine, besides the request id.
_FORWARDED = (b"traceparent", b"tracestate")


@dataclass(frozen=True, slots=True)
class Serving:
    """What all doors share."""

    flow: Flow
    metrics: Metrics
    desk: Desk
    max_body: int  # bytes


@dataclass(slots=True)
class Caller:
    """One request at a door. ``headers`` are those for engines; ``task`` is noted as soon as it is known."""

    key: Key
    request_id: str
    headers: dict[str, str]
    send: Send
    reply: ClientReply
    task: Task | None = None


class Door(ABC):
    """One route: reads the body, watches the client, and answers whatever goes wrong."""

    def __init__(self, serving: Serving) -> None:
        self._serving = serving

    @abstractmethod
    def serve(self, body: bytes, caller: Caller) -> Awaitable[None]:
        """Answer one request; raises what the client is to be told."""

    def caller(self, send: Send, key: Key, request_id: str, headers: dict[str, str]) -> Caller:
        """Open a request; a door that answers in another form puts its own ``send`` in between."""
        reply = ClientReply(send, request_id, closing=self._serving.desk.draining)
        return Caller(key, request_id, headers, send, reply)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        serving, headers = self._serving, headers_of(scope)
        request_id = _request_id(headers)
        REQUEST.set(request_id)
        caller = self.caller(send, key_of(scope), request_id, _for_engines(headers, request_id))
        code, began = "ok", 0.0
        try:
            body = take_body(receive, serving.max_body)
            if body is None:
                body = await read_body(receive, serving.max_body, _announced(headers))
            began = time.monotonic()
            with Presence(receive) as presence:
                serving.desk.enter(presence, caller.reply)
                try:
                    await self.serve(body, caller)
                finally:
                    serving.desk.leave(presence)
        except ClientGoneError as gone:
            code = gone.code
            caller.reply.abandon()
        except RouterError as error:
            code = error.label
            _log(error, caller)
            await caller.reply.error(error)
        except Exception:  # whatever a bug raises, the client gets an error object and no stack trace
            code = InternalError.code
            logger.exception("request %s failed", request_id)
            await caller.reply.error(InternalError())
        finally:
            task = caller.task.name if caller.task else ""
            serving.metrics.finished(task, caller.key.name, code, time.monotonic() - began)


def _request_id(headers: Mapping[bytes, bytes]) -> str:
    given = headers.get(b"x-request-id")
    if given is not None and _REQUEST_ID.fullmatch(name := given.decode("latin-1")):
        return name
    return f"{random.getrandbits(128):032x}"


def _announced(headers: Mapping[bytes, bytes]) -> int | None:
    length = headers.get(b"content-length", b"")
    return int(length) if length.isdigit() else None


def _for_engines(headers: Mapping[bytes, bytes], request_id: str) -> dict[str, str]:
    found = {"x-request-id": request_id}
    for name in _FORWARDED:
        if name in headers:
            found[name.decode()] = headers[name].decode("latin-1")
    return found


def _log(error: RouterError, caller: Caller) -> None:
    level = logging.WARNING if error.status >= 500 else logging.DEBUG
    task = caller.task.name if caller.task else ""
    logger.log(level, "request %s of %r: %s %s", caller.request_id, task, error.code, error.__cause__ or "")
