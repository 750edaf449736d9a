"""Whether a watch begins anew is told by its requests, also where nothing is left to tell of."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any, cast

import kopf
import pytest
from aiohttp import web
from yarl import URL

from sunfleet_operator.cluster import Cluster
from sunfleet_operator.health import Health
from sunfleet_operator.listings import Session, listed, session
from sunfleet_operator.process import Operator
from sunfleet_operator.settings import Settings
from sunfleet_operator.types import Key
from sunfleet_operator.workqueue import WorkQueue
from sunfleet_optest.objects import decoder, model
from sunfleet_optest.store import Store

_CORE, _OURS = "https://api/api/v1", "https://api/apis/serving.sunfleet.dev/v1alpha1"
Begun = list[tuple[str, str]]


@pytest.mark.parametrize(
    ("method", "url", "expected"),
    [
        ("GET", f"{_CORE}/pods?limit=500&labelSelector=a%3Db", ("Pod", "")),
        ("GET", f"{_OURS}/sunmodels?limit=500", ("SunModel", "")),
        ("GET", f"{_OURS}/namespaces/team/sunmodels", ("SunModel", "team")),
        ("GET", "https://api/apis/apps/v1/namespaces/team/deployments", ("Deployment", "team")),
        ("GET", f"{_CORE}/pods?limit=500&continue=abc", None),
        ("GET", f"{_CORE}/pods?watch=true&resourceVersion=7", None),
        ("PATCH", f"{_CORE}/pods", None),
        ("GET", f"{_CORE}/namespaces/team/pods/maths-1", None),
        ("GET", f"{_CORE}/namespaces?limit=500", None),
        ("GET", "https://api/apis/apps/v1", None),
    ],
)
def test_a_listing_is_the_first_page_of_a_collection_that_is_remembered(
    method: str, url: str, expected: tuple[str, str] | None
) -> None:
    assert listed(method, URL(url)) == expected


@pytest.fixture
async def server() -> AsyncIterator[str]:
    async def nothing(_: web.Request) -> web.Response:
        return web.json_response({"kind": "PodList", "metadata": {"resourceVersion": "7"}, "items": []})

    app = web.Application()
    app.router.add_get("/api/v1/pods", nothing)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    yield f"http://127.0.0.1:{runner.addresses[0][1]}"
    await runner.cleanup()


async def test_an_empty_listing_is_told_once_it_is_answered(server: str) -> None:
    begun: Begun = []
    made = session(kopf.ConnectionInfo(server=server), lambda kind, space: begun.append((kind, space)))
    async with made.aiohttp_session as client:
        async with client.get(f"{server}/api/v1/pods") as answer:
            assert begun == [("Pod", "")]
            assert (await answer.json())["items"] == []
        async with client.get(f"{server}/api/v1/pods", params={"watch": "true"}) as answer:
            await answer.read()
    assert begun == [("Pod", "")]


async def test_credentials_that_were_refused_are_known_again() -> None:
    """Else kopf would log in with them for ever, and never say that nothing is left to try."""

    def made(token: str) -> Session:
        return session(kopf.ConnectionInfo(server="https://api", token=token), lambda _, __: None)

    sessions = [made("1"), made("1"), made("2")]
    assert sessions[0] == sessions[1] != sessions[2]
    for each in sessions:
        await each.aiohttp_session.close()


def test_after_a_gap_everybody_is_looked_at_since_the_end_of_a_child_is_never_told() -> None:
    queue: WorkQueue[Key] = WorkQueue(first_delay=1.0, max_delay=1.0)
    nobody = cast("Any", None)  # is asked for nothing
    operator = Operator(Settings(), Cluster(nobody, timeout_seconds=1), queue, Health(lambda: 0.0, 1.0))
    store = Store()
    operator.index.rebuild([store.put(model())], [store.put(decoder())])
    operator.listed("Deployment", "")
    assert len(queue) == 0, "before its first listing nothing was told, so nothing is missed"
    operator.listed("Deployment", "")
    assert len(queue) == 2
