"""No revision gets a request before it answered golden prompts exactly through the real path; a wrong one never."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from sunfleet_api.names import ROLE_DECODE, ROLE_PREFILL
from sunfleet_fakes.engine.tokens import expected_text, tokenize
from support import fakes
from support.fakes import ApiProxy, condition, is_ready, patch
from support.fleets import Fleet
from support.golden import PROMPTS, asking, golden_map
from support.kubectl import Json, Kubectl, wait_until
from support.load import steady
from support.served import ANSWER_TOKENS, router_address

pytestmark = [pytest.mark.long, pytest.mark.timeout(240)]
TASK, GOLDEN, MAX_TOKENS = "maths", "golden", 8
READY_SECONDS = 120.0
OTHER = {"weights": {"uri": "hf://acme/maths@v2", "credentialsSecretRef": {"name": "hub"}}}


@pytest.fixture(scope="module")
def fleet(kubectl: Kubectl, make_namespace: Callable[[str], str], fake_image: str) -> Fleet:
    """A decoder and a task that asks for golden prompts which nobody has written yet; its pods are Ready."""
    namespace = make_namespace("golden")
    task = fakes.sun_model(TASK, "hf://acme/maths@main", model_name=f"{namespace}/{TASK}")
    task["spec"]["verification"] = asking(GOLDEN)
    made = Fleet(kubectl, namespace, fakes.decoder(fake_image), [task])
    kubectl.apply(made.manifests, namespace)
    wait_until("its pods are Ready", lambda: _ready_pods(made) == 2, READY_SECONDS)
    return made


def _ready_pods(fleet: Fleet) -> int:
    pods = [*fleet.pods(ROLE_DECODE), *fleet.pods(ROLE_PREFILL, TASK)]
    states = [state for pod in pods for state in pod.get("status", {}).get("conditions", [])]
    return sum((state["type"], state["status"]) == ("Ready", "True") for state in states)


def _module(fleet: Fleet, proxy: ApiProxy, role: str) -> str:
    """What the newest engine of a role calls its weights."""
    return fakes.identity(proxy.engine(fleet.pods(role)[-1]))


def _serving(thing: Json) -> list[str]:
    return [entry["revision"] for entry in thing["status"].get("traffic") or ()]


def test_pods_that_are_ready_get_no_request_before_their_answers_are_known_to_be_right(
    fleet: Fleet, proxy: ApiProxy
) -> None:
    seen = fleet.wait_for(
        "says that there are no prompts", "sunmodel", TASK,
        lambda thing: condition(thing, "Verified").get("reason") == "GoldenPromptsNotFound",
    )  # fmt: skip
    assert (is_ready(seen), _serving(seen)) == (False, [])
    prompts = golden_map(GOLDEN, _module(fleet, proxy, ROLE_PREFILL), _module(fleet, proxy, ROLE_DECODE))
    fleet.kubectl.apply([prompts], fleet.namespace)
    seen = fleet.wait_for("is verified", "sunmodel", TASK, is_ready, 120)
    assert _serving(seen) == [seen["status"]["currentRevision"]]
    verification = seen["status"]["verification"]
    assert (verification["passed"], verification["total"]) == (PROMPTS, PROMPTS)


def test_a_revision_with_other_answers_is_held_back_while_the_old_one_serves(
    fleet: Fleet, proxy: ApiProxy, kubectl: Kubectl
) -> None:
    """Follows the test above: the prompts are those of the revision that serves."""
    before = _serving(fleet.get("sunmodel", TASK))
    module, decoder = _module(fleet, proxy, ROLE_PREFILL), _module(fleet, proxy, ROLE_DECODE)
    pods = fakes.uids(fleet.pods(ROLE_PREFILL, TASK))

    def right(_task: str, prompt: str) -> str:
        return expected_text(module, decoder, tokenize(prompt), answer_tokens=ANSWER_TOKENS, max_tokens=MAX_TOKENS)

    with (
        router_address(kubectl) as url,
        steady(url, f"{fleet.namespace}/{TASK}", clients=2, max_tokens=MAX_TOKENS) as load,
    ):
        patch(kubectl, fleet.namespace, f"sunmodel/{TASK}", {"prefill": OTHER})
        seen = fleet.wait_for(
            "is held back", "sunmodel", TASK,
            lambda thing: condition(thing, "Verified").get("reason") == "GoldenPromptMismatch", 120,
        )  # fmt: skip
        wait_until("its pods are gone", lambda: fakes.uids(fleet.pods(ROLE_PREFILL, TASK)) == pods, 60)
    message = condition(seen, "Verified")["message"]
    assert "prompt 0: token 0 is" in message
    assert f"revision {before[0]} goes on serving" in message
    assert condition(seen, "Ready")["reason"] == "GoldenPromptMismatch"
    assert _serving(fleet.get("sunmodel", TASK)) == before
    assert load.asked
    assert load.failures(right) == []
