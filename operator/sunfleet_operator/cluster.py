"""The API server, as plain JSON: get, list, server-side apply, delete. The only place that sends requests for
reconciles.

Errors::

    ClusterError
     |-- NotFoundError      404
     |-- ConflictError      409: somebody else was faster, or the object is another one (uid)
     |-- RefusedError       400, 403, 422: trying again does not help before somebody changes something
     |    +-- TerminatingError   403: the namespace is being deleted, so nothing new may stand in it
     +-- UnavailableError   everything else, also no answer at all
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from urllib.request import getproxies_environment

import aiohttp
from kubernetes.aio import config
from kubernetes.aio.client import ApiClient, Configuration
from kubernetes.aio.client.exceptions import ApiException

from sunfleet_operator import metrics
from sunfleet_operator.kinds import BY_NAME
from sunfleet_operator.types import Json, Listed, Manifest, Ref

APPLY = "application/apply-patch+yaml"


class ClusterError(Exception):
    """A request failed; the message is the API server's own."""

    def __init__(self, what: str, status: int, message: str) -> None:
        super().__init__(f"{what}: {status} {message}" if status else f"{what}: {message}")
        self.status = status
        self.message = message


class NotFoundError(ClusterError):
    pass


class ConflictError(ClusterError):
    pass


class RefusedError(ClusterError):
    pass


class TerminatingError(RefusedError):
    pass


class UnavailableError(ClusterError):
    pass


_ERRORS: Mapping[int, type[ClusterError]] = {
    400: RefusedError,
    403: RefusedError,
    404: NotFoundError,
    409: ConflictError,
    422: RefusedError,
}


async def connect() -> ApiClient:
    """A client from the pod's service account, or from ``KUBECONFIG`` outside a cluster."""
    configuration = Configuration()
    try:
        config.load_incluster_config(client_configuration=configuration)  # type: ignore[no-untyped-call]
    except config.ConfigException:
        await config.load_kube_config(client_configuration=configuration)  # type: ignore[no-untyped-call]
    # Else it looks for proxies and into ~/.netrc at every request, in a thread: a seventh of the process's work.
    configuration.client_session_kwargs = {"trust_env": bool(getproxies_environment())}
    return ApiClient(configuration)


