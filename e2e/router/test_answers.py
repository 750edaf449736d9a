"""What a client gets from the router on a real cluster: right answers, and for everything else the right error."""

from __future__ import annotations

import pytest

from support.fakes import MAX_MODEL_LEN, patch
from support.kubectl import wait_until
from support.served import ServedFleet
from support.streams import Reply, ask, ask_all, completion

pytestmark = pytest.mark.timeout(150)


def decoder_requests(fleet: ServedFleet) -> int:
    """Generation requests that any decode pod has seen since the last reset."""
    return sum(len(engine.requests()) for engine in fleet.engines("decode"))


def refusal(fleet: ServedFleet, task: str) -> Reply:
    """The first error of a task that has just lost its pods. The router learns of it moments after the API server: a
    request sent in between still meets a pod that drains, and must be answered right."""

    def refused() -> Reply | None:
        reply = ask(fleet.url, completion(fleet.model(task), "hello"))
        if reply.status == 200:
            assert reply.text == fleet.expected(task, "hello")
            return None
        return reply

    reply: Reply = wait_until(f"{task} is refused", refused, 5, 0.1)
    return reply


@pytest.mark.parametrize("stream", [False, True])
def test_each_task_answers_with_its_own_module_and_the_shared_decoder(fleet: ServedFleet, stream: bool) -> None:
    texts = {}
    for task in ("maths", "code"):
        reply = ask(fleet.url, completion(fleet.model(task), "one two three", stream=stream))
        assert (reply.status, reply.finish_reason, reply.done) == (200, "stop", True)
        assert reply.text == fleet.expected(task, "one two three")
        texts[task] = reply.text
    assert texts["maths"] != texts["code"]


def test_no_decoder_computes_a_prompt_and_every_prompt_is_computed_once(fleet: ServedFleet) -> None:
    bodies = [completion(fleet.model(task), f"question {n}") for n in range(8) for task in ("maths", "code")]
    assert all(reply.done for reply in ask_all(fleet.url, bodies))
    assert sum(engine.prompt_tokens("local_compute") for engine in fleet.engines("decode")) == 0
    assert sum(engine.prompt_tokens("local_compute") for engine in fleet.engines("prefill")) == 2 * len(bodies)
    assert sum(engine.metric("fake:kv_blocks_used") for engine in fleet.engines("prefill")) == 0


def test_both_decode_pods_serve_both_tasks(fleet: ServedFleet) -> None:
    fleet.configure("decode", tokens_per_second=50)
    bodies = [completion(fleet.model(task), f"question {n}") for n in range(8) for task in ("maths", "code")]
    assert all(reply.done for reply in ask_all(fleet.url, bodies))
    for engine in fleet.engines("decode"):
        models = {request["body"]["kv_transfer_params"]["sun_response_model"] for request in engine.requests()}
        assert models == {fleet.model("maths"), fleet.model("code")}


def test_an_unknown_model_is_not_found(fleet: ServedFleet) -> None:
    reply = ask(fleet.url, completion(fleet.model("nobody"), "hello"))
    assert (reply.status, reply.code) == (404, "model_not_found")
    assert "nobody" in (reply.error or {})["message"]


def test_a_body_that_is_no_json_is_a_bad_request(fleet: ServedFleet) -> None:
    reply = ask(fleet.url, b'{"model": ')
    assert (reply.status, (reply.error or {})["type"]) == (400, "invalid_request_error")


def test_a_prompt_that_cannot_fit_is_refused_before_any_decoder_sees_it(fleet: ServedFleet) -> None:
    reply = ask(fleet.url, completion(fleet.model("maths"), "word " * (MAX_MODEL_LEN + 1)))
    assert reply.status == 400
    assert str(MAX_MODEL_LEN) in (reply.error or {})["message"]
    assert decoder_requests(fleet) == 0


def test_without_prefill_pods_a_task_is_unavailable_and_no_decoder_is_asked(fleet: ServedFleet) -> None:
    fleet.kubectl.run("scale", "sunmodel/maths", "--replicas=0", "--namespace", fleet.namespace)
    try:
        wait_until("no prefill pod", lambda: not fleet.pods("prefill", "maths"), 30, 0.5)
        reply = refusal(fleet, "maths")
        assert (reply.status, reply.code) == (503, "no_prefill_endpoint")
        assert int(reply.headers["retry-after"]) > 0
        before = decoder_requests(fleet)
        assert ask(fleet.url, completion(fleet.model("maths"), "hello")).code == "no_prefill_endpoint"
        assert decoder_requests(fleet) == before
        assert ask(fleet.url, completion(fleet.model("code"), "hello")).done
    finally:
        fleet.kubectl.run("scale", "sunmodel/maths", "--replicas=1", "--namespace", fleet.namespace)


def test_without_decode_pods_a_task_is_unavailable(fleet: ServedFleet) -> None:
    patch(fleet.kubectl, fleet.namespace, "shareddecoder/base", {"replicas": 0})
    try:
        wait_until("no decode pod", lambda: not fleet.pods("decode"), 30, 0.5)
        reply = refusal(fleet, "maths")
        assert (reply.status, reply.code) == (503, "no_decode_endpoint")
        assert sum(engine.metric("fake:kv_leases") for engine in fleet.engines("prefill")) == 0
    finally:
        patch(fleet.kubectl, fleet.namespace, "shareddecoder/base", {"replicas": 2})


@pytest.mark.parametrize("field", ["remote_block_ids", "remote_port"])
def test_an_incomplete_hand_over_is_an_error_and_reaches_no_decoder(fleet: ServedFleet, field: str) -> None:
    fleet.configure("prefill", "maths", drop_transfer_fields=[field])
    reply = ask(fleet.url, completion(fleet.model("maths"), "hello"))
    assert reply.status in {502, 503}
    assert reply.error
    assert decoder_requests(fleet) == 0


def test_a_client_that_leaves_frees_both_sides(fleet: ServedFleet) -> None:
    fleet.configure("decode", tokens_per_second=5)

    class ClientLeftError(OSError):
        pass

    def leave(count: int) -> None:
        if count == 2:
            raise ClientLeftError

    bodies = [completion(fleet.model("maths"), f"question {n}", stream=True) for n in range(8)]
    assert all("ClientLeftError" in reply.broken for reply in ask_all(fleet.url, bodies, on_event=leave))
    engines = [*fleet.engines("decode"), *fleet.engines("prefill")]
    wait_until(
        "all KV is free", lambda: not any(engine.metric("fake:kv_blocks_used") for engine in engines), 5, 0.2
    )  # fmt: skip
    outcomes = {request["outcome"] for engine in fleet.engines("decode") for request in engine.requests()}
    assert outcomes == {"disconnected"}
