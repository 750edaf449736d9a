"""The self-check: what it asks of a pod, and that a pod which does not hold one of its promises is found out."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from dataclasses import dataclass, field, replace
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
from fastapi import FastAPI, Request
from prometheus_client import CollectorRegistry
from vllm.distributed.kv_transfer.kv_connector.v1.nixl.metadata import NixlAgentMetadata, NixlHandshakePayload

from sunfleet_api import wire
from sunfleet_api.worker import WorkerSettings
from sunfleet_worker import errors
from sunfleet_worker.frontend.gate import Traffic
from sunfleet_worker.frontend.metrics import PodMetrics
from sunfleet_worker.frontend.standing import SELF_CHECK, Standing
from sunfleet_worker.frontend.streams import WatchedEngine
from sunfleet_worker.handover import KEY_OUTPUT_LOGPROBS
from sunfleet_worker.selfcheck import decode, peer, prefill, run, sidechannel
from sunfleet_worker.selfcheck.inside import Answer, post
from sunfleet_worker.selfcheck.pod import CheckFailedError, Pod, checking

LAYOUT = NixlAgentMetadata(
    engine_id="engine", agent_metadata=b"", kv_caches_base_addr=[1, 2], device_id=0, num_blocks=11,
    block_lens=[64, 32], block_strides=[64, 32], kv_cache_layout="LBHNC", block_size=16, ssm_sizes=(0, 0),
    attn_backend_name="CPU_ATTN", physical_blocks_per_logical_kv_block=1,
)  # fmt: skip


def payload(hashed: str = "h", **changes: Any) -> NixlHandshakePayload:
    return NixlHandshakePayload(hashed, msgspec.msgpack.encode(replace(LAYOUT, **changes)))


PAYLOADS = (payload(),)


@dataclass
class Fake:
    """A pod's application and engine, answering as ``answers`` and ``ends`` say; keeps what it was asked."""

    role: Any
    answers: Callable[[dict[str, Any]], tuple[int, dict[str, Any]]]
    ended: str | None = errors.GUARD  # with which the engine ends what bypasses the front end; None: not at all
    kv: float = 0.0
    releases: bool = True
    asked: list[dict[str, Any]] = field(default_factory=list)
    registry: CollectorRegistry = field(default_factory=CollectorRegistry)

    def __post_init__(self) -> None:
        model, cache = SimpleNamespace(max_model_len=100), SimpleNamespace(block_size=16)
        transfer = SimpleNamespace(kv_buffer_device="cuda")  # no peer with KV: that needs the real engine
        self.vllm_config = SimpleNamespace(model_config=model, cache_config=cache, kv_transfer_config=transfer)
        self.metrics = PodMetrics(self.role, self.registry)

    async def app(self, scope: Any, receive: Any, send: Any) -> None:
        assert scope[SELF_CHECK]
        body = json.loads((await receive())["body"])
        self.asked.append(body)
        status, answer = self.answers(body)
        await send({"type": "http.response.start", "status": status, "headers": []})
        await send({"type": "http.response.body", "body": json.dumps(answer).encode()})

    async def generate(self, _: Any, sampling: Any, __: str) -> AsyncGenerator[Any, None]:
        assert sampling.prompt_logprobs == 0
        finish, stop = ("abort", self.ended) if self.ended else ("length", None)
        yield SimpleNamespace(outputs=[SimpleNamespace(finish_reason=finish, stop_reason=stop)])

    async def notify_kv_transfer_request_rejected(self, _: str, params: dict[str, Any]) -> None:
        if self.releases:
            self.kv = 0.0

    def pod(self) -> Pod:
        engine: Any = self
        settings = WorkerSettings(role=self.role)
        return Pod(self.app, WatchedEngine(engine, lambda _: None), settings, self.metrics, lambda: self.kv)

    def gauge(self, check: str) -> float | None:
        return self.registry.get_sample_value("sunfleet_worker_self_check", {"check": check})


def error(status: int, code: str) -> tuple[int, dict[str, Any]]:
    return status, {"error": {"code": code, "message": code}}


# --- prefill pods


TRANSFER = {
    "remote_block_ids": [[1, 2]], "remote_engine_id": "engine", "remote_request_id": "r", "remote_host": "h",
    "remote_port": 1, "remote_blocks_expiry_time": 30.0, KEY_OUTPUT_LOGPROBS: {"token_ids": [[7]]},
}  # fmt: skip