class Cluster:
    """Typed verbs over one ``ApiClient``. Objects are JSON; lists come back whole."""

    def __init__(self, client: ApiClient, *, timeout_seconds: float, namespaces: Sequence[str] = ()) -> None:
        self._client = client
        self._namespaces = tuple(namespaces)
        self._timeout = aiohttp.ClientTimeout(total=timeout_seconds)

    async def close(self) -> None:
        await self._client.close()  # type: ignore[no-untyped-call]

    async def get(self, kind: str, namespace: str, name: str) -> Json | None:
        """The object, or ``None`` when there is none."""
        try:
            return await self._request("GET", BY_NAME[kind].path(namespace, name))
        except NotFoundError:
            return None

    async def list(
        self,
        kind: str,
        namespace: str = "",
        *,
        labels: Mapping[str, str] | None = None,
        fields: Mapping[str, str] | None = None,
    ) -> Sequence[Json]:
        """All objects with these labels and fields in a namespace, or everywhere; items lack apiVersion and kind, as
        always."""
        query: list[tuple[str, str]] = [("limit", "500")]
        for name, wanted in (("labelSelector", labels), ("fieldSelector", fields)):
            if wanted:
                query.append((name, ",".join(f"{key}={value}" for key, value in sorted(wanted.items()))))
        found = Listed()
        while True:
            page = await self._request("GET", BY_NAME[kind].path(namespace), query=query)
            found += page["items"]
            found.version = found.version or str(page["metadata"].get("resourceVersion") or "")
            more = page["metadata"].get("continue")
            if not more:
                return found
            query = [pair for pair in query if pair[0] != "continue"] + [("continue", more)]

    async def list_served(self, kind: str, *, labels: Mapping[str, str] | None = None) -> Sequence[Json]:
        """All objects with these labels in the namespaces that this operator serves."""
        spaces = self._namespaces or ("",)
        return [live for space in spaces for live in await self.list(kind, space, labels=labels)]

    async def log(self, namespace: str, pod: str, *, lines: int, container: str = "") -> str:
        """The last lines of the log of a pod (of this container, where it has several); empty while there is none, or
        its node does not answer."""
        path = BY_NAME["Pod"].path(namespace, pod, "log")
        query = [("tailLines", str(lines)), ("limitBytes", str(1 << 16))]
        query += [("container", container)] if container else []
        try:
            _, data = await self._ask("GET", path, query=query, accept="*/*")
        except ClusterError:
            return ""
        return data.decode(errors="replace")

    def serves(self, namespace: str) -> bool:
        """Whether objects of this namespace are this operator's to read."""
        return not self._namespaces or namespace in self._namespaces

    async def create(self, manifest: Manifest) -> Json:
        meta = manifest["metadata"]
        return await self._request("POST", BY_NAME[manifest["kind"]].path(meta.get("namespace", "")), body=manifest)

    async def replace(self, manifest: Manifest) -> Json:
        """PUT; ``metadata.resourceVersion`` guards against somebody else's change in between (ConflictError)."""
        meta = manifest["metadata"]
        return await self._request(
            "PUT", BY_NAME[manifest["kind"]].path(meta["namespace"], meta["name"]), body=manifest
        )

    async def apply(self, manifest: Manifest, manager: str, *, subresource: str = "") -> Json:
        """Server-side apply. With ``metadata.uid`` given it never creates: another object, or none, is a conflict."""
        meta = manifest["metadata"]
        path = BY_NAME[manifest["kind"]].path(meta["namespace"], meta["name"], subresource)
        query = [("fieldManager", manager), ("force", "true")]
        return await self._request("PATCH", path, query=query, body=manifest, content_type=APPLY)

    async def set_finalizers(self, kind: str, live: Json, finalizers: Sequence[str], manager: str) -> Json:
        """Replace the list; a change by somebody else in between is a ConflictError."""
        meta = live["metadata"]
        body = {
            "metadata": {"resourceVersion": meta["resourceVersion"], "uid": meta["uid"], "finalizers": list(finalizers)}
        }
        return await self._request(
            "PATCH",
            BY_NAME[kind].path(meta["namespace"], meta["name"]),
            query=[("fieldManager", manager)],
            body=body,
            content_type="application/merge-patch+json",
        )

    async def delete(self, ref: Ref, *, grace_seconds: int | None = None) -> None:
        """Delete this very object (uid), its dependents in the background. Gone already is fine.

        ``grace_seconds`` of ``None`` is the object's own; one that is going already goes faster, never slower.
        """
        body: Manifest = {
            "apiVersion": "v1",
            "kind": "DeleteOptions",
            "propagationPolicy": "Background",
            "preconditions": {"uid": ref.uid},
        }
        if grace_seconds is not None:
            body["gracePeriodSeconds"] = grace_seconds
        try:
            await self._request("DELETE", BY_NAME[ref.kind].path(ref.namespace, ref.name), body=body)
        except NotFoundError:
            return

    async def _request(
        self,
        method: str,
        path: str,
        *,
        query: Sequence[tuple[str, str]] = (),
        body: Manifest | None = None,
        content_type: str = "application/json",
    ) -> Json:
        what, data = await self._ask(method, path, query=query, body=body, content_type=content_type)
        return _document(what, data)

    async def _ask(
        self,
        method: str,
        path: str,
        *,
        query: Sequence[tuple[str, str]] = (),
        body: Manifest | None = None,
        content_type: str = "application/json",
        accept: str = "application/json",
    ) -> tuple[str, bytes]:
        """What was asked, in words, and the answer."""
        what = f"{method} {path}"
        prepared = await self._client.param_serialize(
            method,
            path,
            query_params=list(query),
            body=body,
            auth_settings=["BearerToken"],
            header_params={"Accept": accept, "Content-Type": content_type},
        )
        try:
            answer = await self._client.call_api(*prepared, _request_timeout=self._timeout)
            data = await answer.read()  # type: ignore[no-untyped-call]
        except (TimeoutError, aiohttp.ClientError, OSError, ApiException) as error:
            metrics.REQUESTS.labels(method, "none").inc()
            raise UnavailableError(what, 0, str(error) or type(error).__name__) from error
        metrics.REQUESTS.labels(method, str(answer.status)).inc()
        if answer.status >= 300:
            raise _error(what, answer.status, data)
        return what, data


def _document(what: str, data: bytes) -> Json:
    """The object in an answer; a proxy in between may send something else with a good status."""
    try:
        found = json.loads(data)
    except ValueError:
        found = None
    if not isinstance(found, dict):
        raise UnavailableError(what, 0, f"the answer is no JSON object: {data[:200]!r}")
    return found


def _error(what: str, code: int, data: bytes) -> ClusterError:
    """From a ``Status`` object; proxies in between send HTML instead, of which the start must do."""
    kind = _ERRORS.get(code, UnavailableError)
    try:
        status = json.loads(data)
        causes = (status.get("details") or {}).get("causes") or ()
        if code == 403 and any(cause.get("reason") == "NamespaceTerminating" for cause in causes):
            kind = TerminatingError
        return kind(what, code, str(status["message"]))
    except (ValueError, KeyError, TypeError, AttributeError):
        return kind(what, code, data[:200].decode(errors="replace"))
