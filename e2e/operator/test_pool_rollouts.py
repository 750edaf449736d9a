"""How another adapter of a task in a PrefillPool comes to serve: golden prompts first, then shares of the requests."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from support import fakes
from support.canaries import ANALYSIS, CLIENTS, STEP_SECONDS, alone, measured_router, serves_on
from support.fakes import ApiProxy, condition, patch
from support.golden import PROMPTS, asking, golden_map
from support.kubectl import Json, Kubectl, wait_until
from support.load import Load, steady
from support.pooled import MAX_TOKENS, PooledFleet, adapter_source, held, pooled_model, prefill_pool, text

pytestmark = [pytest.mark.long, pytest.mark.timeout(300)]
MATHS, CODE, GOLDEN = "maths", "code", "golden"
FIRST, SECOND, THIRD = "hf://acme/maths-lora@main", "hf://acme/maths-lora@v2", "hf://acme/code-lora"


@pytest.fixture(scope="module")
def fleet(
    kubectl: Kubectl, proxy: ApiProxy, make_namespace: Callable[[str], str], fake_image: str
) -> Iterator[PooledFleet]:
    """``maths`` serves; ``code`` asks for golden prompts that nobody has written yet. Requests are measured."""
    namespace = make_namespace("pooled")
    tasks = [
        pooled_model(MATHS, FIRST, model_name=f"{namespace}/{MATHS}"),
        pooled_model(CODE, THIRD, model_name=f"{namespace}/{CODE}", verification=asking(GOLDEN)),
    ]
    with measured_router(kubectl, proxy, fake_image) as url:
        kubectl.apply([fakes.decoder(fake_image), prefill_pool(), *tasks], namespace)
        made = PooledFleet(kubectl, proxy, namespace, url)
        made.ready(MATHS)
        yield made


@pytest.fixture
def load(fleet: PooledFleet) -> Iterator[Load]:
    """Clients of ``maths`` that ask all the time."""
    with steady(fleet.url, fleet.model(MATHS), clients=CLIENTS, max_tokens=MAX_TOKENS) as running:
        yield running


def _traffic(fleet: PooledFleet, task: str) -> dict[str, int]:
    """Weight by adapter."""
    entries = fleet.get("sunmodel", task)["status"].get("traffic") or ()
    return {entry["prefill"]["adapter"]: entry["weight"] for entry in entries}


def _canary(fleet: PooledFleet, task: str = MATHS) -> dict[str, Any]:
    return dict(fleet.get("sunmodel", task)["status"].get("canary") or {})


def _wait_phase(fleet: PooledFleet, phase: str) -> str:
    """Name of the canary's adapter, once it is in this phase."""
    told: Json = wait_until(
        f"the canary is {phase}: {_canary(fleet)}",
        lambda: found if (found := _canary(fleet)).get("phase") == phase else None,
        STEP_SECONDS,
    )
    return f"{fleet.namespace}.{MATHS}-{told['revision']}"


def _settle(fleet: PooledFleet, uri: str) -> str:
    """``maths`` without a canary; its adapter."""
    spec = {"prefill": adapter_source(uri), "canary": None}
    patch(fleet.kubectl, fleet.namespace, f"sunmodel/{MATHS}", spec)

    adapter: str = wait_until("one adapter serves alone", lambda: alone(fleet.get("sunmodel", MATHS)), STEP_SECONDS)
    return adapter


def _wrong(fleet: PooledFleet, load: Load, modules: list[str]) -> list[str]:
    """Answers that are of none of these modules."""
    decoder = fleet.decoder()
    return [
        f"{one.prompt}: {one.reply.error or one.reply.broken or one.reply.text}"
        for one in load.asked
        if not one.reply.done or one.reply.text not in {text(module, decoder, one.prompt) for module in modules}
    ]