def prefill_pod(**broken: Any) -> Fake:
    """``broken`` replaces fields of the hand-over, and with ``bare`` or ``choice`` other parts of the answers."""
    bare, choice = broken.pop("bare", error(400, "handover_incomplete")), broken.pop("choice", {})
    kept = broken.pop("kv", 0.25)

    def answers(body: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        if "kv_transfer_params" not in body:
            answered: tuple[int, dict[str, Any]] = bare
            return answered
        made.kv = kept
        transfer = {name: value for name, value in (TRANSFER | broken).items() if value is not None}
        first = {"token_ids": [7], "prompt_token_ids": body["prompt"], "finish_reason": "length", **choice}
        return 200, {"choices": [first], "kv_transfer_params": transfer}

    made = Fake("prefill", answers)
    return made


async def prove_prefill(fake: Fake) -> None:
    await prefill.prove(fake.pod(), PAYLOADS, checking(fake.metrics, seconds=0.1))


async def test_a_prefill_pod_that_holds_its_promises_passes() -> None:
    fake = prefill_pod()
    await prove_prefill(fake)
    assert [fake.gauge(check) for check in ("refusal", "handover", "release")] == [1, 1, 1]
    bare, leg = fake.asked
    assert "kv_transfer_params" not in bare
    assert leg["kv_transfer_params"] == wire.prefill_params(4)
    assert len(leg["prompt"]) == 17, "one block and the beginning of another"
    assert len(leg["cache_salt"]) > 32


@pytest.mark.parametrize(
    ("broken", "check", "words"),
    [
        ({"bare": (200, {"choices": []})}, "refusal", "expected 400 handover_incomplete, got status 200"),
        *(({name: None}, "handover", f"lacks {name}") for name in wire.REQUIRED_TRANSFER_FIELDS),
        ({"remote_blocks_expiry_time": None}, "handover", "lacks remote_blocks_expiry_time"),
        ({KEY_OUTPUT_LOGPROBS: None}, "handover", f"lacks {KEY_OUTPUT_LOGPROBS}"),
        ({"choice": {"prompt_token_ids": None}}, "handover", "the prompt's token ids"),
        ({"choice": {"token_ids": []}}, "handover", "its one token"),
        ({"remote_engine_id": "another"}, "handover", "side channel"),
        ({"kv": 0.0}, "release", "not done within"),
    ],
)
async def test_a_prefill_pod_that_breaks_a_promise_is_found_out(broken: dict[str, Any], check: str, words: str) -> None:
    fake = prefill_pod(**broken)
    with pytest.raises(CheckFailedError, match=words) as caught:
        await prove_prefill(fake)
    assert str(caught.value).startswith(f"{check}: ")
    assert fake.gauge(check) == 0


async def test_a_prefill_pod_that_keeps_kv_which_it_was_told_to_free_is_found_out() -> None:
    fake = prefill_pod()
    fake.releases = False
    with pytest.raises(CheckFailedError, match="release: not done within"):
        await prove_prefill(fake)


# --- decode pods


def decode_pod(
    bare: tuple[int, dict[str, Any]] = error(400, "handover_incomplete"),
    stranger: tuple[int, dict[str, Any]] = error(503, "sun_kv_load_failed"),
    **more: Any,
) -> Fake:
    return Fake("decode", lambda body: stranger if "kv_transfer_params" in body else bare, **more)


async def prove_decode(fake: Fake) -> None:
    await decode.prove(fake.pod(), PAYLOADS, checking(fake.metrics, seconds=0.5))


async def test_a_decode_pod_that_refuses_what_it_must_passes() -> None:
    fake = decode_pod()
    await prove_decode(fake)
    checks = ("refusal", "incompatible_peer", "guard", "release", "computed_prompt")
    assert [fake.gauge(check) for check in checks] == [1] * 5
    _, handed_over = fake.asked
    assert wire.missing_fields(handed_over["kv_transfer_params"]) == ()


ANSWER: tuple[int, dict[str, Any]] = (200, {"choices": [{"token_ids": [1]}]})


@pytest.mark.parametrize(
    ("broken", "check"),
    [
        ({"bare": ANSWER}, "refusal"),
        ({"stranger": ANSWER}, "incompatible_peer"),
        ({"stranger": error(500, "500")}, "incompatible_peer"),
        ({"ended": None}, "guard"),
        ({"ended": errors.PREEMPTED}, "guard"),
        ({"kv": 0.5}, "release"),
    ],
)
async def test_a_decode_pod_that_breaks_a_promise_is_found_out(broken: dict[str, Any], check: str) -> None:
    fake = decode_pod(**broken)
    with pytest.raises(CheckFailedError, match=f"^{check}: "):
        await prove_decode(fake)
    assert fake.gauge(check) == 0


async def test_a_decode_pod_that_computed_prompt_tokens_is_found_out() -> None:
    fake = decode_pod()
    fake.metrics.count_computed_prompt(3)
    with pytest.raises(CheckFailedError, match="computed_prompt: 3 prompt tokens"):
        await prove_decode(fake)


# --- the engines' handshake


async def test_a_side_channel_is_asked_as_it_is_played() -> None:
    told = {0: payload("one"), 1: payload("two", engine_id="other")}
    async with sidechannel.listening(told) as port:
        heard = await asyncio.wait_for(sidechannel.ask("127.0.0.1", port, 2), 5)
    assert heard == (told[0], told[1])
    assert sidechannel.metadata_of(heard[1]).engine_id == "other"


@pytest.mark.parametrize(
    "other",
    [
        (payload("another hash"),),
        (payload(block_size=32),),
        (payload(block_lens=[32, 32]),),
        (payload(kv_cache_layout="LBNHC"),),
        (payload(attn_backend_name="FLASH_ATTN"),),
        (payload(physical_blocks_per_logical_kv_block=2),),
        (payload(), payload()),
    ],
    ids=["hash", "block size", "bytes of a block", "layout", "backend", "kernel blocks", "tensor parallelism"],
)
def test_engines_that_differ_in_their_kv_have_other_contracts(other: tuple[NixlHandshakePayload, ...]) -> None:
    assert sidechannel.kv_contract(other) != sidechannel.kv_contract(PAYLOADS)


def test_what_every_engine_has_of_its_own_is_no_part_of_the_contract() -> None:
    own = payload(engine_id="x", agent_metadata=b"y", kv_caches_base_addr=[8, 9], num_blocks=5, device_id=3)
    assert sidechannel.kv_contract((own,)) == sidechannel.kv_contract(PAYLOADS)
    assert len(sidechannel.kv_contract(PAYLOADS)) == 32


async def test_without_host_memory_there_is_only_a_stranger_with_another_handshake() -> None:
    async with peer.playing(PAYLOADS, "cuda") as (twin, stranger):
        (heard,) = await asyncio.wait_for(sidechannel.ask("127.0.0.1", stranger.port, 1), 5)
    assert twin is None
    assert heard.compatibility_hash != PAYLOADS[0].compatibility_hash
    assert wire.missing_fields(stranger.transfer(3)) == ()


async def test_a_twin_offers_two_blocks_of_zeros_in_the_shape_of_our_kv() -> None:
    ranks = (payload(region_mem_types=["VRAM", "VRAM"]), payload(physical_blocks_per_logical_kv_block=2))
    async with peer.playing(ranks, "cpu") as (twin, stranger):
        assert twin is not None
        heard = await asyncio.wait_for(sidechannel.ask("127.0.0.1", twin.port, 2), 5)
        others = await asyncio.wait_for(sidechannel.ask("127.0.0.1", stranger.port, 2), 5)
    first, second = (sidechannel.metadata_of(one) for one in heard)
    assert [one.compatibility_hash for one in heard] == ["h", "h"]
    assert (first.engine_id, second.engine_id) == (twin.engine_id, twin.engine_id) != ("engine", "engine")
    assert (first.num_blocks, second.num_blocks) == (2, 4)
    assert first.region_mem_types == ["DRAM", "DRAM"]
    start = first.kv_caches_base_addr[0]
    assert first.kv_caches_base_addr == [start, start + 2 * 64]
    assert second.kv_caches_base_addr == [start + 2 * 96, start + 2 * 96 + 4 * 64]
    assert (first.agent_metadata, first.block_strides) != (b"", [])
    assert twin.transfer(17)["tp_size"] == 2
    # The stranger would be readable, were it not for its handshake.
    assert all(one.compatibility_hash != "h" for one in others)
    known = [replace(sidechannel.metadata_of(one), engine_id=twin.engine_id) for one in others]
    assert [replace(one, agent_metadata=b"") for one in known] == [
        replace(one, agent_metadata=b"") for one in (first, second)
    ]
    assert stranger.engine_id != twin.engine_id


@pytest.mark.parametrize(
    ("device", "changes", "playable"),
    [
        ("cpu", {}, True),
        ("cpu", {"region_group_ids": [0, 0]}, True),
        ("cuda", {}, False),
        ("cpu", {"region_group_ids": [0, 1]}, False),
        ("cpu", {"ssm_sizes": (8, 8)}, False),
    ],
)
def test_a_twin_is_played_only_where_that_is_known_to_work(
    device: str, changes: dict[str, Any], playable: bool
) -> None:
    assert peer.can_play((payload(**changes),), device) is playable


# --- asking oneself, and the order of things


async def test_a_request_to_oneself_meets_the_whole_application() -> None:
    app = FastAPI()

    @app.post("/echo")
    async def echo(request: Request) -> dict[str, Any]:
        return {"said": await request.json(), "self": request.scope[SELF_CHECK]}

    answer = await post(app, "/echo", {"a": 1})
    assert (answer.status, answer.body) == (200, {"said": {"a": 1}, "self": True})
    assert (await post(app, "/nowhere", {})).status == 404


@pytest.mark.parametrize("raw", [b"", b"[]", b"data: x"])
def test_an_answer_that_is_no_object_has_no_code(raw: bytes) -> None:
    assert (Answer(200, raw).body, Answer(200, raw).code) == ({}, "")


@pytest.fixture
async def side_channel() -> AsyncIterator[WorkerSettings]:
    async with sidechannel.listening({0: PAYLOADS[0]}) as port:
        yield WorkerSettings(role="decode", side_channel_port=port)


async def test_a_pod_is_not_ready_before_its_self_check_has_passed(
    side_channel: WorkerSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake, standing, reasons = decode_pod(), Standing(), list[str]()

    async def prove(*_: Any) -> None:
        reasons.append(standing.reason)
        if len(reasons) == 1:
            raise CheckFailedError("guard: expected one code, got another")
        if len(reasons) == 2:
            raise RuntimeError("something else")

    monkeypatch.setattr(decode, "prove", prove)
    pod = replace(fake.pod(), settings=side_channel)
    await asyncio.wait_for(run.run_until_passed(pod, standing, Traffic(), pause=0), 5)
    assert reasons == [
        "the self-check has not finished yet",
        "self-check failed: guard: expected one code, got another",
        "self-check failed: RuntimeError: something else",
    ]
    assert standing.proven
    assert standing.kv_contract == sidechannel.kv_contract(PAYLOADS)


async def test_a_pod_that_drains_is_checked_no_more(
    side_channel: WorkerSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    traffic, standing = Traffic(), Standing()

    async def prove(*_: Any) -> None:
        traffic.draining = True
        raise CheckFailedError("guard: a draining pod refuses")

    monkeypatch.setattr(decode, "prove", prove)
    pod = replace(decode_pod().pod(), settings=side_channel)
    await asyncio.wait_for(run.run_until_passed(pod, standing, traffic, pause=0), 5)
    assert not standing.proven


async def test_a_self_check_that_is_switched_off_still_asks_for_the_contract(side_channel: WorkerSettings) -> None:
    fake, standing = decode_pod(), Standing()
    pod = replace(fake.pod(), settings=side_channel.model_copy(update={"self_check": False}))
    await asyncio.wait_for(run.run_until_passed(pod, standing, Traffic()), 5)
    assert standing.proven
    assert standing.kv_contract
    assert fake.asked == []


async def test_a_prefill_pod_warms_up_what_a_first_request_would_wait_for(
    side_channel: WorkerSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake = Fake("prefill", lambda _: error(400, "no chat template"))
    monkeypatch.setattr(prefill, "prove", lambda *_: asyncio.sleep(0))
    standing = Standing()
    pod = replace(fake.pod(), settings=side_channel.model_copy(update={"role": "prefill"}))
    await asyncio.wait_for(run.run_until_passed(pod, standing, Traffic()), 5)
    chat, completion = fake.asked
    assert chat["messages"]
    assert chat["structured_outputs"]
    assert chat["repetition_penalty"] != 1.0
    assert "prompt" in completion
    assert standing.proven, "what a module cannot do is no reason not to serve"
