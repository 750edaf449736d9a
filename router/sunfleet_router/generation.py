"""One generating route as a raw ASGI application: from a client's request to the flow, and its errors to the client."""

from __future__ import annotations

import logging
import re
import time
import uuid
from dataclasses import dataclass

from starlette.types import Receive, Scope, Send

from sunfleet_router import clientbody
from sunfleet_router.clientbody import Ask, Kind
from sunfleet_router.desk import Desk
from sunfleet_router.dialects import Dialect
from sunfleet_router.dialects.translating import Translating
from sunfleet_router.errors import ClientGoneError, InternalError, RouterError
from sunfleet_router.fanout import Fanout
from sunfleet_router.flow import Flow
from sunfleet_router.guard import key_of
from sunfleet_router.key import Key
from sunfleet_router.logs import REQUEST
from sunfleet_router.metrics import Metrics
from sunfleet_router.presence import Presence, read_body
from sunfleet_router.reply import ClientReply
from sunfleet_router.snapshot import Task

logger = logging.getLogger(__name__)

# Engines make their own request ids from it, and it ends up in logs: plain and short, or we make another.
_REQUEST_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:-]{0,127}")
# The only headers of a client that reach an engine, besides the request id.
_FORWARDED = ("traceparent", "tracestate")


@dataclass(frozen=True, slots=True)
class Serving:
    """What the generating routes share."""

    flow: Flow
    fanout: Fanout
    metrics: Metrics
    desk: Desk
    max_body: int  # bytes


class Generation:
    """The route of one kind of request; ``dialect``: of another API, whose requests are served as chats."""

    def __init__(self, kind: Kind, serving: Serving, dialect: Dialect | None = None) -> None:
        self._kind = kind
        self._serving = serving
        self._dialect = dialect

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        serving, headers = self._serving, headers_of(scope)
        request_id = request_id_of(headers)
        REQUEST.set(request_id)
        translating = Translating(send, self._dialect) if self._dialect else None
        out = translating or send
        reply = ClientReply(out, request_id, closing=serving.desk.draining)
        key, task, code, began = key_of(scope), "", "ok", time.monotonic()
        try:
            body = await read_body(receive, serving.max_body, announced(headers))
            began = time.monotonic()
            ask = translating.read(body, request_id) if translating else clientbody.parse(self._kind, body)
            known = serving.flow.task(ask.model, key)
            task = known.name
            with Presence(receive) as presence:
                serving.desk.enter(presence, reply)
                try:
                    await self._answer(ask, known, key, reply, out, request_id, for_engines(headers, request_id))
                finally:
                    serving.desk.leave(presence)
        except ClientGoneError as gone:
            code = gone.code
            reply.abandon()
        except RouterError as error:
            code = error.label
            _log(error, request_id, task)
            await reply.error(error)
        except Exception:  # whatever a bug raises, the client gets an error object and no stack trace
            code = InternalError.code
            logger.exception("request %s failed", request_id)
            await reply.error(InternalError())
        finally:
            serving.metrics.finished(task, key.name, code)
            if task:
                serving.metrics.request_seconds.labels(task).observe(time.monotonic() - began)

    async def _answer(
        self, ask: Ask, task: Task, key: Key, reply: ClientReply, send: Send, request_id: str, headers: dict[str, str]
    ) -> None:
        flow = self._serving.flow
        with flow.enter(ask, task, key, headers) as visit:
            if ask.answers == 1:
                await flow.answer(ask, visit, reply, request_id, headers)
            else:
                await self._serving.fanout.answer(ask, visit, reply, send, request_id, headers)


def headers_of(scope: Scope) -> dict[str, str]:
    """By name, in lower case."""
    return {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]}


def request_id_of(headers: dict[str, str]) -> str:
    """The client's own if it is plain, else a new one."""
    given = headers.get("x-request-id", "")
    return given if _REQUEST_ID.fullmatch(given) else uuid.uuid4().hex


def announced(headers: dict[str, str]) -> int | None:
    """The body's size in bytes, if it is told."""
    length = headers.get("content-length", "")
    return int(length) if length.isdecimal() else None


def for_engines(headers: dict[str, str], request_id: str) -> dict[str, str]:
    """The headers of both legs."""
    forwarded = {name: headers[name] for name in _FORWARDED if name in headers}
    return {"x-request-id": request_id, **forwarded}


def _log(error: RouterError, request_id: str, task: str) -> None:
    level = logging.WARNING if error.status >= 500 else logging.DEBUG
    logger.log(level, "request %s of %r: %s %s", request_id, task, error.code, error.__cause__ or "")
