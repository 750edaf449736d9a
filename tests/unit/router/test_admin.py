"""The admin port says which routes the router acts on, and nothing else."""

from __future__ import annotations

import socket
import urllib.request
from collections.abc import Iterator
from threading import Thread
from urllib.error import HTTPError

import pytest

from sunfleet_api.routes import PATH, Routes, Taken, digest
from sunfleet_router.fleet.current import Fleet
from sunfleet_router.fleet.snapshot import Route, Snapshot, Task
from sunfleet_router.telemetry import admin

OLD = Route("r1", 100, "n/base", "salt")
NEW = Route("r2", 100, "n/base", "salt-2", module="n-maths-r2")


@pytest.fixture
def fleet() -> Fleet:
    made = Fleet()
    made.replace(Snapshot({"acme/maths": Task("acme/maths", routes=(OLD,)), "idle": Task("idle")}, {"n/base": ()}))
    return made


@pytest.fixture
def url(fleet: Fleet) -> Iterator[str]:
    server, thread = admin.serve(0, "127.0.0.1", admin.RoutesPage(fleet, ["n"]))
    yield f"http://127.0.0.1:{server.server_port}"
    admin.end(server, thread)


def _routes(url: str) -> Routes:
    with urllib.request.urlopen(url + PATH, timeout=5) as answer:
        return Routes.model_validate_json(answer.read())


def test_it_says_what_it_acts_on_now(url: str, fleet: Fleet) -> None:
    said = _routes(url)
    assert said.tasks == {"acme/maths": digest([Taken("r1", 100, "n/base", "salt")]), "idle": ""}
    assert (said.decoders, said.namespaces) == (frozenset({"n/base"}), ("n",))
    fleet.replace(Snapshot({"acme/maths": Task("acme/maths", routes=(NEW,))}))
    assert _routes(url).tasks == {"acme/maths": digest([Taken("r2", 100, "n/base", "salt-2", "n-maths-r2")])}


def test_there_is_nothing_else(url: str) -> None:
    with pytest.raises(HTTPError, match="404"):
        urllib.request.urlopen(url + "/metrics", timeout=5)


def test_connections_that_say_nothing_keep_nobody_waiting_and_hold_up_no_end(fleet: Fleet) -> None:
    server, thread = admin.serve(0, "127.0.0.1", admin.RoutesPage(fleet, ["n"]))
    with socket.create_connection(("127.0.0.1", server.server_port)) as one:
        one.sendall(b"GE")
        assert _routes(f"http://127.0.0.1:{server.server_port}").tasks
        ender = Thread(target=admin.end, args=(server, thread))
        ender.start()
        ender.join(admin._SILENCE / 2)
        assert not ender.is_alive()


@pytest.mark.parametrize("host", ["::1", "::"])
def test_it_listens_on_addresses_of_both_kinds(fleet: Fleet, host: str) -> None:
    server, thread = admin.serve(0, host, admin.RoutesPage(fleet, []))
    try:
        assert _routes(f"http://[::1]:{server.server_port}").tasks
    finally:
        admin.end(server, thread)


def test_an_answer_is_made_once_for_each_state_of_the_fleet(fleet: Fleet) -> None:
    page = admin.RoutesPage(fleet, [])
    first = page.body()
    assert page.body() is first
    fleet.replace(Snapshot())
    assert page.body() != first
