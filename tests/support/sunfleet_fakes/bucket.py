"""A fake object store: the XML protocol that S3 and Google Cloud Storage share, as far as reading goes.

Signatures are not checked; ``key`` is the access key, or the bearer token, that opens it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from xml.sax.saxutils import escape

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from sunfleet_fakes.faults import Faults
from sunfleet_fakes.serving import Serving

_XML = "application/xml"


@dataclass
class Buckets(Faults):
    """Objects by bucket and key."""

    objects: dict[str, dict[str, bytes]] = field(default_factory=dict)
    key: str = ""
    after_list: Mapping[str, bytes] = field(default_factory=dict)  # objects that somebody overwrites after a listing

    async def list(self, request: Request) -> Response:
        """``GET /BUCKET?list-type=2&prefix=...&delimiter=/``."""
        bucket = request.path_params["bucket"]
        if refusal := self._refusal(request, bucket):
            return refusal
        prefix, found = request.query_params.get("prefix", ""), self.objects[bucket]
        entries = "".join(
            f"<Contents><Key>{escape(key)}</Key><LastModified>2026-01-01T00:00:00.000Z</LastModified>"
            f"<ETag>{escape(etag(content))}</ETag><Size>{len(content)}</Size></Contents>"
            for key, content in sorted(found.items())
            if key.startswith(prefix) and "/" not in key.removeprefix(prefix)
        )
        answer = f"<ListBucketResult><Name>{bucket}</Name><IsTruncated>false</IsTruncated>{entries}</ListBucketResult>"
        found.update(self.after_list)
        return Response(answer, media_type=_XML)

    async def get(self, request: Request) -> Response:
        """``GET /BUCKET/KEY``."""
        bucket, key = request.path_params["bucket"], request.path_params["key"]
        if refusal := self._refusal(request, bucket):
            return refusal
        content = self.objects[bucket].get(key)
        if content is None:
            return _error(404, "NoSuchKey")
        if request.headers.get("if-match", etag(content)) != etag(content):
            return _error(412, "PreconditionFailed")
        name = key.rpartition("/")[2]
        moment = {"Last-Modified": "Thu, 01 Jan 2026 00:00:00 GMT"}
        return self.content(request, name, content, {"ETag": etag(content), **moment})

    def _refusal(self, request: Request, bucket: str) -> Response | None:
        if self.key and self.key not in request.headers.get("authorization", ""):
            return _error(403, "AccessDenied")
        return None if bucket in self.objects else _error(404, "NoSuchBucket")


def etag(content: bytes) -> str:
    """As of an object that was written in one piece."""
    return f'"{hashlib.md5(content, usedforsecurity=False).hexdigest()}"'


def _error(status: int, code: str) -> Response:
    return Response(f"<Error><Code>{code}</Code><Message>{code}</Message></Error>", status, media_type=_XML)


class FakeBuckets(Serving):
    """A store on a free port. ``state`` is live."""

    def __init__(self, certificate: Path | None = None) -> None:
        self.state = Buckets()
        methods = ["GET", "HEAD"]
        routes = [
            Route("/{bucket}", self.state.told(self.state.list), methods=methods),
            Route("/{bucket}/{key:path}", self.state.told(self.state.get), methods=methods),
        ]
        super().__init__(Starlette(routes=routes), certificate)

    def put(self, bucket: str, folder: str, files: Mapping[str, bytes]) -> None:
        """Upload files below a prefix."""
        known = self.state.objects.setdefault(bucket, {})
        known |= {f"{folder}/{name}": content for name, content in files.items()}
