"""Tells when a watch begins anew. kopf hands over the objects of its listing one by one, and nothing where there is
none; so the requests themselves are listened to.

A listing is a GET of a whole collection; the watch that follows goes on from there, also after its connection broke.
Only where the API server does not know any more what happened since (410), kopf lists again.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final

import aiohttp
import kopf
from yarl import URL

from sunfleet_operator.kinds import ALL
from sunfleet_operator.memory import WATCHED

Begun = Callable[[str, str], None]  # kind, and the namespace whose watch it is; empty: of all
# Of a request that is no listing's first: a watch, or another page.
_OTHERS: Final = frozenset({"watch", "continue"})
_PATHS: Final[Mapping[str, str]] = {each.path(): each.kind for each in ALL if each.kind in WATCHED}


@dataclass(frozen=True, kw_only=True)
class Session(kopf.AiohttpSession):
    """Equal where the credentials are, as kopf's own are: credentials that were refused are not tried for ever."""

    aiohttp_session: aiohttp.ClientSession = field(compare=False)
    info: kopf.ConnectionInfo


def listed(method: str, url: URL) -> tuple[str, str] | None:
    """Kind and namespace of a listing that begins with this request. Pure."""
    if method != "GET" or _OTHERS & url.query.keys():
        return None
    head, spaces, tail = url.path.partition("/namespaces/")
    namespace, _, plural = tail.partition("/")
    path = f"{head}/{plural}" if spaces else url.path
    return (_PATHS[path], namespace) if path in _PATHS else None


def session(info: kopf.ConnectionInfo, begun: Begun) -> Session:
    """kopf's own session for ``info``, which says when a listing was answered: before any object of it is told."""
    tracing = aiohttp.TraceConfig()

    async def answered(_: aiohttp.ClientSession, __: object, params: aiohttp.TraceRequestEndParams) -> None:
        found = listed(params.method, params.url)
        if found is not None:
            begun(*found)

    tracing.on_request_end.append(answered)
    made = aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(limit=0, ssl=info.as_ssl_context()),
        headers=info.as_http_headers(),
        proxy=info.proxy_url,
        trust_env=info.trust_env,
        trace_configs=[tracing],
    )
    return Session(
        aiohttp_session=made,
        info=info,
        server=info.server,
        priority=info.priority,
        default_namespace=info.default_namespace,
        expiration=info.expiration,
    )
