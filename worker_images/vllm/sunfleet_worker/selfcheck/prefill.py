"""What a prefill pod shows before it is ready: whole hand-overs, an open side channel, and KV that it can let go of."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from vllm.distributed.kv_transfer.kv_connector.v1.nixl.metadata import NixlHandshakePayload

from sunfleet_api import wire
from sunfleet_worker.frontend.checks import INCOMPLETE
from sunfleet_worker.handover import KEY_OUTPUT_LOGPROBS
from sunfleet_worker.selfcheck.inside import Answer
from sunfleet_worker.selfcheck.pod import COMPLETIONS, Check, Pod, expect, expect_refusal, fresh_salt, request
from sunfleet_worker.selfcheck.sidechannel import metadata_of

_MAX_TOKENS = 4  # the client's: more than the prefill's one, so that KV is kept


async def prove(pod: Pod, payloads: Sequence[NixlHandshakePayload], check: Check) -> None:
    """Raise :class:`CheckFailedError` at the first thing that does not hold."""
    prompt, salt = pod.prompt, fresh_salt()
    async with check("refusal"):
        expect_refusal(
            await pod.post(COMPLETIONS, request(prompt, salt, max_tokens=_MAX_TOKENS, model=pod.module)),
            400,
            INCOMPLETE,
        )
    async with check("handover"):
        params = wire.prefill_params(_MAX_TOKENS)
        leg = request(prompt, salt, model=pod.module, max_tokens=1, logprobs=0, kv_transfer_params=params)
        transfer = _transfer(await pod.post(COMPLETIONS, leg), prompt)
        engine_ids = {metadata_of(payload).engine_id for payload in payloads}
        expect(
            engine_ids == {transfer["remote_engine_id"]},
            "the engine behind this pod's side channel is not the one that answers its requests",
        )
    async with check("release"):
        await pod.until_kv_is_held(held=True)
        await pod.engine.release([transfer["remote_request_id"]])
        await pod.until_kv_is_held(held=False)


def _transfer(answer: Answer, prompt: list[int]) -> dict[str, Any]:
    """The hand-over, with everything that hooks in the engine's processes must have put into it."""
    expect(answer.status == 200, answer.words)
    choice, transfer = answer.body["choices"][0], dict(answer.body.get("kv_transfer_params") or {})
    missing = list(wire.missing_fields(transfer))
    missing += [name for name in (KEY_OUTPUT_LOGPROBS, "remote_blocks_expiry_time") if transfer.get(name) is None]
    expect(not missing, f"the hand-over lacks {', '.join(missing)}")
    expect(choice.get("prompt_token_ids") == prompt, "the answer does not name the prompt's token ids")
    expect(len(choice.get("token_ids") or ()) == 1, "the answer does not name its one token")
    return transfer
