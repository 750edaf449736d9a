"""HTTP to routers: through the API server, with the rights of whoever calls, or straight to a URL."""

from __future__ import annotations

import http.client
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import Any, Final

import click
import urllib3
from kubernetes import client
from kubernetes.client.exceptions import ApiException
from kubernetes.stream import portforward

from sunfleet_api import names
from sunfleet_cli.cluster import UNREACHABLE, connected, unreachable

_ROUTERS: Final = f"{names.LABEL_PART_OF}={names.MANAGED_BY},{names.LABEL_COMPONENT}=router"
_TIMEOUT_SECONDS: Final = 10
# Prefill of a long prompt on a busy fleet, or a task that wakes from zero, comes before the first byte.
_ANSWER_SECONDS: Final = 600
_LARGEST_CHUNK: Final = 1 << 16


@dataclass(frozen=True)
class Answer:
    """A status and the chunks of a body, as they come."""

    status: int
    chunks: Iterator[bytes]


Post = Callable[[str, bytes], AbstractContextManager[Answer]]  # (path, JSON body)
Send = Callable[[str, bytes], urllib3.BaseHTTPResponse]


@contextmanager
def _session(context: str | None) -> Iterator[Any]:
    api = connected(context)
    try:
        yield api
    finally:
        api.rest_client.pool_manager.clear()


def scrape(context: str | None, system_namespace: str) -> dict[str, str]:
    """``/metrics`` of every running router pod, by pod name. One that does not answer is left out: it may be on its
    way in or out. None at all is an error."""
    with _session(context) as api:
        return _scraped(api, system_namespace)


def _scraped(api: Any, system_namespace: str) -> dict[str, str]:
    core = client.CoreV1Api(api)
    try:
        found = core.list_namespaced_pod(system_namespace, label_selector=_ROUTERS, _request_timeout=_TIMEOUT_SECONDS)
        pods = [str(pod["metadata"]["name"]) for pod in _plain(api, found.items) if _phase(pod) == "Running"]
    except ApiException as error:
        raise click.ClickException(f"pods of {system_namespace}: {error.status} {error.reason}") from None
    except UNREACHABLE as error:
        raise click.ClickException(f"the API server does not answer: {unreachable(error)}") from None
    if not pods:
        raise click.ClickException(f"no router runs in namespace {system_namespace}: see --system-namespace")
    texts: dict[str, str] = {}
    why = ""
    for name in sorted(pods):
        try:
            texts[name] = _metrics(api, system_namespace, name)
        except ApiException as error:
            why = f"{error.status} {error.reason}"
        except (*UNREACHABLE, http.client.HTTPException) as error:
            why = unreachable(error)
    if not texts:
        raise click.ClickException(f"no router of {system_namespace} gives its metrics through the API server: {why}")
    return texts


def _metrics(api: Any, namespace: str, pod: str) -> str:
    """Through a forwarded port, which ends inside the pod, so that no NetworkPolicy is in the way; where that is not
    allowed or not offered, through the API server's proxy."""
    try:
        return _forwarded(api, namespace, pod)
    except (ApiException, OSError, http.client.HTTPException):
        path = f"/api/v1/namespaces/{namespace}/pods/{pod}:{names.METRICS_PORT}/proxy/metrics"
        answer = _call(api, "GET", path, {}, None, _TIMEOUT_SECONDS)
        body = answer.read().decode(errors="replace")
        if answer.status != 200:
            raise ApiException(status=answer.status, reason=body[:300].strip()) from None
        return body


def _forwarded(api: Any, namespace: str, pod: str) -> str:
    asked = client.CoreV1Api(api).connect_get_namespaced_pod_portforward
    forward = portforward(asked, pod, namespace, ports=str(names.METRICS_PORT))
    connection = http.client.HTTPConnection(pod, names.METRICS_PORT)
    connection.sock = forward.socket(names.METRICS_PORT)
    try:
        connection.sock.settimeout(_TIMEOUT_SECONDS)
        connection.request("GET", "/metrics", headers={"Connection": "close"})
        answer = connection.getresponse()
        body = answer.read().decode(errors="replace")
    finally:
        connection.close()
        forward.close()
        _ended(forward)
    if answer.status != 200:
        raise ApiException(status=answer.status, reason=body[:300])
    return body


