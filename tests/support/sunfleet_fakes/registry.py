"""A fake OCI registry: manifests and blobs to read, tokens, blobs behind a redirect and with ranges."""

from __future__ import annotations

import base64
import gzip
import hashlib
import io
import json
import tarfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from sunfleet_fakes.faults import Faults, other_origin
from sunfleet_fakes.serving import Serving

Json = dict[str, Any]
Auth = Literal["", "basic", "bearer"]
MANIFEST = "application/vnd.oci.image.manifest.v1+json"
INDEX = "application/vnd.oci.image.index.v1+json"
TITLE = "org.opencontainers.image.title"
_TOKEN = "registry-token"
_LOGIN = "Basic " + base64.b64encode(b"robot:secret").decode()


def digest_of(content: bytes) -> str:
    return f"sha256:{hashlib.sha256(content).hexdigest()}"


@dataclass
class Registry(Faults):
    """Blobs and manifests by digest, tags by ``REPOSITORY:TAG``; ``auth``: what opens it is robot, secret."""

    blobs: dict[str, bytes] = field(default_factory=dict)
    manifests: dict[str, tuple[bytes, str]] = field(default_factory=dict)
    tags: dict[str, str] = field(default_factory=dict)
    auth: Auth = ""

    async def manifest(self, request: Request) -> Response:
        """``GET /v2/NAME/manifests/REFERENCE``."""
        if refusal := self._challenge(request):
            return refusal
        reference = request.path_params["reference"]
        digest = self.tags.get(f"{request.path_params['name']}:{reference}", reference)
        if digest not in self.manifests:
            return JSONResponse({"errors": [{"code": "MANIFEST_UNKNOWN"}]}, 404)
        raw, media_type = self.manifests[digest]
        return Response(raw, headers={"Content-Type": media_type, "Docker-Content-Digest": digest})

    async def blob(self, request: Request) -> Response:
        """``GET /v2/NAME/blobs/DIGEST``: a redirect to storage."""
        if refusal := self._challenge(request):
            return refusal
        where = f"{other_origin(request)}/storage/{request.path_params['digest']}"
        return Response(status_code=307, headers={"Location": where})

    async def storage(self, request: Request) -> Response:
        """Where the redirects lead; the registry's credentials have no business there."""
        digest = request.path_params["digest"]
        if request.headers.get("authorization"):
            return Response(status_code=400)
        if digest not in self.blobs:
            return Response(status_code=404)
        return self.content(request, digest, self.blobs[digest], {})

    async def token(self, request: Request) -> Response:
        """The token service."""
        if request.headers.get("authorization") != _LOGIN:
            return Response(status_code=401)
        return JSONResponse({"token": _TOKEN, "scope": request.query_params["scope"]})

    def _challenge(self, request: Request) -> Response | None:
        given = request.headers.get("authorization")
        if not self.auth or given == {"basic": _LOGIN, "bearer": f"Bearer {_TOKEN}"}[self.auth]:
            return None
        realm = f'realm="{request.url.scheme}://{request.url.netloc}/token",service="fake"'
        return Response(
            status_code=401, headers={"WWW-Authenticate": f"{'Basic' if self.auth == 'basic' else 'Bearer'} {realm}"}
        )


class FakeRegistry(Serving):
    """A registry on a free port. ``state`` is live."""

    def __init__(self, certificate: Path | None = None) -> None:
        state = self.state = Registry()
        routes = [
            Route("/v2/{name:path}/manifests/{reference}", state.told(state.manifest)),
            Route("/v2/{name:path}/blobs/{digest}", state.told(state.blob)),
            Route("/storage/{digest}", state.told(state.storage)),
            Route("/token", state.told(state.token)),
        ]
        super().__init__(Starlette(routes=routes), certificate)

    def loads(self, digest: str) -> list[str]:
        """The ranges of every download of a blob so far, empty for whole ones."""
        return [span for _, url, span in self.state.requests if url == f"/storage/{digest}"]

    def push(self, repository: str, layers: Sequence[Json], tag: str = "v1") -> str:
        """A manifest of these layers; its digest."""
        return self._named(repository, {"mediaType": MANIFEST, "schemaVersion": 2, "layers": list(layers)}, tag)

    def push_index(self, repository: str, by_architecture: Mapping[str, str], tag: str = "v1") -> str:
        """An index of manifests that were pushed; its digest."""
        entries = [{"digest": digest, "platform": {"architecture": name}} for name, digest in by_architecture.items()]
        return self._named(repository, {"mediaType": INDEX, "schemaVersion": 2, "manifests": entries}, tag)

    def files(self, files: Mapping[str, bytes]) -> list[Json]:
        """One layer per file, as ``oras push`` makes them."""
        return [self._layer(content, "application/octet-stream", name) for name, content in files.items()]

    def archive(self, files: Mapping[str, bytes], *, folder: str = "", packed: bool = True) -> Json:
        """One layer of a container image."""
        stream = io.BytesIO()
        with tarfile.open(fileobj=stream, mode="w") as archive:
            for name, content in files.items():
                info = tarfile.TarInfo(f"{folder}/{name}" if folder else name)
                info.size = len(content)
                archive.addfile(info, io.BytesIO(content))
        raw = gzip.compress(stream.getvalue(), mtime=0) if packed else stream.getvalue()
        return self._layer(raw, "application/vnd.oci.image.layer.v1.tar" + ("+gzip" if packed else ""), "")

    def _layer(self, content: bytes, media_type: str, title: str) -> Json:
        digest = digest_of(content)
        self.state.blobs[digest] = content
        named = {"annotations": {TITLE: title}} if title else {}
        return {"mediaType": media_type, "digest": digest, "size": len(content), **named}

    def _named(self, repository: str, content: Json, tag: str) -> str:
        raw = json.dumps(content).encode()
        digest = digest_of(raw)
        self.state.manifests[digest] = (raw, content["mediaType"])
        self.state.tags[f"{repository}:{tag}"] = digest
        return digest
