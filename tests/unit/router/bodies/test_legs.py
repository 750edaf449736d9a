"""Between the two legs: a hand-over is whole, or there is no decode leg."""

from __future__ import annotations

import itertools

import pytest

from sunfleet_router.bodies import clientbody, legs
from sunfleet_router.bodies.handover import PrefillReply
from sunfleet_router.bodies.tokenids import TokenIds
from sunfleet_router.errors import HandoverIncompleteError, LegFailedError

FULL = {
    "remote_block_ids": [1], "remote_engine_id": "e", "remote_request_id": "r", "remote_host": "h", "remote_port": 1,
}  # fmt: skip


def test_no_decode_body_can_be_made_of_an_incomplete_hand_over() -> None:
    ask = clientbody.parse("completion", b'{"model": "m", "prompt": "a"}')
    for size in range(len(FULL)):
        for some in itertools.combinations(FULL, size):
            reply = PrefillReply({}, TokenIds.of([1]), [2], {name: FULL[name] for name in some}, "length")
            with pytest.raises(HandoverIncompleteError):
                legs.decode_body(ask, "s", reply)
    for prompt, output in (([], [2]), ([1], [])):
        with pytest.raises(HandoverIncompleteError):
            legs.decode_body(ask, "s", PrefillReply({}, TokenIds.of(prompt), output, FULL, "length"))
    assert legs.decode_body(ask, "s", PrefillReply({}, TokenIds.of([1]), [2], FULL, "length"))


@pytest.mark.parametrize(
    "raw", [b"", b"[]", b"{}", b'{"choices": []}', b'{"choices": [1]}', b'{"choices": [{"token_ids": 1}]}']
)
def test_a_prefill_answer_of_another_shape_is_a_failure_of_the_leg(raw: bytes) -> None:
    with pytest.raises(LegFailedError):
        legs.read_prefill(raw)
