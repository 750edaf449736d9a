"""Requests and answers of the API server, against a server of our own."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, cast

import pytest
from aiohttp import web
from kubernetes.aio.client import ApiClient, Configuration

from sunfleet_operator.cluster import (
    Cluster,
    ConflictError,
    NotFoundError,
    RefusedError,
    TerminatingError,
    UnavailableError,
)
from sunfleet_operator.types import Ref

Answer = Callable[[web.Request], Awaitable[web.StreamResponse]]


class Server:
    """Answers with ``answer`` and keeps what was asked."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, str, dict[str, str], Any]] = []
        self.answers: list[tuple[int, Any]] = []

    async def handle(self, request: web.Request) -> web.Response:
        body = json.loads(await request.text() or "null")
        self.asked.append((request.method, request.path, dict(request.query), body))
        status, answer = self.answers.pop(0) if self.answers else (200, {})
        text = answer if isinstance(answer, str) else json.dumps(answer)
        return web.Response(status=status, text=text, content_type="application/json")


@pytest.fixture
async def server() -> Server:
    return Server()


@pytest.fixture
async def cluster(server: Server) -> AsyncIterator[Cluster]:
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", server.handle)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    port = runner.addresses[0][1]
    made = Cluster(ApiClient(Configuration(host=f"http://127.0.0.1:{port}")), timeout_seconds=5, namespaces=("a", "b"))
    yield made
    await made.close()
    await runner.cleanup()


async def test_a_list_is_read_to_its_end(cluster: Cluster, server: Server) -> None:
    server.answers = [
        (200, {"items": [{"n": 1}], "metadata": {"continue": "more"}}), (200, {"items": [{"n": 2}], "metadata": {}}),
    ]  # fmt: skip
    assert await cluster.list("Pod", "ns", labels={"b": "2", "a": "1"}) == [{"n": 1}, {"n": 2}]
    assert [query for _, _, query, _ in server.asked] == [
        {"limit": "500", "labelSelector": "a=1,b=2"},
        {"limit": "500", "labelSelector": "a=1,b=2", "continue": "more"},
    ]


async def test_only_served_namespaces_are_listed(cluster: Cluster, server: Server) -> None:
    server.answers = [(200, {"items": [], "metadata": {}})] * 2
    await cluster.list_served("SunModel")
    assert [path.split("/")[5] for _, path, _, _ in server.asked] == ["a", "b"]


def test_an_operator_serves_what_it_was_given_or_everything() -> None:
    some, every = (Cluster(cast("ApiClient", None), timeout_seconds=1, namespaces=given) for given in (("a",), ()))
    assert [some.serves("a"), some.serves("b"), every.serves("b")] == [True, False, True]


async def test_an_apply_names_its_manager_and_forces(cluster: Cluster, server: Server) -> None:
    manifest = {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "s", "namespace": "ns"}}
    await cluster.apply(manifest, "me")
    method, path, query, body = server.asked[0]
    assert (method, path, query) == (
        "PATCH", "/api/v1/namespaces/ns/services/s", {"fieldManager": "me", "force": "true"},
    )  # fmt: skip
    assert body == manifest


async def test_a_deletion_is_of_this_very_object(cluster: Cluster, server: Server) -> None:
    await cluster.delete(Ref("Job", "ns", "j", "uid-1"))
    assert server.asked[0][3]["preconditions"] == {"uid": "uid-1"}
    server.answers = [(404, {"message": "not found"})]
    await cluster.delete(Ref("Job", "ns", "j", "uid-1"))


async def test_a_deletion_takes_the_time_of_the_object_unless_it_is_given_another(
    cluster: Cluster, server: Server
) -> None:
    await cluster.delete(Ref("Pod", "ns", "p", "uid-1"))
    await cluster.delete(Ref("Pod", "ns", "p", "uid-1"), grace_seconds=1)
    assert [body.get("gracePeriodSeconds") for _, _, _, body in server.asked] == [None, 1]


async def test_what_is_not_there_is_none(cluster: Cluster, server: Server) -> None:
    server.answers = [(404, {"message": "not found"})]
    assert await cluster.get("Pod", "ns", "p") is None


TERMINATING = {"message": "no", "details": {"causes": [{"reason": "NamespaceTerminating"}]}}


@pytest.mark.parametrize(
    ("code", "answer", "error"),
    [
        (404, {"message": "m"}, NotFoundError),
        (409, {"message": "m"}, ConflictError),
        (403, {"message": "m"}, RefusedError),
        (403, TERMINATING, TerminatingError),
        (422, {"message": "m"}, RefusedError),
        (429, {"message": "m"}, UnavailableError),
        (500, {"message": "m"}, UnavailableError),
        (502, "<html>bad gateway</html>", UnavailableError),
        (403, "[]", RefusedError),
        (200, "<html>log in</html>", UnavailableError),
        (200, "[]", UnavailableError),
    ],
)
async def test_refusals_have_kinds(
    cluster: Cluster, server: Server, code: int, answer: Any, error: type[Exception]
) -> None:
    server.answers = [(code, answer)]
    with pytest.raises(error) as caught:
        await cluster.create({"kind": "Pod", "metadata": {"namespace": "ns"}})
    assert type(caught.value) is error


async def test_no_answer_is_unavailable() -> None:
    cluster = Cluster(ApiClient(Configuration(host="http://127.0.0.1:9")), timeout_seconds=1)
    with pytest.raises(UnavailableError, match="GET /api/v1/namespaces/ns/pods/p"):
        await cluster.get("Pod", "ns", "p")
    await cluster.close()
