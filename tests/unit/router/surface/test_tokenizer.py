"""``/tokenize`` and ``/detokenize``: the engine's own bodies, answered by a prefill pod of the task and nobody else."""

from __future__ import annotations

from typing import Any

import pytest

from sunfleet_api import wire
from sunfleet_fakes.harness import tokenize
from sunfleet_router_harness import Engines, Router, RouterFactory, fleet_file

TEXT: dict[str, Any] = {"model": "acme/maths", "prompt": "one two three", "add_special_tokens": False}
CHAT: dict[str, Any] = {"model": "acme/maths", "messages": [{"role": "user", "content": "one two"}]}


async def test_a_prompt_and_a_chat_are_tokenized_as_the_tasks_engine_does_it(router: Router, engines: Engines) -> None:
    status, answer = await router.post("/tokenize", TEXT)
    assert (status, answer["tokens"], answer["count"]) == (200, tokenize("one two three"), 3)
    assert (await router.post("/tokenize", CHAT))[1]["count"] == 4
    assert (await router.post("/detokenize", {"model": "acme/maths", "tokens": [17, 18]}))[1] == {"prompt": " w17 w18"}
    asked = {one["path"]: one["body"] for one in engines.prefill_requests() if "messages" not in one["body"]}
    assert asked == {
        "/tokenize": {**TEXT, "model": wire.ENGINE_MODEL},
        "/detokenize": {"model": wire.ENGINE_MODEL, "tokens": [17, 18]},
    }
    assert not engines.code.requests()
    assert not engines.decode_requests()


@pytest.mark.parametrize(
    ("path", "body", "status", "code"),
    [
        ("/tokenize", {**TEXT, "model": "nobody"}, 404, "model_not_found"),
        ("/tokenize", {"prompt": "x"}, 400, "invalid_request"),
        ("/tokenize", {**TEXT, "model": "asleep"}, 503, "no_prefill_endpoint"),
        ("/tokenize", {**TEXT, "cache_salt": "x"}, 400, "invalid_request"),
        ("/tokenize", {**TEXT, "prompt": None}, 400, None),
        ("/detokenize", {"model": "acme/maths", "tokens": "x"}, 400, None),
    ],
)
async def test_what_cannot_be_tokenized_is_an_error(
    router: Router, path: str, body: dict[str, Any], status: int, code: str | None
) -> None:
    told, answer = await router.post(path, body)
    assert (told, answer["error"]["code"]) == (status, code or answer["error"]["code"])


async def test_a_pod_that_cannot_be_reached_is_passed_over(start_router: RouterFactory, engines: Engines) -> None:
    fleet = fleet_file(engines)
    fleet["tasks"][0]["prefill"][0]["url"] = "http://127.0.0.1:9"
    router = await start_router(fleet=fleet)
    for _ in range(6):
        assert (await router.post("/tokenize", TEXT))[0] == 200
    fleet["tasks"][0]["prefill"][1]["url"] = "http://127.0.0.1:9"
    router = await start_router(fleet=fleet)
    status, answer = await router.post("/tokenize", TEXT)
    assert (status, answer["error"]["code"]) == (503, "engine_unreachable")


async def test_a_pods_failure_is_told_and_its_refusal_passed_on(router: Router, engines: Engines) -> None:
    engines.configure_prefills(fail_status=500)
    assert (await router.post("/tokenize", TEXT))[0] == 502
    engines.configure_prefills(fail_status=400, fail_message="no such template")
    status, answer = await router.post("/v1/messages/count_tokens", {**CHAT})
    assert (status, answer["error"]["type"], answer["error"]["message"]) == (
        400, "invalid_request_error", "no such template",
    )  # fmt: skip
