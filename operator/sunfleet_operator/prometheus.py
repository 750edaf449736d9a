"""Instant queries to a Prometheus, or to what speaks its API (Thanos, Mimir, VictoriaMetrics), over HTTP.

Every doubt is an error, so that nobody scales in on half an answer::

    MetricsError
     |-- UnreachableError   no answer in time, TLS, DNS
     |-- RefusedQueryError  the server says no: credentials, tenant, a query that it does not understand
     +-- BadAnswerError     an answer that is no vector, or only a part of one
"""

from __future__ import annotations

import asyncio
import json
import ssl
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import aiohttp

from sunfleet_operator.promql import Sample
from sunfleet_operator.settings import PrometheusSettings

_LARGEST_ANSWER = 32 << 20  # bytes; a sample takes about 150


class MetricsError(Exception):
    """The message says what was asked of whom, and what came back; never a credential."""


class UnreachableError(MetricsError):
    pass


class RefusedQueryError(MetricsError):
    pass


class BadAnswerError(MetricsError):
    pass


class Prometheus:
    """One HTTP session. ``close`` it."""

    def __init__(self, settings: PrometheusSettings) -> None:
        self._settings = settings
        self._url = settings.url.rstrip("/") + "/api/v1/query"
        self._timeout = aiohttp.ClientTimeout(total=settings.timeout_seconds)
        self._session: aiohttp.ClientSession | None = None

    async def close(self) -> None:
        if self._session is not None:
            await self._session.close()

    async def query(self, text: str) -> Sequence[Sample]:
        """The series of one instant query, now by the server's clock; :class:`MetricsError` in every doubt."""
        try:
            session = self._opened()
            headers = await asyncio.to_thread(self._headers)  # the token may have been rotated
            form = {"query": text, "timeout": f"{self._settings.timeout_seconds:g}s", "partial_response": "false"}
            async with session.post(self._url, data=form, headers=headers, allow_redirects=False) as answer:
                body = await answer.content.read(_LARGEST_ANSWER + 1)
                return _vector(text, answer.status, body)
        except (TimeoutError, aiohttp.ClientError, OSError, ssl.SSLError) as error:
            raise UnreachableError(f"{self._url}: {str(error) or type(error).__name__}") from error

    async def ask(self, queries: Mapping[str, str]) -> dict[str, Sequence[Sample]]:
        """Several queries at once; of several errors the first query's is raised, so that it is always the same."""
        answers = await asyncio.gather(*(self.query(text) for text in queries.values()), return_exceptions=True)
        found: dict[str, Sequence[Sample]] = {}
        for name, answer in zip(queries, answers, strict=True):
            if isinstance(answer, BaseException):
                raise answer
            found[name] = answer
        return found

    def _opened(self) -> aiohttp.ClientSession:
        if self._session is None:
            connector = aiohttp.TCPConnector(ssl=_tls(self._settings), limit=8)
            self._session = aiohttp.ClientSession(connector=connector, timeout=self._timeout, trust_env=False)
        return self._session

    def _headers(self) -> dict[str, str]:
        headers = dict(self._settings.headers)
        if self._settings.bearer_token_file:
            token = Path(self._settings.bearer_token_file).read_text().strip()
            headers["Authorization"] = f"Bearer {token}"
        return headers


def _tls(settings: PrometheusSettings) -> ssl.SSLContext:
    """The system's authorities, or those of ``ca_file`` alone; a client certificate where one is given."""
    context = ssl.create_default_context(cafile=settings.ca_file or None)
    if settings.client_cert_file:
        context.load_cert_chain(settings.client_cert_file, settings.client_key_file or None)
    return context


def _vector(query: str, status: int, body: bytes) -> Sequence[Sample]:
    if len(body) > _LARGEST_ANSWER:
        raise BadAnswerError(f"{query}: the answer is larger than {_LARGEST_ANSWER} bytes")
    try:
        answer = json.loads(body)
    except ValueError:
        answer = None
    if status != 200 or not isinstance(answer, dict) or answer.get("status") != "success":
        said = answer.get("error") if isinstance(answer, dict) else body[:200].decode(errors="replace")
        raise RefusedQueryError(f"{query}: {status} {said}")
    if answer.get("warnings"):
        raise BadAnswerError(f"{query}: only a part of the answer: {'; '.join(map(str, answer['warnings']))}")
    try:
        data = answer["data"]
        if data["resultType"] != "vector":
            raise BadAnswerError(f"{query}: a {data['resultType']}, expected a vector")
        return [_sample(entry) for entry in data["result"]]
    except (KeyError, TypeError, ValueError, IndexError) as error:
        raise BadAnswerError(f"{query}: the answer has another form than Prometheus' API: {error!r}") from error


def _sample(entry: Mapping[str, Any]) -> Sample:
    return Sample({str(name): str(value) for name, value in entry["metric"].items()}, float(entry["value"][1]))
