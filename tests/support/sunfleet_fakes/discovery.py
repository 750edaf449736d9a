"""Pods as targets, over HTTP, for a Prometheus that was built without Kubernetes' discovery (Debian's is).

``python -m sunfleet_fakes.discovery PORT`` answers ``GET /?namespace=NAME`` (without the parameter: of all namespaces)
with the target groups that ``kubernetes_sd_configs`` with ``role: pod`` would find, under the same labels
(``__meta_kubernetes_*``), so that relabelling rules mean the same. It reads pods with the service account of its pod.
"""

from __future__ import annotations

import json
import re
import ssl
import sys
import urllib.parse
import urllib.request
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

Json = dict[str, Any]
_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
_API = "https://kubernetes.default.svc/api/v1"
_META = "__meta_kubernetes"


def groups(pods: list[Json]) -> Iterator[Json]:
    """One target group for each container port of each pod that has an address. Pure."""
    for pod in pods:
        address = pod.get("status", {}).get("podIP")
        if not address:
            continue
        shared = _of_pod(pod, address)
        for container in pod["spec"]["containers"]:
            for port in container.get("ports", []):
                number = str(port["containerPort"])
                own = {
                    f"{_META}_pod_container_name": container["name"],
                    f"{_META}_pod_container_port_name": port.get("name", ""),
                    f"{_META}_pod_container_port_number": number,
                }
                yield {"targets": [f"{address}:{number}"], "labels": shared | own}


def _of_pod(pod: Json, address: str) -> dict[str, str]:
    metadata, status = pod["metadata"], pod["status"]
    found = {
        f"{_META}_namespace": metadata["namespace"],
        f"{_META}_pod_name": metadata["name"],
        f"{_META}_pod_ip": address,
        f"{_META}_pod_phase": status.get("phase", ""),
    }
    for kind in ("label", "annotation"):
        for name, value in metadata.get(f"{kind}s", {}).items():
            clean = re.sub(r"[^a-zA-Z0-9_]", "_", name)
            found[f"{_META}_pod_{kind}_{clean}"] = value
            found[f"{_META}_pod_{kind}present_{clean}"] = "true"
    return found


def list_pods(namespace: str) -> list[Json]:
    """Of one namespace, or of all."""
    path = f"/namespaces/{urllib.parse.quote(namespace)}/pods" if namespace else "/pods"
    headers = {"Authorization": f"Bearer {(_ACCOUNT / 'token').read_text()}"}
    context = ssl.create_default_context(cafile=str(_ACCOUNT / "ca.crt"))
    with urllib.request.urlopen(urllib.request.Request(_API + path, headers=headers), context=context) as answer:
        pods: list[Json] = json.load(answer)["items"]
        return pods


class _Handler(BaseHTTPRequestHandler):
    def do_GET(self) -> None:  # the base class chose the name
        query = urllib.parse.parse_qs(urllib.parse.urlsplit(self.path).query)
        body = json.dumps(list(groups(list_pods(query.get("namespace", [""])[0])))).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002  # the base class chose the name
        """Stay silent."""


def main(arguments: list[str]) -> int:
    """Serve for ever."""
    ThreadingHTTPServer(("127.0.0.1", int(arguments[0])), _Handler).serve_forever()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
