"""How our objects behave on a real API server: defaults, scale, status, unknown fields, server-side apply, kubectl."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from sunfleet_api import names
from sunfleet_api.conditions import Condition
from sunfleet_api.kinds import KINDS, parse
from sunfleet_api.sun_model import SunModel, SunModelStatus
from sunfleet_api.traffic import PrefillTarget, TrafficTarget
from sunfleet_apitest.cases import load, merged
from sunfleet_apitest.client import Api, Document, RefusedError
from sunfleet_apitest.paths import collection
from sunfleet_cluster.controlplane import RunningControlPlane

BASES = {kind: load(Path(__file__).parent / "manifests" / f"{kind.lower()}.yaml").base for kind in KINDS}


ROLLOUT: Document = {"rollout": {"maxSurge": 9}}  # a change of most kinds' spec
CHANGES: dict[str, Document] = {"PrefillTuning": {"suspend": True}}

SCALED = [kind for kind, model in KINDS.items() if model.KIND.scales]


def _stored(api: Api, namespace: str, kind: str, patch: Document | None = None) -> tuple[str, Document]:
    """Path and content of a new object."""
    document = merged(BASES[kind], patch or {})
    stored = api.create(collection(kind, namespace), document)
    return f"{collection(kind, namespace)}/{stored['metadata']['name']}", stored


def _kubectl(plane: RunningControlPlane, *arguments: str) -> str:
    command = [str(plane.kubectl), f"--kubeconfig={plane.kubeconfig}", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_decoder_gets_the_defaults_that_no_profile_could_set(api: Api, namespace: str) -> None:
    _, stored = _stored(api, namespace, "SharedDecoder")
    given = BASES["SharedDecoder"]["spec"]
    assert stored["spec"] == given | {"replicas": 1, "allowedModels": {"namespaces": {"from": "Same"}}}


def test_a_model_gets_one_replica_and_nothing_else(api: Api, namespace: str) -> None:
    _, stored = _stored(api, namespace, "SunModel")
    assert stored["spec"] == BASES["SunModel"]["spec"] | {"replicas": 1}


@pytest.mark.parametrize("kind", KINDS)
def test_a_stored_object_reads_as_the_model_that_was_written(kind: str, api: Api, namespace: str) -> None:
    _, stored = _stored(api, namespace, kind)
    read = parse(stored)
    assert read.spec == parse(BASES[kind]).spec
    assert read.metadata.uid == stored["metadata"]["uid"]
    assert read.metadata.generation == 1


@pytest.mark.parametrize("kind", SCALED)
def test_scale_shows_and_sets_replicas_and_names_the_pods(kind: str, api: Api, namespace: str) -> None:
    path, _ = _stored(api, namespace, kind)
    api.merge(f"{path}/status", {"status": {"replicas": 1, "selector": "a=b,c=d"}})
    scale = api.get(f"{path}/scale")
    assert (scale["spec"], scale["status"]) == ({"replicas": 1}, {"replicas": 1, "selector": "a=b,c=d"})
    api.merge(f"{path}/scale", {"spec": {"replicas": 3}})
    assert api.get(path)["spec"]["replicas"] == 3


@pytest.mark.parametrize("kind", SCALED)
def test_scale_refuses_a_count_beyond_the_limits(kind: str, api: Api, namespace: str) -> None:
    path, _ = _stored(api, namespace, kind)
    with pytest.raises(RefusedError, match=r"replicas"):
        api.merge(f"{path}/scale", {"spec": {"replicas": 10_001}})


def test_applying_a_manifest_without_replicas_keeps_what_a_scaler_set(api: Api, namespace: str) -> None:
    path = f"{collection('SunModel', namespace)}/maths"
    api.apply(path, BASES["SunModel"], "gitops")
    api.merge(f"{path}/scale", {"spec": {"replicas": 3}})
    applied = api.apply(path, merged(BASES["SunModel"], {"spec": {"paused": True}}), "gitops")
    assert applied["spec"]["replicas"] == 3


@pytest.mark.parametrize("kind", KINDS)
def test_status_is_written_only_through_its_subresource(kind: str, api: Api, namespace: str) -> None:
    status = {"status": {"observedGeneration": 7}}
    path, stored = _stored(api, namespace, kind, status)
    assert "status" not in stored
    assert "status" not in api.merge(path, status)
    after = api.merge(f"{path}/status", {**status, "spec": CHANGES.get(kind, ROLLOUT)})
    assert (after["status"], after["spec"]) == (status["status"], stored["spec"])


@pytest.mark.parametrize("kind", KINDS)
def test_only_a_change_of_spec_makes_a_new_generation(kind: str, api: Api, namespace: str) -> None:
    path, _ = _stored(api, namespace, kind)
    assert api.merge(f"{path}/status", {"status": {"observedGeneration": 1}})["metadata"]["generation"] == 1
    assert api.merge(path, {"spec": CHANGES.get(kind, ROLLOUT)})["metadata"]["generation"] == 2


def _status() -> SunModelStatus:
    ready = Condition(type="Ready", status="True", reason="Ready", last_transition_time="2026-01-02T03:04:05Z")
    target = TrafficTarget(
        revision="1a2b3c4d",
        weight=100,
        decoder="platform/llama8b",
        prefill=PrefillTarget(selector="a=b"),
        cache_salt="0f",
    )
    return SunModelStatus(observed_generation=1, conditions=(ready,), replicas=1, selector="a=b", traffic=(target,))


def test_a_status_that_the_models_make_is_stored_and_read_back_unchanged(api: Api, namespace: str) -> None:
    path, _ = _stored(api, namespace, "SunModel")
    body = {"apiVersion": names.API_VERSION, "kind": "SunModel", "status": _status().to_wire()}
    api.apply(f"{path}/status", body, names.STATUS_FIELD_MANAGER)
    assert SunModel.parse(api.get(path)).status == _status()


def test_the_same_status_applied_again_writes_nothing(api: Api, namespace: str) -> None:
    path, _ = _stored(api, namespace, "SunModel")
    body = {"apiVersion": names.API_VERSION, "kind": "SunModel", "status": _status().to_wire()}
    first = api.apply(f"{path}/status", body, names.STATUS_FIELD_MANAGER)
    second = api.apply(f"{path}/status", body, names.STATUS_FIELD_MANAGER)
    assert first["metadata"]["resourceVersion"] == second["metadata"]["resourceVersion"]


def test_a_condition_that_is_no_longer_applied_vanishes_and_others_stay(api: Api, namespace: str) -> None:
    path, _ = _stored(api, namespace, "SunModel")

    def apply(manager: str, *types: str) -> list[str]:
        conditions = [{"type": type_, "status": "True", "reason": "R"} for type_ in types]
        body = {"apiVersion": names.API_VERSION, "kind": "SunModel", "status": {"conditions": conditions}}
        applied = api.apply(f"{path}/status", body, manager)
        return [condition["type"] for condition in applied["status"]["conditions"]]

    apply("somebody", "Theirs")
    assert apply(names.STATUS_FIELD_MANAGER, "Ready", "Paused") == ["Theirs", "Ready", "Paused"]
    assert apply(names.STATUS_FIELD_MANAGER, "Ready") == ["Theirs", "Ready"]


def test_routers_can_trust_that_traffic_names_a_decoder_by_namespace_and_name(api: Api, namespace: str) -> None:
    path, _ = _stored(api, namespace, "SunModel")
    target = _status().to_wire()["traffic"][0] | {"decoder": "llama8b"}
    with pytest.raises(RefusedError) as refused:
        api.merge(f"{path}/status", {"status": {"traffic": [target]}})
    assert refused.value.fields == {"status.traffic[0].decoder"}


@pytest.mark.parametrize("kind", KINDS)
def test_an_unknown_field_is_refused_by_strict_validation_and_else_pruned(kind: str, api: Api, namespace: str) -> None:
    document = merged(BASES[kind], {"spec": {"replcas": 2}})
    with pytest.raises(RefusedError, match=r'unknown field "spec.replcas"'):
        api.create(collection(kind, namespace), document)
    assert "replcas" not in api.create(collection(kind, namespace), document, strict=False)["spec"]


def test_the_pod_overlay_is_kept_to_the_last_unknown_field(api: Api, namespace: str) -> None:
    overlay: dict[str, Any] = {
        "nodeSelector": {"gpu": "h100"},
        "containers": [{"name": "engine", "resources": {"limits": {"nvidia.com/gpu": 1}}, "env": [{"name": "A"}]}],
        "somethingNew": {"deep": [1, "a", {"b": None, "c": 1.5}]},
    }
    document = merged(BASES["SunModel"], {"spec": {"template": {"spec": {}}}})
    document["spec"]["template"]["spec"] = overlay
    stored = api.create(collection("SunModel", namespace), document)
    assert stored["spec"]["template"]["spec"] == overlay
    assert SunModel.parse(stored).spec.template.spec == overlay


@pytest.mark.parametrize(("kind", "short"), [("SharedDecoder", "sdec"), ("SunModel", "sun")])
def test_kubectl_lists_by_short_name_and_category(
    kind: str, short: str, api: Api, namespace: str, plane: RunningControlPlane
) -> None:
    path, stored = _stored(api, namespace, kind)
    condition = {"type": "Ready", "status": "False", "reason": "Pending", "message": "waits"}
    api.merge(f"{path}/status", {"status": {"conditions": [condition], "readyReplicas": 0}})
    listed = _kubectl(plane, "get", short, "-n", namespace).splitlines()
    assert listed[0].split()[0] == "NAME"
    assert {"READY", "REASON", "REPLICAS", "READYREPLICAS", "AGE"} <= set(listed[0].split())
    assert {stored["metadata"]["name"], "False", "Pending", "0", "1"} <= set(listed[1].split())
    assert stored["metadata"]["name"] in _kubectl(plane, "get", "sunfleet", "-n", namespace)


@pytest.mark.parametrize(
    ("path", "says"),
    [
        ("sdec.spec.engine.blockSize", "Tokens per KV block"),
        ("sdec.spec.template.spec", "Pod spec to merge over ours"),
        ("sun.spec.prefill", "Exactly one of weights and adapter"),
        ("sun.status.traffic", "The only thing that routers act on"),
    ],
)
def test_kubectl_explains_fields(path: str, says: str, api: Api, plane: RunningControlPlane) -> None:
    explained = " ".join(_kubectl(plane, "explain", path).split())
    assert says in explained


@pytest.mark.parametrize("kind", KINDS)
def test_kubectl_diff_is_empty_after_apply(
    kind: str, api: Api, namespace: str, plane: RunningControlPlane, tmp_path: Path
) -> None:
    manifest = tmp_path / "manifest.yaml"
    manifest.write_text(yaml.safe_dump(merged(BASES[kind], {"metadata": {"namespace": namespace}})))
    _kubectl(plane, "apply", "-f", str(manifest))
    assert _kubectl(plane, "diff", "-f", str(manifest)) == ""


def test_the_committed_crds_install_with_plain_kubectl_apply(api: Api, plane: RunningControlPlane) -> None:
    folder = Path(__file__).resolve().parents[2] / "crds"
    # Client-side apply keeps the whole document in an annotation: 256 KiB at most.
    applied = _kubectl(plane, "apply", "--dry-run=server", "-k", str(folder))
    assert len(applied.splitlines()) == len(KINDS)


@pytest.mark.parametrize(
    "path",
    sorted((Path(__file__).resolve().parents[2] / "manifests" / "samples").rglob("*.yaml")),
    ids=lambda p: p.stem,
)
def test_a_sample_is_accepted_as_it_stands(path: Path, api: Api, namespace: str) -> None:
    for document in yaml.safe_load_all(path.read_text()):
        if document and document.get("apiVersion") == names.API_VERSION:
            api.create(collection(document["kind"], namespace), document, dry_run=True)