def test_pods_load_an_adapter_and_no_request_goes_to_it_before_its_answers_are_known_to_be_right(
    fleet: PooledFleet,
) -> None:
    def told() -> bool:
        return condition(fleet.get("sunmodel", CODE), "Verified").get("reason") == "GoldenPromptsNotFound"

    wait_until("it says that there are no prompts", told, 60)
    (adapter,) = [one["name"] for one in fleet.get("sunmodel", CODE)["status"]["adapters"]]
    wait_until("the pods have loaded it", lambda: all(adapter in held(pod) for pod in fleet.pods()), 60)
    assert _traffic(fleet, CODE) == {}
    module, decoder = fleet.identities()[adapter], fleet.decoder()
    fleet.kubectl.apply([golden_map(GOLDEN, module, decoder)], fleet.namespace)
    seen = fleet.ready(CODE)
    assert _traffic(fleet, CODE) == {adapter: 100}
    assert seen["status"]["verification"]["passed"] == seen["status"]["verification"]["total"] == PROMPTS


def test_an_adapter_with_other_answers_is_let_go_of_while_the_old_one_serves(fleet: PooledFleet) -> None:
    """Follows the test above: the prompts are those of the adapter that serves."""
    before, starts = _traffic(fleet, CODE), fleet.starts()
    patch(fleet.kubectl, fleet.namespace, f"sunmodel/{CODE}", {"prefill": adapter_source(SECOND)})

    def told() -> Json | None:
        verified = condition(fleet.get("sunmodel", CODE), "Verified")
        return verified if verified.get("reason") == "GoldenPromptMismatch" else None

    verified: Json = wait_until("it is held back", told, 120)
    assert "prompt 0: token 0 is" in verified["message"]
    mine = f"{fleet.namespace}.{CODE}-"

    def alone() -> bool:
        return {name for pod in fleet.pods() for name in held(pod) if name.startswith(mine)} == before.keys()

    wait_until("the pods let go of it", alone, 60)
    assert _traffic(fleet, CODE) == before
    assert fleet.starts() == starts


def test_a_second_adapter_takes_its_steps_beside_the_first_and_is_promoted_without_a_wrong_answer(
    fleet: PooledFleet, load: Load
) -> None:
    old, starts = fleet.adapter(MATHS), fleet.starts()
    steps = [{"weight": 20, "pauseSeconds": 2}, {"weight": 60, "pauseSeconds": 2}, {"weight": 100}]
    canary = {"prefill": adapter_source(SECOND), "steps": steps, "analysis": ANALYSIS}
    patch(fleet.kubectl, fleet.namespace, f"sunmodel/{MATHS}", {"canary": canary})
    new = _wait_phase(fleet, "Progressing")
    modules = [fleet.identities()[old], fleet.identities()[new]]
    shares: list[int] = []

    def promotable() -> bool:
        shares.append(_traffic(fleet, MATHS).get(new, 0))
        return _canary(fleet).get("phase") == "Promotable"

    wait_until("all steps are taken", promotable, STEP_SECONDS, 0.5)
    assert shares == sorted(shares), "a step back"
    assert {20, 60} <= set(shares)
    patch(fleet.kubectl, fleet.namespace, f"sunmodel/{MATHS}", {"prefill": adapter_source(SECOND), "canary": None})
    wait_until("it serves alone", lambda: _traffic(fleet, MATHS) == {new: 100} and not _canary(fleet), 60)
    wait_until("the pods let go of the other", lambda: not any(old in held(pod) for pod in fleet.pods()), 60)
    assert _wrong(fleet, load, modules) == []
    assert modules[0] != modules[1]
    assert fleet.starts() == starts


def test_a_second_adapter_that_fails_requests_is_rolled_back_and_the_first_serves_on(
    fleet: PooledFleet, load: Load
) -> None:
    """Both are on the same pods, so the fault is one of the adapter alone."""
    old = _settle(fleet, SECOND)
    canary = {
        "prefill": adapter_source(FIRST), "steps": [{"weight": 50, "pauseSeconds": 600}], "analysis": ANALYSIS,
    }  # fmt: skip
    patch(fleet.kubectl, fleet.namespace, f"sunmodel/{MATHS}", {"canary": canary})
    new = _wait_phase(fleet, "Progressing")
    for engine in fleet.proxy.engines(fleet.pods()):
        engine.configure(fail_status=500, fail_module=new)
    try:
        assert _wait_phase(fleet, "RolledBack") == new
        assert "failed" in _canary(fleet)["reason"]
        assert _traffic(fleet, MATHS) == {old: 100}
        wait_until("the pods let go of it", lambda: not any(new in held(pod) for pod in fleet.pods()), 60)
        serves_on(load)
    finally:
        for engine in fleet.proxy.engines(fleet.pods()):
            engine.reset()
