"""API keys: who may come in, to which tasks, how they are stored, and what is counted."""

from __future__ import annotations

import base64
from hashlib import sha256
from typing import Any

import pytest
import yaml
from prometheus_client import generate_latest

from sunfleet_api import names
from sunfleet_router.discovery.watching import KubernetesDiscovery
from sunfleet_router.engines.upstream import Upstream
from sunfleet_router.errors import UnauthenticatedError, UnavailableError
from sunfleet_router.fleet.current import Fleet
from sunfleet_router.fleet.replicas import Replicas
from sunfleet_router.fleet.snapshot import Rate
from sunfleet_router.keys.keyring import KeyFormatError, KeyRing, StoredKey, of_fields, of_secret
from sunfleet_router.keys.making import main
from sunfleet_router.server import assemble_parts
from sunfleet_router.settings import ConfigError, RouterSettings
from sunfleet_router_harness import Engines, Router, RouterFactory, fleet_file

PATH = "/v1/completions"
TEXT: dict[str, Any] = {"model": "acme/maths", "prompt": "one two three", "max_tokens": 4}


def digest(key: str) -> str:
    return sha256(key.encode()).hexdigest()


def stored(name: str, *keys: str, tasks: str = "*") -> StoredKey:
    return of_fields(name, {"sha256": " ".join(map(digest, keys)), "tasks": tasks})


def ring_of(*keys: StoredKey) -> KeyRing:
    ring = KeyRing(required=True)
    ring.replace(keys)
    return ring


@pytest.mark.parametrize(
    "headers",
    [{b"authorization": b"Bearer right"}, {b"authorization": b"bearer  right "}, {b"x-api-key": b"right"}],
)
def test_a_key_is_known_by_either_header(headers: dict[bytes, bytes]) -> None:
    assert ring_of(stored("alice", "right")).identify(headers).name == "alice"


@pytest.mark.parametrize(
    "headers",
    [
        {}, {b"authorization": b"Bearer wrong"}, {b"authorization": b"right"}, {b"authorization": b"Basic right"},
        {b"authorization": b"Bearer "}, {b"x-api-key": b""}, {b"x-api-key": digest("right").encode()},
    ],
)  # fmt: skip
def test_nothing_else_is_a_key_and_its_digest_least_of_all(headers: dict[bytes, bytes]) -> None:
    with pytest.raises(UnauthenticatedError):
        ring_of(stored("alice", "right")).identify(headers)


def test_two_digests_that_begin_alike_are_two_keys() -> None:
    ring = ring_of(stored("alice", "right"))
    first = bytes.fromhex(digest("right"))
    ring.replace([StoredKey(stored("eve", "x").key, (first[:8] + bytes(24),)), stored("alice", "right")])
    assert ring.identify({b"x-api-key": b"right"}).name == "alice"


def test_before_the_keys_are_known_nobody_is_refused_for_good() -> None:
    with pytest.raises(UnavailableError) as early:
        KeyRing(required=True).identify({b"x-api-key": b"right"})
    assert early.value.code == "not_synced"


def test_a_secret_says_what_its_key_may_do() -> None:
    fields = {
        "sha256": f"{digest('old')}\n{digest('new')}\n", "tasks": "acme/*, code", "maxInFlight": "3",
        "requestsPerMinute": "60", "tokensPerMinute": "1000", "priority": "-5",
    }  # fmt: skip
    data = {name: base64.b64encode(value.encode()).decode() for name, value in fields.items()}
    found = of_secret({"metadata": {"name": "alice"}, "data": data})
    key = found.key
    assert (key.name, key.tasks, key.max_in_flight, key.rate, key.priority) == (
        "alice", ("acme/*", "code"), 3, Rate(60, 1000), -5,
    )  # fmt: skip
    assert [one.hex() for one in found.digests] == [digest("old"), digest("new")]
    assert [key.allows(task) for task in ("acme/maths", "code", "coder", "other/acme/maths")] == [
        True, True, False, False,
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("fields", "named"),
    [
        ({"tasks": "*"}, "sha256"),
        ({"sha256": "secret", "tasks": "*"}, "sha256"),
        ({"sha256": digest("a").upper(), "tasks": "*"}, "sha256"),
        ({"sha256": digest("a")}, "tasks"),
        ({"sha256": digest("a"), "tasks": "*", "maxInflight": "3"}, "maxInflight"),
        ({"sha256": digest("a"), "tasks": "*", "maxInFlight": "0"}, "maxInFlight"),
        ({"sha256": digest("a"), "tasks": "*", "priority": "high"}, "priority"),
    ],
)
def test_a_secret_that_is_no_key_is_refused_by_the_field(fields: dict[str, str], named: str) -> None:
    with pytest.raises(KeyFormatError, match=named) as error:
        of_fields("alice", fields)
    assert "secret" not in str(error.value)


