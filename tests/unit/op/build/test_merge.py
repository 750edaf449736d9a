"""The overlay of pod templates."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from sunfleet_operator.build.merge import merge

BASE: dict[str, Any] = {
    "spec": {
        "containers": [
            {
                "name": "engine",
                "image": "worker:1",
                "args": ["a"],
                "env": [{"name": "A", "value": "1"}, {"name": "B", "value": "2"}],
                "volumeMounts": [{"name": "tmp", "mountPath": "/tmp"}],
            }
        ],
        "volumes": [{"name": "tmp", "emptyDir": {}}],
    }
}


def _engine(**fields: Any) -> dict[str, Any]:
    return {"spec": {"containers": [{"name": "engine", **fields}]}}


def _merged(overlay: dict[str, Any]) -> dict[str, Any]:
    return dict(merge(BASE, overlay)["spec"]["containers"][0])


def test_an_empty_overlay_changes_nothing() -> None:
    assert merge(BASE, {"metadata": {}, "spec": {}})["spec"] == BASE["spec"]


def test_neither_side_is_changed() -> None:
    base, overlay = copy.deepcopy(BASE), _engine(env=[{"name": "C", "value": "3"}])
    kept = copy.deepcopy(overlay)
    merge(base, overlay)["spec"]["containers"][0]["env"].append("x")
    assert (base, overlay) == (BASE, kept)


def test_a_container_merges_by_its_name_and_keeps_what_is_not_named() -> None:
    engine = _merged(_engine(resources={"limits": {"cpu": "1"}}))
    assert engine["image"] == "worker:1"
    assert engine["resources"] == {"limits": {"cpu": "1"}}


def test_another_container_is_added_behind_ours() -> None:
    merged = merge(BASE, {"spec": {"containers": [{"name": "sidecar", "image": "s"}]}})
    assert [c["name"] for c in merged["spec"]["containers"]] == ["engine", "sidecar"]


def test_variables_merge_by_name_and_change_their_source_whole() -> None:
    source = {"secretKeyRef": {"name": "s", "key": "k"}}
    engine = _merged(_engine(env=[{"name": "B", "valueFrom": source}, {"name": "C", "value": "3"}]))
    assert engine["env"] == [
        {"name": "A", "value": "1"}, {"name": "B", "valueFrom": source}, {"name": "C", "value": "3"},
    ]  # fmt: skip


def test_mounts_merge_by_path_so_that_one_volume_may_be_mounted_twice() -> None:
    engine = _merged(_engine(volumeMounts=[{"name": "tmp", "mountPath": "/cache"}]))
    assert [m["mountPath"] for m in engine["volumeMounts"]] == ["/tmp", "/cache"]


def test_a_volume_is_replaced_whole_since_it_has_one_source() -> None:
    volume = {"name": "tmp", "persistentVolumeClaim": {"claimName": "c"}}
    assert merge(BASE, {"spec": {"volumes": [volume]}})["spec"]["volumes"] == [volume]


@pytest.mark.parametrize("field", ["args", "command", "tolerations"])
def test_lists_without_a_key_are_replaced(field: str) -> None:
    assert _merged(_engine(**{field: ["z"]}))[field] == ["z"]


def test_null_removes_a_field() -> None:
    assert "args" not in _merged(_engine(args=None))


def test_directives_delete_and_replace() -> None:
    assert _merged(_engine(env=[{"name": "A", "$patch": "delete"}]))["env"] == [{"name": "B", "value": "2"}]
    replaced = _merged(_engine(env=[{"$patch": "replace"}, {"name": "Z", "value": "9"}]))
    assert replaced["env"] == [{"name": "Z", "value": "9"}]
    whole = merge({"securityContext": {"a": 1}}, {"securityContext": {"$patch": "replace", "b": 2}})
    assert whole == {"securityContext": {"b": 2}}
    assert merge({"affinity": {"a": 1}}, {"affinity": {"$patch": "delete"}}) == {}
