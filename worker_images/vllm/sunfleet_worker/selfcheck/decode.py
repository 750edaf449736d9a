"""What a decode pod shows before it is ready: it answers from whole hand-overs, and from nothing else."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from vllm.distributed.kv_transfer.kv_connector.v1.nixl.metadata import NixlHandshakePayload
from vllm.inputs.engine import tokens_input
from vllm.sampling_params import SamplingParams

from sunfleet_api import wire
from sunfleet_worker import errors
from sunfleet_worker.frontend.checks import INCOMPLETE
from sunfleet_worker.frontend.streams import EngineEndedError
from sunfleet_worker.selfcheck import peer as peers
from sunfleet_worker.selfcheck.peer import Peer
from sunfleet_worker.selfcheck.pod import COMPLETIONS, Check, Pod, expect, expect_refusal, fresh_salt, request
from sunfleet_worker.selfcheck.warmup import warm_up_decoding

_MODEL = "self-check"
_SEED = 7  # any token: the one that the prefill would have sampled
_MAX_TOKENS = 4


async def prove(pod: Pod, payloads: Sequence[NixlHandshakePayload], check: Check) -> None:
    """Raise :class:`CheckFailedError` at the first thing that does not hold; then use what a first request uses."""
    async with check("refusal"):
        bare = request(pod.prompt, fresh_salt(), max_tokens=_MAX_TOKENS)
        expect_refusal(await pod.post(COMPLETIONS, bare), 400, INCOMPLETE)
    device = pod.engine.vllm_config.kv_transfer_config.kv_buffer_device
    async with peers.playing(payloads, device) as (twin, stranger):
        async with check("incompatible_peer"):
            expect_refusal(await _continued(pod, stranger.transfer(len(pod.prompt))), 503, errors.KV_LOAD_FAILED)
        async with check("guard"):
            await _guarded(pod, (twin or stranger).transfer(len(pod.prompt)))
        if twin is not None:
            await _prove_transfer(pod, twin, check)
            await warm_up_decoding(pod, twin.transfer(len(pod.prompt)))
    async with check("release"):
        await pod.until_kv_is_held(held=False)
    async with check("computed_prompt"):
        computed = pod.metrics.computed_prompt_tokens
        expect(computed == 0, f"{computed} prompt tokens were computed on this decode pod")


async def _prove_transfer(pod: Pod, twin: Peer, check: Check) -> None:
    tokens = len(pod.prompt)
    async with check("expired_lease"):
        late = await _continued(pod, twin.transfer(tokens, lease_seconds=0))
        expect_refusal(late, 503, errors.KV_LOAD_FAILED)
    async with check("handover"):
        answer = await _continued(pod, twin.transfer(tokens))
        expect(answer.status == 200, answer.words)
        told, usage = answer.body["choices"][0].get("token_ids") or [], answer.body["usage"]
        expect(len(told) == _MAX_TOKENS and told[0] == _SEED, "the answer does not go on from the hand-over's token")
        expect(
            usage["prompt_tokens"] == tokens, f"the answer counts {usage['prompt_tokens']} of {tokens} prompt tokens"
        )
        expect(answer.body["model"] == _MODEL, "the answer does not carry the name that the hand-over gives it")


async def _continued(pod: Pod, transfer: dict[str, Any]) -> Any:
    params = wire.decode_params(transfer, pod.prompt, [_SEED], _MODEL)
    body = request(pod.prompt, fresh_salt(), max_tokens=_MAX_TOKENS, kv_transfer_params=params)
    return await pod.post(COMPLETIONS, body)


async def _guarded(pod: Pod, transfer: dict[str, Any]) -> None:
    """Past the front end: a request for the prompt's own log-probabilities makes the engine pass over handed-over KV,
    so that it would compute the prompt; only the guard in its scheduler is left to end it.
    """
    params = wire.decode_params(transfer, pod.prompt, [_SEED], _MODEL)
    sampling = SamplingParams(
        max_tokens=_MAX_TOKENS, temperature=0.0, prompt_logprobs=0, extra_args={"kv_transfer_params": params}
    )
    salt = fresh_salt()
    try:
        async for _ in pod.engine.generate(tokens_input(pod.prompt, cache_salt=salt), sampling, salt):
            pass
    except EngineEndedError as ended:
        expect(ended.reason.code == errors.GUARD, f"expected {errors.GUARD}, got {ended.reason.code}")
    else:
        expect(False, "a request whose prompt was not handed over was answered")
