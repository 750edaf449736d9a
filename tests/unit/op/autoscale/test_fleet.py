"""A pool and its tasks together."""

from __future__ import annotations

from dataclasses import replace

from sunfleet_operator.autoscale.capability import Throughput
from sunfleet_operator.autoscale.decision import Why
from sunfleet_operator.autoscale.fleet import Fixed, Fleet, Outcome, decide
from sunfleet_operator.autoscale.member import Member
from sunfleet_operator.autoscale.state import State
from sunfleet_optest.scaling import decode, member, pods, prefill

GPU = "nvidia.com/gpu"
NOW = 5000.0
EACH = {GPU: 1}
KNOWN = {key: State(throughput=Throughput(1e9, 1e6), active_at=NOW, decided_at=NOW - 15) for key in ("a", "b")}


def with_gpus(one: Member, **more: object) -> Member:
    return replace(one, pods=replace(one.pods, each=EACH, **more))  # type: ignore[arg-type]


def busy(wanted: int, tokens: float) -> Member:
    figures = prefill(in_flight=9, token_rate=tokens, prompt_rate=1e6, concurrency=wanted)
    return with_gpus(member(wanted, figures))


def counts(outcome: Outcome) -> dict[str, int]:
    return {key: decision.replicas for key, decision in outcome.decisions.items()}


def test_skew_that_moves_from_one_task_to_the_other_leaves_the_pool_as_it_is() -> None:
    pool = with_gpus(member(2, decode(reserved=1400, capacity=2000.0, endpoints=2.0)))
    before = decide(Fleet("pool", {"a": busy(1, 4000), "b": busy(1, 900), "pool": pool}), KNOWN, NOW)
    after = decide(Fleet("pool", {"a": busy(4, 900), "b": busy(1, 4000), "pool": pool}), before.states, NOW + 15)
    assert counts(before) == {"a": 4, "b": 1, "pool": 2}
    assert counts(after) == {"a": 1, "b": 4, "pool": 2}


def test_the_pool_weighs_as_much_as_all_its_tasks() -> None:
    pool = with_gpus(member(1, decode(reserved=9000)))
    fleet = Fleet("pool", {"a": busy(1, 9000), "b": busy(1, 9000), "pool": pool}, {GPU: 8})
    assert counts(decide(fleet, KNOWN, NOW)) == {"a": 2, "b": 2, "pool": 4}


def test_what_the_budget_refuses_is_said() -> None:
    outcome = decide(Fleet("pool", {"a": busy(1, 9000), "b": busy(1, 9000)}, {GPU: 4}), KNOWN, NOW)
    assert counts(outcome) == {"a": 2, "b": 2}
    assert outcome.decisions["a"].why == Why.BUDGET
    assert outcome.decisions["a"].wished == 9
    assert outcome.exceeded == f"18 {GPU} are wanted, 4 are allowed"


def test_counts_that_people_gave_take_part_and_are_not_taken_away() -> None:
    fixed = Fixed(pods(5, each=EACH), 5)
    outcome = decide(Fleet("pool", {"a": busy(1, 9000), "fixed": fixed}, {GPU: 8}), KNOWN, NOW)
    assert counts(outcome) == {"a": 3, "fixed": 5}
    lowered = decide(Fleet("pool", {"fixed": fixed}, {GPU: 2}), {}, NOW)
    assert counts(lowered) == {"fixed": 5}
    raised = decide(Fleet("pool", {"fixed": replace(fixed, replicas=9)}, {GPU: 6}), {}, NOW)
    assert (counts(raised), raised.exceeded) == ({"fixed": 6}, f"9 {GPU} are wanted, 6 are allowed")


def test_without_metrics_nobodys_pods_are_given_to_others() -> None:
    blind = with_gpus(member(6, None))
    outcome = decide(Fleet("pool", {"a": busy(1, 9000), "blind": blind}, {GPU: 8}), KNOWN, NOW)
    assert counts(outcome) == {"a": 2, "blind": 6}


def test_without_a_budget_nothing_is_held_back() -> None:
    outcome = decide(Fleet("pool", {"a": busy(1, 9000)}), KNOWN, NOW)
    assert (counts(outcome), outcome.exceeded, outcome.rooms) == ({"a": 9}, "", {})
