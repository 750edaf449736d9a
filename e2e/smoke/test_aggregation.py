"""The API server's aggregation layer, which metrics adapters need: it hands requests on, and says for whom."""

import json
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from sunfleet_cluster.cluster import Cluster
from sunfleet_cluster.embedded import EmbeddedCluster
from support.kubectl import Json, Kubectl, wait_until

GROUP = "smoke.sunfleet.dev"
NAME = "smoke-extension"


def test_an_extension_server_is_asked_with_the_users_identity_and_the_proxys_certificate(
    cluster: Cluster, kubectl: Kubectl, namespace: str
) -> None:
    if not isinstance(cluster, EmbeddedCluster):
        pytest.skip("needs an address of this machine that the API server can reach, and the authority's certificate")
    address = str(cluster.layout.addresses.host_end)
    with _extension_server(cluster.layout.pki, address) as port:
        kubectl.apply([*_service(namespace, address, port), _registration(namespace)])
        try:
            kubectl.run("wait", "--for=condition=Available", "--timeout=60s", f"apiservice/v1.{GROUP}", timeout=70)
            path = f"/apis/{GROUP}/v1/who"
            seen = wait_until("an answer", lambda: json.loads(kubectl.run("get", "--raw", path)), 20)
        finally:
            kubectl.delete("apiservice", f"v1.{GROUP}")
    assert seen["user"] == "kubernetes-admin"
    assert "system:masters" in seen["groups"]
    assert seen["proxy"] == "front-proxy-client"


class _Handler(BaseHTTPRequestHandler):
    """Answers discovery, and `who` with what the API server said about the caller."""

    def do_GET(self) -> None:  # the base class chose the name
        answer: Json = {"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": f"{GROUP}/v1", "resources": []}
        if self.path.endswith("/who"):
            answer = {
                "user": self.headers["X-Remote-User"],
                "groups": self.headers.get_all("X-Remote-Group", []),
                "proxy": _common_name(self.connection),
            }
        body = json.dumps(answer).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002  # the base class chose the name
        """Stay silent."""


@contextmanager
def _extension_server(pki: Path, address: str) -> Iterator[int]:
    """Serve on a free port of `address`, for callers whose certificate the front proxy's authority signed; the port."""
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=str(pki / "front-proxy-ca.crt"))
    context.load_cert_chain(pki / "apiserver.crt", pki / "apiserver.key")
    context.verify_mode = ssl.CERT_REQUIRED
    with ThreadingHTTPServer((address, 0), _Handler) as server:
        server.socket = context.wrap_socket(server.socket, server_side=True)
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        try:
            yield server.server_address[1]
        finally:
            server.shutdown()
            thread.join()


def _common_name(connection: Any) -> str:
    subject = dict(pair for names in connection.getpeercert()["subject"] for pair in names)
    return str(subject["commonName"])


def _service(namespace: str, address: str, port: int) -> list[Json]:
    """A Service without a selector, whose one endpoint is our server."""
    metadata: Json = {"name": NAME, "namespace": namespace}
    ports = [{"name": "https", "port": port, "protocol": "TCP"}]
    labels = {"kubernetes.io/service-name": NAME}
    endpoints: Json = {
        "apiVersion": "discovery.k8s.io/v1",
        "kind": "EndpointSlice",
        "metadata": {**metadata, "labels": labels},
        "addressType": "IPv4",
        "endpoints": [{"addresses": [address], "conditions": {"ready": True}}],
        "ports": ports,
    }
    service_ports = [{"name": "https", "port": 443, "targetPort": port}]
    return [{"apiVersion": "v1", "kind": "Service", "metadata": metadata, "spec": {"ports": service_ports}}, endpoints]


def _registration(namespace: str) -> Json:
    spec: Json = {
        "group": GROUP,
        "version": "v1",
        "groupPriorityMinimum": 100,
        "versionPriority": 100,
        "insecureSkipTLSVerify": True,
        "service": {"name": NAME, "namespace": namespace, "port": 443},
    }
    metadata = {"name": f"v1.{GROUP}"}
    return {"apiVersion": "apiregistration.k8s.io/v1", "kind": "APIService", "metadata": metadata, "spec": spec}
