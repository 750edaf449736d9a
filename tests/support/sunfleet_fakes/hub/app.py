"""The fake hub's HTTP surface."""

from __future__ import annotations

from dataclasses import dataclass, field

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from sunfleet_fakes.faults import Faults, Handler, other_origin
from sunfleet_fakes.hub.repositories import Blob, Repository


@dataclass
class Hub(Faults):
    """Repositories by name, and tokens that open private ones."""

    repositories: dict[str, Repository] = field(default_factory=dict)
    tokens: set[str] = field(default_factory=set)


class HubError(Exception):
    """An answer with the hub's error headers."""

    def __init__(self, status: int, code: str, message: str) -> None:
        super().__init__(message)
        self.response = JSONResponse(
            {"error": message}, status, headers={"X-Error-Message": message, **({"X-Error-Code": code} if code else {})}
        )


class Surface:
    """Handlers."""

    def __init__(self, hub: Hub) -> None:
        self._hub = hub

    async def model_info(self, request: Request) -> Response:
        """``/api/models/ORG/NAME[/revision/REVISION]``."""
        name, repository = self._repository(request)
        return JSONResponse(repository.info(name, _commit(repository, request.path_params.get("revision", "main"))))

    async def resolve(self, request: Request) -> Response:
        """``/ORG/NAME/resolve/REVISION/PATH``: small files at once, large ones by a redirect."""
        name, repository = self._repository(request)
        sha = _commit(repository, request.path_params["revision"])
        path = request.path_params["path"]
        blob = repository.commits[sha].get(path)
        if blob is None:
            raise HubError(404, "EntryNotFound", "Entry not found")
        headers = {"X-Repo-Commit": sha, "ETag": f'"{blob.etag}"'}
        if blob.large:
            headers |= {
                "X-Linked-Etag": f'"{blob.etag}"', "X-Linked-Size": str(len(blob.content)),
                "Location": f"{other_origin(request)}/cdn/{name}/{sha}/{path}",
            }  # fmt: skip
            return Response(status_code=302, headers=headers)
        return self._content(request, path, blob, headers)

    async def cdn(self, request: Request) -> Response:
        """Where the redirects lead."""
        name, sha, path = (request.path_params[key] for key in ("name", "sha", "path"))
        blob = self._hub.repositories[f"{request.path_params['organisation']}/{name}"].commits[sha][path]
        return self._content(request, path, blob, {"ETag": f'"{blob.etag}"'})

    def _content(self, request: Request, path: str, blob: Blob, headers: dict[str, str]) -> Response:
        return self._hub.content(request, path, blob.content, headers)

    def _repository(self, request: Request) -> tuple[str, Repository]:
        name = f"{request.path_params['organisation']}/{request.path_params['name']}"
        token = request.headers.get("authorization", "").removeprefix("Bearer ")
        if token and token not in self._hub.tokens:
            raise HubError(401, "", "Invalid credentials in Authorization header")
        repository = self._hub.repositories.get(name)
        if repository is None or (repository.visibility == "private" and not token):
            raise HubError(404 if token else 401, "RepoNotFound", "Repository not found")
        if repository.visibility == "gated" and not token:
            raise HubError(401, "GatedRepo", f"Access to model {name} is restricted. Please log in.")
        return name, repository


def create_app(hub: Hub) -> Starlette:
    """The hub as an ASGI application."""
    surface = Surface(hub)

    def route(path: str, handler: Handler) -> Route:
        async def endpoint(request: Request) -> Response:
            try:
                return await handler(request)
            except HubError as error:
                return error.response

        return Route(path, hub.told(endpoint), methods=["GET", "HEAD"])

    return Starlette(routes=[
        route("/api/models/{organisation}/{name}", surface.model_info),
        route("/api/models/{organisation}/{name}/revision/{revision:path}", surface.model_info),
        route("/cdn/{organisation}/{name}/{sha}/{path:path}", surface.cdn),
        route("/{organisation}/{name}/resolve/{revision}/{path:path}", surface.resolve),
    ])  # fmt: skip


def _commit(repository: Repository, revision: str) -> str:
    sha = repository.find(revision)
    if sha is None:
        raise HubError(404, "RevisionNotFound", f"Invalid rev id: {revision}")
    return sha
