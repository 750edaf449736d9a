"""An engine upgrade under open streams (R7): new decode and prefill pods come as pairs, and the old ones drain.

What is changed is the engine's contract (its attention backend), which like another image is another KV format; the
fake engines of the two formats refuse each other's KV, as real ones could not read it.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

import pytest

from sunfleet_api import names
from sunfleet_api.engine import ATTENTION_BACKEND
from sunfleet_api.names import ROLE_DECODE, ROLE_PREFILL
from sunfleet_fakes.engine.tokens import expected_text, tokenize
from support import fakes
from support.crowd import Crowd
from support.fakes import ApiProxy, is_ready, patch, uids
from support.fleet import wait_ready
from support.kubectl import Json, Kubectl, wait_until
from support.pooled import pooled_model, prefill_pool
from support.scaled import behaving
from support.served import ServedFleet, router_address
from support.streams import Reply

pytestmark = [pytest.mark.long, pytest.mark.timeout(400)]
OWN, POOLED = "maths", "code"  # a task with a pod of its own, and one whose adapter a pool's pods hold
STREAMS, TOKENS, DRAIN_SECONDS, UPGRADED_SECONDS = 60, 40, 120, 240
# One token a second, so that every stream is under way for longer than the first new pods take to come.
PACE = {"tokens_per_second": 1, "answer_tokens": TOKENS}
REFUSAL = "the KV fingerprints of prefill and decoder differ"


@dataclass
class Formats:
    """KV format of every engine pod that was ever seen, and what decode pods said of KV that they could not read."""

    of_pod: dict[str, str] = field(default_factory=dict)
    refusals: set[str] = field(default_factory=set)

    def look(self, fleet: ServedFleet) -> dict[str, set[str]]:
        """Formats of the pods of each role that are there now."""
        now: dict[str, set[str]] = {ROLE_DECODE: set(), ROLE_PREFILL: set()}
        for role, found in now.items():
            for pod in fleet.pods(role):
                labels = pod["metadata"]["labels"]
                self.of_pod[pod["metadata"]["name"]] = labels[names.LABEL_KV_FINGERPRINT]
                found.add(labels[names.LABEL_KV_FINGERPRINT])
        return now

    def listen(self, fleet: ServedFleet) -> None:
        """What the decode pods that are there were asked and could not do."""
        for engine in fleet.engines(ROLE_DECODE):
            with contextlib.suppress(OSError):  # it has just ended
                self.refusals |= {str(one["detail"]) for one in engine.requests() if REFUSAL in str(one["detail"])}

    def mixed(self, replies: Sequence[Reply]) -> list[str]:
        """Answers whose two pods were of different formats."""
        pairs = [(reply.prefill_pod, reply.decode_pod) for reply in replies]
        return [f"{a} with {b}" for a, b in pairs if self.of_pod.get(a, "?") != self.of_pod.get(b, "??")]


@pytest.fixture(scope="module")
def fleet(
    kubectl: Kubectl, proxy: ApiProxy, make_namespace: Callable[[str], str], fake_image: str
) -> Iterator[ServedFleet]:
    """Two decode pods, a task's own prefill pod, and a pool of two."""
    namespace = make_namespace("upgrade")
    own = fakes.sun_model(OWN, "hf://acme/maths", model_name=f"{namespace}/{OWN}", drain_seconds=DRAIN_SECONDS)
    pooled = pooled_model(POOLED, "hf://acme/code-lora", model_name=f"{namespace}/{POOLED}")
    for task in (own, pooled):
        task["spec"]["traffic"] = {"maxInFlight": 2 * STREAMS}
    decoder = fakes.decoder(fake_image, replicas=2, drain_seconds=DRAIN_SECONDS)
    pool = prefill_pool()
    kubectl.apply([pooled, *(behaving(made, PACE) for made in (decoder, own, pool))], namespace)
    wait_ready(kubectl, namespace, 120)
    with router_address(kubectl) as url:
        made = ServedFleet(kubectl, proxy, namespace, url)
        made.identities[ROLE_DECODE] = fakes.identity(made.engines(ROLE_DECODE)[0])
        made.identities[OWN] = fakes.identity(made.engines(ROLE_PREFILL, OWN)[0])
        made.identities[POOLED] = _adapter(made)
        yield made


def _adapter(fleet: ServedFleet) -> str:
    """What the pool's pods call the module of the task that they serve."""
    (entry,) = fleet.kubectl.get("sunmodel", POOLED, "--namespace", fleet.namespace)["status"]["traffic"]
    name = entry["prefill"]["adapter"]
    told = [engine.request("GET", "/fake/config")["adapters"] for engine in fleet.engines(ROLE_PREFILL)]
    return str(next(found[name] for found in told if name in found))


def test_new_pairs_take_over_from_old_ones_and_no_stream_breaks_or_mixes_two_formats(fleet: ServedFleet) -> None:
    formats = Formats()
    before = formats.look(fleet)
    assert before[ROLE_DECODE] == before[ROLE_PREFILL]
    old = {**uids(fleet.pods(ROLE_DECODE)), **uids(fleet.pods(ROLE_PREFILL))}

    def upgrade() -> None:
        backend = [{"name": ATTENTION_BACKEND, "value": "TRITON_ATTN"}]
        patch(fleet.kubectl, fleet.namespace, "shareddecoder/base", {"engine": {"extraArgs": backend}})
        wait_until("the fleet is upgraded", lambda: _upgraded(fleet, formats, before), UPGRADED_SECONDS)
        wait_until("the old pods have drained", lambda: not _left(fleet, old), UPGRADED_SECONDS)
        formats.listen(fleet)

    crowd = Crowd(fleet.url, [fleet.model(OWN), fleet.model(POOLED)], STREAMS, TOKENS)
    replies, asked = crowd.under_way(upgrade)
    assert crowd.faults(replies, asked, lambda model, prompt, limit: _right(fleet, model, prompt, limit)) == []
    assert formats.mixed([*replies, *(one.reply for one in asked)]) == []
    assert formats.refusals == set()
    served = {formats.of_pod[one.reply.decode_pod] for one in asked}
    assert served == set(formats.of_pod.values()), "both formats served requests meanwhile"
    assert len(served) == 2
    assert formats.look(fleet)[ROLE_PREFILL] == served - before[ROLE_DECODE]


def _upgraded(fleet: ServedFleet, formats: Formats, before: dict[str, set[str]]) -> bool:
    """Every wanted pod is of the new format. Until then whoever makes KV has a decode pod that reads it."""
    now = formats.look(fleet)
    formats.listen(fleet)
    objects: list[Json] = [
        fleet.kubectl.get(target, "--namespace", fleet.namespace)
        for target in ("shareddecoder/base", "prefillpool/shared", f"sunmodel/{OWN}", f"sunmodel/{POOLED}")
    ]
    moved = not before[ROLE_DECODE] & (now[ROLE_DECODE] | now[ROLE_PREFILL])
    return moved and all(is_ready(thing) for thing in objects)


def _left(fleet: ServedFleet, old: dict[str, str]) -> set[str]:
    """Old pods that are still there, those that drain included."""
    pods = fleet.kubectl.items("pods", "--namespace", fleet.namespace, "--selector", names.LABEL_ROLE)
    return old.keys() & uids(pods).keys()


def _right(fleet: ServedFleet, model: str, prompt: str, limit: int) -> str:
    module, decoder = fleet.identities[model.rpartition("/")[2]], fleet.identities[ROLE_DECODE]
    return expected_text(module, decoder, tokenize(prompt), answer_tokens=TOKENS, max_tokens=limit)
