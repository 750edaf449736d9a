"""Requests and watches against the bench's API server, many at a time."""

from __future__ import annotations

import asyncio
import base64
import json
import ssl
import tempfile
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any, Self

import aiohttp
import yaml

Document = dict[str, Any]
_CONNECTIONS = 64
_MERGE = "application/merge-patch+json"


class Api:
    """The administrator's requests; raises :class:`aiohttp.ClientResponseError` for a refusal."""

    def __init__(self, server: str, tls: ssl.SSLContext) -> None:
        limit = aiohttp.TCPConnector(ssl=tls, limit=_CONNECTIONS)
        self._session = aiohttp.ClientSession(server, connector=limit, raise_for_status=True, trust_env=False)

    @classmethod
    def of(cls, kubeconfig: Path) -> Self:
        """With the client certificate that a kubeconfig embeds."""
        config = yaml.safe_load(kubeconfig.read_text())
        cluster, user = config["clusters"][0]["cluster"], config["users"][0]["user"]
        authority = base64.b64decode(cluster["certificate-authority-data"]).decode()
        tls = ssl.create_default_context(cadata=authority)
        with tempfile.NamedTemporaryFile("wb") as pair:  # the ssl module reads certificates from files only
            for part in ("client-certificate-data", "client-key-data"):
                pair.write(base64.b64decode(user[part]))
            pair.flush()
            tls.load_cert_chain(pair.name)
        return cls(cluster["server"], tls)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._session.close()

    async def create(self, path: str, document: Mapping[str, Any]) -> Document:
        """POST."""
        async with self._session.post(path, json=document) as answer:
            return dict(await answer.json())

    async def merge(self, path: str, patch: Mapping[str, Any]) -> Document:
        """JSON merge patch."""
        async with self._session.patch(path, data=json.dumps(patch), headers={"content-type": _MERGE}) as answer:
            return dict(await answer.json())

    async def clear(self, path: str) -> None:
        """DELETE of a whole collection; its objects may take their time."""
        async with self._session.delete(path) as answer:
            await answer.read()

    async def list(self, path: str) -> list[Document]:
        """The items of a collection."""
        async with self._session.get(path) as answer:
            return list((await answer.json())["items"])

    async def text(self, path: str) -> str:
        """GET of something that is no object."""
        async with self._session.get(path) as answer:
            return await answer.text()

    async def watch(self, path: str) -> AsyncIterator[Document]:
        """Every object of a collection, now and whenever it changes, for ever; deletions are left out."""
        while True:
            query = {"watch": "1", "sendInitialEvents": "true", "resourceVersionMatch": "NotOlderThan"}
            query |= {"allowWatchBookmarks": "true", "timeoutSeconds": "600"}
            timeout = aiohttp.ClientTimeout(total=None)
            async with self._session.get(path, params=query, timeout=timeout, read_bufsize=1 << 22) as answer:
                async for line in answer.content:
                    event = json.loads(line)
                    if event["type"] in {"ADDED", "MODIFIED"}:
                        yield event["object"]
            await asyncio.sleep(0.1)