def test_a_made_key_opens_what_its_secret_says(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["alice", "--task", "acme/*", "--task", "code", "--tokens-per-minute", "9", "--priority", "-2"]) == 0
    shown = capsys.readouterr()
    manifest, key = yaml.safe_load(shown.out), shown.err.split()[-1]
    assert manifest["metadata"]["labels"] == {names.LABEL_API_KEY: "true"}
    assert key not in shown.out
    one = of_fields(manifest["metadata"]["name"], manifest["stringData"])
    found = ring_of(one).identify({b"x-api-key": key.encode()})
    assert (found.tasks, found.rate.tokens, found.priority) == (("acme/*", "code"), 9, -2)
    assert main(["alice", "--task", "*", "--max-in-flight", "none"]) == 2


# Through a running router


@pytest.fixture
async def router(start_router: RouterFactory, engines: Engines) -> Router:
    keys = [
        {"name": "alice", "sha256": digest("right"), "tasks": "acme/*", "priority": -1},
        {"name": "bob", "sha256": digest("other"), "tasks": "code", "requestsPerMinute": 1},
    ]
    return await start_router(fleet={**fleet_file(engines), "keys": keys}, settings={"authentication": "keys"})


def bearer(key: str) -> dict[str, str]:
    return {"authorization": f"Bearer {key}"}


@pytest.mark.parametrize("path", [PATH, "/v1/models", "/v1/models/acme/maths", "/nope", "/metrics"])
async def test_without_a_key_every_path_but_the_probes_is_401(router: Router, engines: Engines, path: str) -> None:
    for headers in ({}, bearer("wrong")):
        method = "POST" if path == PATH else "GET"
        async with router.http.request(method, router.url + path, json=TEXT, headers=headers) as answer:
            error = (await answer.json())["error"]
            assert (answer.status, error["code"]) == (401, "invalid_api_key")
            assert answer.headers["www-authenticate"] == "Bearer"
    for probe in ("/livez", "/readyz"):
        async with router.http.get(router.url + probe) as answer:
            assert answer.status == 200
    assert not engines.prefill_requests()
    assert router.parts.metrics.requests.labels("", "invalid_api_key")._value.get() == 2


async def test_a_key_opens_its_own_tasks_and_the_others_do_not_exist_for_it(router: Router) -> None:
    assert (await router.post(PATH, TEXT, **bearer("right")))[0] == 200
    status, body = await router.post(PATH, {**TEXT, "model": "code"}, **bearer("right"))
    assert (status, body["error"]["code"]) == (404, "model_not_found")
    for key, found in (("right", ["acme/maths"]), ("other", ["code"])):
        async with router.http.get(router.url + "/v1/models", headers=bearer(key)) as answer:
            assert [one["id"] for one in (await answer.json())["data"]] == found
    async with router.http.get(router.url + "/v1/models/code", headers=bearer("right")) as answer:
        assert answer.status == 404


async def test_a_keys_limits_and_its_use_are_its_own(router: Router) -> None:
    body = {**TEXT, "model": "code"}
    assert (await router.post(PATH, body, **bearer("other")))[0] == 200
    async with router.http.post(router.url + PATH, json=body, headers=bearer("other")) as answer:
        assert answer.status == 429
        assert answer.headers["x-sunfleet-request-dropped-reason"] == "key_requests_per_minute"
    status, refused = await router.post(PATH, {**body, "priority": -1}, **bearer("other"))
    assert (status, refused["error"]["code"]) == (400, "priority_not_allowed")
    assert (await router.post(PATH, {**TEXT, "priority": -1}, **bearer("right")))[0] == 200
    text = generate_latest(router.parts.metrics.registry).decode()
    for series in (
        'key_requests_total{code="ok",key="alice"} 1.0',
        'key_requests_total{code="ok",key="bob"} 1.0',
        'key_requests_total{code="key_requests_per_minute",key="bob"} 1.0',
        'key_tokens_total{key="alice",kind="output"} 4.0',
        'key_tokens_total{key="bob",kind="prompt"} 3.0',
    ):
        assert f"sunfleet_router_{series}" in text
    router.parts.metrics.keys_changed(frozenset({"alice"}))
    assert 'key="bob"' not in generate_latest(router.parts.metrics.registry).decode()


async def test_no_key_stands_in_a_log(router: Router, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level("DEBUG"):
        await router.post(PATH, {**TEXT, "model": "code"}, **bearer("right"))
        await router.post(PATH, TEXT, **bearer("not-right"))
    assert "right" not in caplog.text


async def test_a_router_that_nobody_could_use_does_not_start(engines: Engines, tmp_path: Any) -> None:
    config = tmp_path / "fleet.yaml"
    config.write_text(yaml.safe_dump(fleet_file(engines)))
    with pytest.raises(ConfigError, match="SUNFLEET_ROUTER_AUTHENTICATION=disabled"):
        assemble_parts(RouterSettings(config=config))
    settings = RouterSettings()
    with pytest.raises(ConfigError, match="SUNFLEET_ROUTER_KEYS_NAMESPACE"):
        KubernetesDiscovery(
            settings, Fleet(), KeyRing(required=True), Upstream(connect_timeout=1, idle_timeout=1), Replicas()
        )