def _ended(forward: Any) -> None:
    """The client's thread ends once one side has closed, and leaves the socket open."""
    deadline = time.monotonic() + 1
    while forward.connected and time.monotonic() < deadline:
        time.sleep(0.01)
    forward.websocket.shutdown()


def _plain(api: Any, items: object) -> list[dict[str, Any]]:
    """As JSON, the way the API server sends it."""
    return list(api.sanitize_for_serialization(items))


def _phase(pod: Mapping[str, Any]) -> str:
    return str((pod.get("status") or {}).get("phase", ""))


def _call(
    api: Any, method: str, path: str, headers: Mapping[str, str], body: bytes | None, seconds: float
) -> urllib3.BaseHTTPResponse:
    """The answer as it comes, also of a refusal. The generated client would read it whole, and parse it."""
    _, url, sent, *_ = api.param_serialize(method, path, header_params=dict(headers), auth_settings=["BearerToken"])
    timeout = urllib3.Timeout(connect=_TIMEOUT_SECONDS, read=seconds)
    answer: urllib3.BaseHTTPResponse = api.rest_client.pool_manager.request(
        method, url, headers=sent, body=body, timeout=timeout, preload_content=False, retries=False
    )
    return answer


@contextmanager
def poster(context: str | None, system_namespace: str, url: str | None, key: str) -> Iterator[Post]:
    """Posts to a router: at ``url``, or through the API server to the routers' Service. The key travels in
    ``x-api-key``: the API server takes an ``authorization`` header for its own."""
    headers = {"content-type": "application/json"} | ({"x-api-key": key} if key else {})
    if url is not None:
        with urllib3.PoolManager(retries=False) as pool:

            def direct(path: str, body: bytes) -> urllib3.BaseHTTPResponse:
                return pool.request(
                    "POST", url.rstrip("/") + path, headers=headers, body=body, preload_content=False,
                    timeout=urllib3.Timeout(connect=_TIMEOUT_SECONDS, read=_ANSWER_SECONDS),
                )  # fmt: skip

            yield _posting(direct)
        return
    with _session(context) as api:
        prefix = f"/api/v1/namespaces/{system_namespace}/services/{_service(api, system_namespace)}:http/proxy"
        yield _posting(lambda path, body: _call(api, "POST", prefix + path, headers, body, _ANSWER_SECONDS))


def _service(api: Any, namespace: str) -> str:
    """The routers' Service that has a port named http."""
    asked = client.CoreV1Api(api).list_namespaced_service
    try:
        found = _plain(api, asked(namespace, label_selector=_ROUTERS, _request_timeout=_TIMEOUT_SECONDS).items)
    except ApiException as error:
        raise click.ClickException(f"services of {namespace}: {error.status} {error.reason}") from None
    except UNREACHABLE as error:
        raise click.ClickException(f"the API server does not answer: {unreachable(error)}") from None
    fitting = [
        one["metadata"]["name"] for one in found if "http" in {port.get("name") for port in one["spec"]["ports"]}
    ]
    if not fitting:
        raise click.ClickException(f"no Service of a router in namespace {namespace}: see --system-namespace and --url")
    return str(fitting[0])


def _posting(send: Send) -> Post:
    @contextmanager
    def post(path: str, body: bytes) -> Iterator[Answer]:
        try:
            answer = send(path, body)
        except UNREACHABLE as error:
            raise click.ClickException(f"the router does not answer: {unreachable(error)}") from None
        try:
            yield Answer(answer.status, _chunks(answer))
        finally:
            answer.close()

    return post


def _chunks(answer: urllib3.BaseHTTPResponse) -> Iterator[bytes]:
    """A chunk of the router is a chunk here: a token is seen when it is there."""
    try:
        yield from answer.stream(_LARGEST_CHUNK, decode_content=True)
    except urllib3.exceptions.HTTPError as error:
        raise click.ClickException(f"the answer broke off: {error}") from None
