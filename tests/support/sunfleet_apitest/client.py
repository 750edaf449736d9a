"""A client that says exactly what goes over the wire, and turns refusals into values that tests can look at."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kubernetes import config

Document = dict[str, Any]
MERGE = "application/merge-patch+json"
APPLY = "application/apply-patch+yaml"


@dataclass(frozen=True)
class Cause:
    """One fault that the API server names: the field's path and what it says about it."""

    field: str
    message: str


class RefusedError(Exception):
    """The API server answered with an error status."""

    def __init__(self, code: int, status: Mapping[str, Any]) -> None:
        super().__init__(f"{code}: {status.get('message', status)}")
        self.code = code
        self.reason = str(status.get("reason", ""))
        self.message = str(status.get("message", ""))
        causes = (status.get("details") or {}).get("causes") or ()
        self.causes = tuple(Cause(str(cause.get("field", "")), str(cause.get("message", ""))) for cause in causes)

    @property
    def fields(self) -> frozenset[str]:
        """Paths of the fields that are at fault."""
        return frozenset(cause.field for cause in self.causes)


class Api:
    """Requests to one API server; every method returns the decoded answer or raises :class:`RefusedError`."""

    def __init__(self, kubeconfig: Path) -> None:
        self.kubeconfig = kubeconfig
        self._client: Any = config.new_client_from_config(  # type: ignore[no-untyped-call]
            str(kubeconfig), persist_config=False
        )

    def request(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        content_type: str = "application/json",
        query: Mapping[str, str] | None = None,
    ) -> Document:
        """One request; ``query`` holds what the API server knows, for example ``{"dryRun": "All"}``."""
        serialized = self._client.param_serialize(
            method,
            path,
            query_params=list((query or {}).items()),
            header_params={"Accept": "application/json", "Content-Type": content_type},
            body=body,
            auth_settings=["BearerToken"],
        )
        answer = self._client.call_api(*serialized)
        data = answer.read()
        decoded = json.loads(data) if data.lstrip()[:1] in {b"{", b"["} else {"message": data.decode()}
        if not 200 <= answer.status < 300:
            raise RefusedError(answer.status, decoded)
        return dict(decoded)

    def create(self, path: str, document: Mapping[str, Any], *, dry_run: bool = False, strict: bool = True) -> Document:
        """POST; ``strict`` refuses unknown fields, else they are pruned. A dry run checks all and stores nothing."""
        return self.request("POST", path, dict(document), query=_options(dry_run=dry_run, strict=strict))

    def replace(self, path: str, document: Mapping[str, Any], *, dry_run: bool = False) -> Document:
        """PUT of a whole object at its own path."""
        return self.request("PUT", path, dict(document), query=_options(dry_run=dry_run, strict=True))

    def merge(self, path: str, patch: Mapping[str, Any], *, dry_run: bool = False) -> Document:
        """JSON merge patch: ``None`` removes a field."""
        query = _options(dry_run=dry_run, strict=True)
        return self.request("PATCH", path, dict(patch), content_type=MERGE, query=query)

    def apply(self, path: str, document: Mapping[str, Any], manager: str, *, dry_run: bool = False) -> Document:
        """Server-side apply as ``manager``, taking over fields that others own."""
        query = _options(dry_run=dry_run, strict=True) | {"fieldManager": manager, "force": "true"}
        return self.request("PATCH", path, dict(document), content_type=APPLY, query=query)

    def get(self, path: str) -> Document:
        """GET."""
        return self.request("GET", path)

    def delete(self, path: str) -> Document:
        """DELETE."""
        return self.request("DELETE", path)


def _options(*, dry_run: bool, strict: bool) -> dict[str, str]:
    return {"fieldValidation": "Strict" if strict else "Ignore"} | ({"dryRun": "All"} if dry_run else {})
