"""A small client of the API server for the few reads and patches that the cluster verbs make themselves."""

import json
import ssl
import urllib.error
import urllib.request
from http.client import HTTPException
from pathlib import Path
from typing import Any

from sunfleet_cluster.errors import ClusterError

Json = dict[str, Any]


class ApiClient:
    """Talks to the API server at `url` as `identity`, whose certificate lies in `pki`; never through a proxy."""

    def __init__(self, url: str, pki: Path, identity: str = "admin", timeout: float = 10.0) -> None:
        context = ssl.create_default_context(cafile=str(pki / "ca.crt"))
        context.load_cert_chain(pki / f"{identity}.crt", pki / f"{identity}.key")
        self._url = url
        self._timeout = timeout
        self._opener = urllib.request.build_opener(
            urllib.request.ProxyHandler({}), urllib.request.HTTPSHandler(context=context)
        )

    def get(self, path: str) -> Json | None:
        """The object at `path`, or None when there is none."""
        return self._send("GET", path)

    def merge(self, path: str, patch: Json) -> Json | None:
        """Merge `patch` into the object at `path`; None when there is none."""
        return self._send("PATCH", path, patch, "application/merge-patch+json")

    def _send(
        self, method: str, path: str, body: Json | None = None, content_type: str = "application/json"
    ) -> Json | None:
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(f"{self._url}{path}", data, {"Content-Type": content_type}, method=method)
        try:
            with self._opener.open(request, timeout=self._timeout) as response:
                result: Json = json.load(response)
                return result
        except urllib.error.HTTPError as error:
            if error.code == 404:
                return None
            said = error.read(2048).decode(errors="replace")
            raise ClusterError(f"the API server refused {method} {path} ({error.code}): {said}") from None
        except (OSError, HTTPException) as error:
            raise ClusterError(f"the API server at {self._url} does not answer {method} {path}: {error}") from None
