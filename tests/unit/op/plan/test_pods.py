"""What keeps pods from running, and what a resolver's pod that was evicted says."""

from __future__ import annotations

from typing import Any

import pytest

from sunfleet_api import names
from sunfleet_operator.plan import pods
from sunfleet_optest.objects import decoder, report
from sunfleet_optest.world import World


def _pod(name: str, **status: Any) -> dict[str, Any]:
    return {"metadata": {"name": name, "namespace": "team"}, "status": status}


EVICTED = _pod("old", phase="Failed", reason="Evicted", message="The node was low on resource: memory.")
UNSCHEDULABLE = _pod("new", conditions=[{"type": "PodScheduled", "status": "False", "message": "0/1 nodes"}])


def _waiting(reason: str, **more: Any) -> dict[str, Any]:
    return {"name": "engine", "image": "worker:1", "state": {"waiting": {"reason": reason, "message": "said"}}, **more}


PROBLEMS: dict[str, tuple[dict[str, Any], tuple[str, str]]] = {
    "no node": (UNSCHEDULABLE, ("Unschedulable", "pod new: 0/1 nodes")),
    "evicted": (EVICTED, ("Evicted", "pod old: Evicted: The node was low on resource: memory.")),
    "no image": (
        _pod("p", containerStatuses=[_waiting("ErrImagePull")]),
        ("ImagePullFailed", "pod p, container engine: said (image worker:1)"),
    ),
    "no such secret": (
        _pod("p", containerStatuses=[_waiting("CreateContainerConfigError")]),
        ("CreateContainerConfigError", "pod p, container engine: said"),
    ),
    "a crash": (
        _pod("p", containerStatuses=[
            _waiting("CrashLoopBackOff", lastState={"terminated": {"exitCode": 2, "message": "a\nlast line\n"}})
        ]),
        ("CrashLoop", "pod p, container engine: exit code 2: last line"),
    ),
}  # fmt: skip


@pytest.mark.parametrize(("pod", "expected"), PROBLEMS.values(), ids=PROBLEMS)
def test_the_problem_of_a_pod_is_named(pod: dict[str, Any], expected: tuple[str, str]) -> None:
    assert pods.problem([pod]) == expected


def test_pods_that_only_need_time_are_no_problem() -> None:
    assert pods.problem([_pod("p", phase="Pending"), _pod("q", containerStatuses=[{"state": {"running": {}}}])]) is None


def _download(state: dict[str, Any], **more: Any) -> dict[str, Any]:
    return _pod("p", initContainerStatuses=[{"name": "fetch-weights", "image": "weights:1", "state": state, **more}])


FAILED = {"terminated": {"exitCode": 1, "message": '{"error_reason":"SourceChanged","error_message":"s3://b/k moved"}'}}


def test_a_download_that_fails_says_what_a_resolver_would() -> None:
    pod = _download({"waiting": {"reason": "CrashLoopBackOff"}}, lastState=FAILED)
    assert pods.problem([pod]) == ("SourceChanged", "pod p, container fetch-weights: s3://b/k moved")


def test_a_download_under_way_is_told_and_so_is_why_it_began_again() -> None:
    running = {"running": {"startedAt": "2026-01-01T00:00:00Z"}}
    since = "pod p downloads weights since 2026-01-01T00:00:00Z"
    assert pods.waiting([_download(running)], {}) == ("Downloading", since)
    again = _download(running, lastState=FAILED, restartCount=2)
    assert pods.waiting([again], {}) == ("Downloading", f"{since}, attempt 3 after SourceChanged: s3://b/k moved")
    holding = _pod("p", initContainerStatuses=[{"name": "hold-weights", "state": running}])
    assert pods.waiting([holding], {}) is None


def test_an_evicted_pod_is_named_last() -> None:
    assert pods.problem([EVICTED, UNSCHEDULABLE]) == ("Unschedulable", "pod new: 0/1 nodes")


def _engine(name: str, **status: Any) -> dict[str, Any]:
    return _pod(name, containerStatuses=[{"name": "engine", "state": {"running": {}}, **status}])


UNPROVEN = _engine("u", started=True, ready=False)


def test_an_engine_that_answers_in_a_pod_that_is_not_ready_is_named_and_where_the_reason_stands() -> None:
    problem = pods.problem([UNPROVEN])
    assert problem is not None
    assert problem[0] == "PodNotReady"
    assert problem[1].startswith("pod u, container engine: ")
    assert "self-check" in problem[1]
    assert "/sunfleet/readyz" in problem[1]


@pytest.mark.parametrize(
    "harmless",
    [
        _engine("p", started=False, ready=False),
        _engine("p", started=True, ready=True),
        {**_pod("p"), "status": {"containerStatuses": [{"name": "sidecar", "started": True, "ready": False}]}},
        {**UNPROVEN, "metadata": {"name": "u", "namespace": "team", "deletionTimestamp": "2026-01-01T00:00:00Z"}},
    ],
    ids=["still starting", "ready", "another container", "going"],
)
def test_every_other_pod_is_no_such_problem(harmless: dict[str, Any]) -> None:
    assert pods.problem([harmless]) is None


def test_what_keeps_a_pod_from_running_comes_before_what_keeps_one_from_being_ready() -> None:
    assert pods.problem([UNPROVEN, UNSCHEDULABLE]) == ("Unschedulable", "pod new: 0/1 nodes")


async def test_an_evicted_resolver_is_no_answer_and_its_successor_gives_one() -> None:
    world = World()
    world.store.put(decoder())
    await world.reconcile()
    (job,) = world.store.all("Job")
    labels = job["spec"]["template"]["metadata"]["labels"]
    killed = {"name": names.ROLE_RESOLVER, "state": {"terminated": {"exitCode": 137, "message": ""}}}
    evicted = {**EVICTED["status"], "containerStatuses": [killed]}
    place = ("Pod", "team", "old")
    world.store.objects[place] = {
        "kind": "Pod", "metadata": {"name": "old", "namespace": "team", "labels": labels}, "status": evicted,
    }  # fmt: skip
    await world.reconcile()
    told = world.condition("SharedDecoder", "base", "WeightsReady")
    assert (told["reason"], "low on resource" in told["message"]) == ("Evicted", True)
    world.resolve = report
    await world.settle()
    assert world.condition("SharedDecoder", "base", "Ready")["status"] == "True"
