"""Which keys a watch event concerns."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from sunfleet_api import names
from sunfleet_operator.index import Index
from sunfleet_operator.types import DECODER, MODEL, Key, owner_of
from sunfleet_optest.objects import decoder, model

BASE, MATHS, CODE = Key(DECODER, "team", "base"), Key(MODEL, "team", "maths"), Key(MODEL, "team", "code")


def _live(manifest: dict[str, Any], **status: Any) -> dict[str, Any]:
    made = copy.deepcopy(manifest)
    made["metadata"]["uid"] = f"uid-{made['metadata']['name']}"
    made["status"] = status
    return made


@pytest.fixture
def index() -> Index:
    made = Index()
    made.rebuild([_live(model("maths")), _live(model("code"))], [_live(decoder())])
    return made


def test_a_new_task_concerns_its_decoder(index: Index) -> None:
    assert index.model_changed(_live(model("new")), gone=False) == {BASE}
    assert len(index.users(BASE)) == 3


def test_the_same_task_again_concerns_nobody(index: Index) -> None:
    assert index.model_changed(_live(model("maths")), gone=False) == set()


def test_a_task_that_turns_to_another_decoder_concerns_both(index: Index) -> None:
    other = Key(DECODER, "team", "other")
    assert index.model_changed(_live(model("maths", decoderRef={"name": "other"})), gone=False) == {BASE, other}


def test_a_decoder_stays_in_use_while_traffic_goes_to_it(index: Index) -> None:
    routed = _live(model("maths", decoderRef={"name": "other"}), traffic=[{"decoder": "team/base"}])
    index.model_changed(routed, gone=False)
    assert [(user.name, user.attached) for user in index.users(BASE)] == [("team/code", True), ("team/maths", False)]


def test_a_task_that_goes_concerns_its_decoder_and_whoever_waits_for_its_name() -> None:
    index = Index()
    first, second = _live(model("first", modelName="x")), _live(model("second", modelName="x"))
    index.rebuild([first, second], [])
    assert index.rivals(Key(MODEL, "team", "second"), second) == {Key(MODEL, "team", "first")}
    assert index.model_changed(first, gone=True) == {BASE, Key(MODEL, "team", "second")}
    assert index.rivals(Key(MODEL, "team", "second"), second) == set()


@pytest.mark.parametrize("field", ["updateRevision", "kvFingerprint", "decoderDigest"])
def test_what_a_decoder_publishes_concerns_its_tasks(index: Index, field: str) -> None:
    assert index.decoder_changed(_live(decoder(), **{field: "new"}), gone=False) == {MATHS, CODE}


def test_a_decoders_counts_concern_nobody(index: Index) -> None:
    assert index.decoder_changed(_live(decoder(replicas=5), readyReplicas=4), gone=False) == set()


def test_tasks_hear_what_a_decoder_waits_for_until_it_publishes_something(index: Index) -> None:
    waits = [{"type": "Ready", "status": "False", "reason": "Resolving", "message": "Job runs"}]
    fails = [{"type": "Ready", "status": "False", "reason": "NotFound", "message": "404"}]
    assert index.decoder_changed(_live(decoder(), conditions=waits), gone=False) == {MATHS, CODE}
    assert index.decoder_changed(_live(decoder(), conditions=fails), gone=False) == {MATHS, CODE}
    index.decoder_changed(_live(decoder(), updateRevision="r", conditions=waits), gone=False)
    assert index.decoder_changed(_live(decoder(), updateRevision="r", conditions=fails), gone=False) == set()


def test_a_decoder_that_goes_concerns_its_tasks(index: Index) -> None:
    assert index.decoder_changed(_live(decoder()), gone=True) == {MATHS, CODE}


def _deployment(available: int, role: str = "decode") -> dict[str, Any]:
    labels = {names.LABEL_DECODER: "base", names.LABEL_ROLE: role}
    return {
        "metadata": {"name": "base-1", "namespace": "team", "labels": labels},
        "status": {"availableReplicas": available},
    }


def test_decode_pods_concern_tasks_only_when_the_first_comes_or_the_last_goes(index: Index) -> None:
    assert index.decode_pods_changed(_deployment(0), gone=False) == set()
    assert index.decode_pods_changed(_deployment(1), gone=False) == {MATHS, CODE}
    assert index.decode_pods_changed(_deployment(2), gone=False) == set()
    assert index.decode_pods_changed(_deployment(2), gone=True) == {MATHS, CODE}
    assert index.decode_pods_changed(_deployment(1, role="resolver"), gone=False) == set()


def test_a_child_belongs_to_its_task_before_its_decoder() -> None:
    labels = {names.LABEL_DECODER: "base", names.LABEL_MODEL: "maths"}
    live = {"metadata": {"name": "p", "namespace": "team", "labels": labels}}
    assert owner_of(live) == MATHS
    assert owner_of({"metadata": {"name": "p", "namespace": "team"}}) is None


def test_ready_objects_are_counted(index: Index) -> None:
    ready = [{"type": "Ready", "status": "True"}]
    index.model_changed(_live(model("maths"), conditions=ready), gone=False)
    assert (index.ready(MODEL, "True"), index.ready(MODEL, "Unknown"), index.ready(DECODER, "Unknown")) == (1, 1, 1)
    index.model_changed(_live(model("maths")), gone=True)
    assert index.ready(MODEL, "True") == 0


def test_a_rebuild_from_lists_that_are_late_keeps_what_the_watch_said_meanwhile(index: Index) -> None:
    index.listing()
    models, decoders = [_live(model("maths")), _live(model("code"))], [_live(decoder())]
    index.model_changed(_live(model("new")), gone=False)
    index.model_changed(_live(model("code")), gone=True)
    index.rebuild(models, decoders)
    assert [user.name for user in index.users(BASE)] == ["team/maths", "team/new"]
    index.listing()
    index.rebuild(models, decoders)
    assert [user.name for user in index.users(BASE)] == ["team/code", "team/maths"]


def test_a_rebuild_forgets_what_is_not_there_any_more(index: Index) -> None:
    index.rebuild([_live(model("code"))], [])
    assert [user.name for user in index.users(BASE)] == ["team/code"]
