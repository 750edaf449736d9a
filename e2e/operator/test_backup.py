"""A backup restored where nothing is left serves the same weights, though nothing can be looked up any more."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

from sunfleet_api import names
from support import fakes
from support.fakes import ApiProxy
from support.fleets import Fleet
from support.kubectl import Json, Kubectl, wait_until

pytestmark = [pytest.mark.long, pytest.mark.timeout(400)]
_SERVER_SET = (
    "uid", "resourceVersion", "creationTimestamp", "generation", "managedFields", "ownerReferences", "finalizers",
)  # fmt: skip
_KINDS = ("sunmodels", "shareddecoders")


@pytest.fixture(scope="module")
def fleet(make_fleet: Callable[[str], Fleet], kubectl: Kubectl) -> Fleet:
    made = make_fleet("backup")
    kubectl.apply(made.manifests, made.namespace)
    made.wait_ready()
    return made


def backup(fleet: Fleet, *query: str) -> list[Json]:
    """As the documented command makes it, of this namespace."""
    kept = fleet.kubectl.items(*query, "--namespace", fleet.namespace)
    for live in kept:
        live.pop("status", None)
        live["metadata"] = {key: value for key, value in live["metadata"].items() if key not in _SERVER_SET}
    return kept


def restore(fleet: Fleet, objects: list[Json]) -> None:
    document = {"apiVersion": "v1", "kind": "List", "items": objects}
    fleet.kubectl.run("create", "--filename", "-", stdin=json.dumps(document))


def served(fleet: Fleet, proxy: ApiProxy) -> dict[str, tuple[object, ...]]:
    """By task: what was resolved, the revision that serves, and what its pods hold."""
    found: dict[str, tuple[object, ...]] = {}
    for name in ("maths", "code"):
        status = fleet.get("sunmodel", name)["status"]
        engines = {fakes.identity(engine) for engine in proxy.engines(fleet.pods("prefill", name))}
        found[name] = (status["model"], status["currentRevision"], engines)
    decode = {fakes.identity(engine) for engine in proxy.engines(fleet.pods("decode"))}
    status = fleet.get("shareddecoder", "base")["status"]
    found["base"] = (status["model"], status["currentRevision"], status["decoderDigest"], decode)
    return found


def test_the_same_weights_serve_again(fleet: Fleet, proxy: ApiProxy) -> None:
    before = served(fleet, proxy)
    records = backup(fleet, "controllerrevisions", "--selector", f"{names.LABEL_MANAGED_BY}={names.MANAGED_BY}")
    objects = backup(fleet, ",".join(_KINDS))
    _lose_everything(fleet)
    _forbid_jobs(fleet)  # a resolver could only ask the hub what `main` is by now
    restore(fleet, records)
    restore(fleet, objects)
    fleet.wait_ready()
    assert served(fleet, proxy) == before
    assert not fleet.kubectl.items("jobs", "--namespace", fleet.namespace)


def _lose_everything(fleet: Fleet) -> None:
    where = ("--namespace", fleet.namespace)
    for kind in _KINDS:
        fleet.kubectl.delete(kind, "--all", *where)
    children = ("deployments,controllerrevisions,jobs", *where, "--selector", f"{names.LABEL_PART_OF}=sunfleet")
    wait_until("the garbage collector is through", lambda: not fleet.kubectl.items(*children), 90)
    fleet.kubectl.run("delete", "pods", "--all", *where, "--grace-period=1")


def _forbid_jobs(fleet: Fleet) -> None:
    quota = {
        "apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "no-jobs"},
        "spec": {"hard": {"count/jobs.batch": "0"}},
    }  # fmt: skip
    fleet.kubectl.apply([quota], fleet.namespace)
    where = ("resourcequota/no-jobs", "--namespace", fleet.namespace)
    wait_until("the quota counts", lambda: "hard" in fleet.kubectl.get(*where).get("status", {}), 30)
