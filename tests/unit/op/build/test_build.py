"""Manifests of children, looked at as the operator writes them."""

from __future__ import annotations

import copy
import re
from collections.abc import Iterator
from typing import Any

import pytest

from sunfleet_api import names
from sunfleet_api.engine import ExtraArg
from sunfleet_api.worker import ENV_PREFIX, WorkerSettings
from sunfleet_optest.objects import decoder, model
from sunfleet_optest.world import World

HF = "hf://acme/maths-adapter@" + "a" * 40
LONGEST = "n" + "x" * (names.MAX_OBJECT_NAME - 1)


async def _world(*manifests: dict[str, Any]) -> World:
    world = World()
    for manifest in manifests or (decoder(), model()):
        world.store.put(manifest)
    await world.settle()
    return world


def _pod_spec(world: World, owner: str) -> dict[str, Any]:
    (live,) = world.deployments(owner).values()
    return dict(live["spec"]["template"]["spec"])


def _engine(world: World, owner: str) -> dict[str, Any]:
    return next(c for c in _pod_spec(world, owner)["containers"] if c["name"] == names.ENGINE_CONTAINER)


def _templates(world: World) -> Iterator[dict[str, Any]]:
    for kind in ("Deployment", "Job"):
        yield from (live["spec"]["template"] for live in world.store.all(kind))


async def _with_jobs() -> World:
    """Jobs are deleted once they have answered, so these never do."""
    world = World()
    world.store.put(decoder())
    world.store.put(model(uri=HF))
    await world.reconcile()
    assert len(list(world.store.all("Job"))) == 2
    return world


async def test_every_name_fits_63_characters_for_the_longest_owner() -> None:
    for stage in (World.reconcile, World.settle):
        world = World()
        world.store.put(decoder(LONGEST))
        world.store.put(model(LONGEST, uri=HF, decoderRef={"name": LONGEST}))
        await stage(world)
        for kind, _, name in world.store.objects:
            assert len(name) <= 63, (kind, name)
            assert re.fullmatch("[a-z]([-a-z0-9]*[a-z0-9])?", name) or kind in {"Event", "Pod"}
            for value in world.store.objects[kind, "team", name]["metadata"].get("labels", {}).values():
                assert len(value) <= 63, (kind, value)


async def test_a_task_and_a_decoder_of_one_name_have_different_children() -> None:
    world = await _world(decoder("same"), model("same", decoderRef={"name": "same"}))
    assert len(list(world.store.all("Deployment"))) == 2
    assert len(list(world.store.all("Service"))) == 2
    assert world.condition("SunModel", "same", "Ready")["status"] == "True"


async def test_every_pod_satisfies_restricted_pod_security_and_holds_no_token() -> None:
    for world in (await _with_jobs(), await _world(decoder(), model(uri=HF))):
        for template in _templates(world):
            spec = template["spec"]
            assert spec["automountServiceAccountToken"] is False
            assert spec["securityContext"]["runAsNonRoot"] is True
            assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
            assert {key for v in spec["volumes"] for key in v} <= {"name", "emptyDir", "persistentVolumeClaim"}
            for container in (*spec.get("initContainers", ()), *spec["containers"]):
                security = container["securityContext"]
                assert security["allowPrivilegeEscalation"] is False
                assert security["readOnlyRootFilesystem"] is True
                assert security["capabilities"] == {"drop": ["ALL"]}


async def test_the_overlay_cannot_bring_a_token_or_take_our_labels() -> None:
    spec = {"automountServiceAccountToken": True, "priorityClassName": "high"}
    labels = {"team": "maths", names.LABEL_MANAGED_BY: "me"}
    world = await _world(decoder(template={"metadata": {"labels": labels}, "spec": spec}), model())
    (live,) = world.deployments("base").values()
    template = live["spec"]["template"]
    assert template["spec"]["automountServiceAccountToken"] is False
    assert template["spec"]["priorityClassName"] == "high"
    assert template["metadata"]["labels"]["team"] == "maths"
    assert template["metadata"]["labels"][names.LABEL_MANAGED_BY] == names.MANAGED_BY


async def test_an_adapter_stands_beside_its_base_and_both_are_read_only() -> None:
    world = await _world()
    mounts = {mount["mountPath"]: mount for mount in _engine(world, "maths")["volumeMounts"]}
    assert mounts[names.WEIGHTS_PATH] == {
        "name": "weights", "mountPath": names.WEIGHTS_PATH, "readOnly": True, "subPath": "base",
    }  # fmt: skip
    assert mounts[names.ADAPTER_PATH]["subPath"] == "adapters/maths"
    assert mounts[names.ADAPTER_PATH]["readOnly"] is True


async def test_a_claim_is_one_volume_however_often_it_is_mounted() -> None:
    extra = {"name": "more", "persistentVolumeClaim": {"claimName": "models"}}
    mount = {"name": "more", "mountPath": "/more"}
    overlay = {"spec": {"volumes": [extra], "containers": [{"name": names.ENGINE_CONTAINER, "volumeMounts": [mount]}]}}
    world = await _world(decoder(), model(template=overlay))
    claims = [v["name"] for v in _pod_spec(world, "maths")["volumes"] if "persistentVolumeClaim" in v]
    assert claims == ["weights"]
    by_path = {mount["mountPath"]: mount["name"] for mount in _engine(world, "maths")["volumeMounts"]}
    assert [by_path[path] for path in (names.WEIGHTS_PATH, names.ADAPTER_PATH, "/more")] == ["weights"] * 3


async def test_whole_weights_stand_where_the_base_stands_elsewhere() -> None:
    world = await _world(decoder(), model(uri="pvc://models/full"))
    mounts = {mount["mountPath"]: mount for mount in _engine(world, "maths")["volumeMounts"]}
    assert mounts[names.WEIGHTS_PATH]["subPath"] == "full"
    assert names.ADAPTER_PATH not in mounts


async def test_a_hub_is_read_by_an_init_container_that_alone_has_the_credentials() -> None:
    task = model(prefill={"adapter": {"uri": HF, "credentialsSecretRef": {"name": "hub"}}})
    world = await _world(decoder(), task)
    spec = _pod_spec(world, "maths")
    (fetch,) = spec["initContainers"]
    assert fetch["args"] == ["fetch", HF, "--to", names.ADAPTER_PATH, "--digest", f"sha256:{HF}"]
    assert fetch["envFrom"] == [{"secretRef": {"name": "hub"}}]
    assert not any("envFrom" in container for container in spec["containers"])
    assert "hub" not in str(_engine(world, "maths"))
    assert {"name": "adapter", "emptyDir": {}} in spec["volumes"]


async def test_a_resolver_gets_images_and_onto_nodes_as_the_users_template_says() -> None:
    taint = {"key": "gpu", "operator": "Exists"}
    world = World()
    spec = {"tolerations": [taint], "imagePullSecrets": [{"name": "pull"}], "priorityClassName": "high"}
    world.store.put(decoder(template={"spec": spec}))
    await world.reconcile()
    (job,) = world.store.all("Job")
    pod = job["spec"]["template"]["spec"]
    assert (pod["tolerations"], pod["imagePullSecrets"]) == ([taint], [{"name": "pull"}])
    assert "priorityClassName" not in pod
    world.store.put(decoder())
    await world.reconcile()
    (other,) = world.store.all("Job")
    assert other["metadata"]["name"] != job["metadata"]["name"]


async def test_the_engine_gets_the_decoders_contract_and_its_own_role() -> None:
    engine = {
        "dtype": "float32", "blockSize": 32, "maxModelLen": 512, "tensorParallelSize": 2,
        "extraArgs": [{"name": "max-num-seqs", "value": "4"}],
    }  # fmt: skip
    world = await _world(decoder(engine=engine), model(rollout={"drainTimeoutSeconds": 60}))
    for owner, role in (("base", "decode"), ("maths", "prefill")):
        env = {entry["name"]: entry.get("value") for entry in _engine(world, owner)["env"]}
        given = {
            key.removeprefix(ENV_PREFIX).lower(): value
            for key, value in env.items()
            if key.startswith(ENV_PREFIX) and value is not None
        }
        given["extra_args"] = [{"name": "max-num-seqs", "value": "4"}]
        settings = WorkerSettings.model_validate(given)
        assert (settings.role, settings.dtype, settings.block_size) == (role, "float32", 32)
        assert (settings.max_model_len, settings.tensor_parallel_size) == (512, 2)
        assert settings.extra_args == (ExtraArg(name="max-num-seqs", value="4"),)
        assert settings.adapter_path == (names.ADAPTER_PATH if role == "prefill" else "")
        assert settings.kv_fingerprint == world.status("SharedDecoder", "base")["kvFingerprint"]["digest"]
    assert _pod_spec(world, "maths")["terminationGracePeriodSeconds"] == 5 + 60 + 30
    assert _pod_spec(world, "base")["terminationGracePeriodSeconds"] == 5 + 300 + 30


async def test_gpus_are_one_per_rank_unless_the_template_says_otherwise() -> None:
    world = await _world(decoder(engine={"tensorParallelSize": 2}), model())
    assert _engine(world, "base")["resources"]["limits"] == {"nvidia.com/gpu": "2"}
    own = {"requests": {"cpu": "200m"}}
    overlay = {"spec": {"containers": [{"name": names.ENGINE_CONTAINER, "resources": own}]}}
    world = await _world(decoder(template=overlay), model())
    assert _engine(world, "base")["resources"] == own


async def test_a_pool_has_a_headless_service_and_a_budget_that_never_holds_up_ill_pods() -> None:
    world = await _world()
    service, budget = world.store.one("Service", "base-decode"), world.store.one("PodDisruptionBudget", "base-decode")
    selector = {names.LABEL_DECODER: "base", names.LABEL_ROLE: "decode"}
    assert (service["spec"]["clusterIP"], service["spec"]["selector"]) == ("None", selector)
    assert budget["spec"] == {
        "maxUnavailable": 1, "unhealthyPodEvictionPolicy": "AlwaysAllow", "selector": {"matchLabels": selector},
    }  # fmt: skip


async def test_every_child_is_controlled_by_its_owner_and_stands_in_its_namespace() -> None:
    world = await _with_jobs()
    await world.settle()
    owners = {live["metadata"]["uid"] for kind in ("SharedDecoder", "SunModel") for live in world.store.all(kind)}
    for (kind, namespace, _), live in world.store.objects.items():
        if kind in {"SharedDecoder", "SunModel", "Event", "Pod"}:
            continue
        (reference,) = live["metadata"]["ownerReferences"]
        assert reference["uid"] in owners
        assert reference["controller"] is True
        assert namespace == "team"
        assert not any("kopf" in key or "kubectl" in key for key in live["metadata"]["annotations"])


MUTABLE: dict[str, dict[str, Any]] = {
    "engine.image": {"engine": {"image": "worker:9"}},
    "engine.maxModelLen": {"engine": {"maxModelLen": 99}},
    "engine.tensorParallelSize": {"engine": {"tensorParallelSize": 2}},
    "engine.extraArgs": {"engine": {"extraArgs": [{"name": "enforce-eager"}]}},
    "replicas": {"replicas": 2},
    "rollout.drainTimeoutSeconds": {"rollout": {"drainTimeoutSeconds": 7}},
    "rollout.progressDeadlineSeconds": {"rollout": {"progressDeadlineSeconds": 77}},
    "template.metadata": {"template": {"metadata": {"annotations": {"a": "b"}}}},
    "template.spec": {"template": {"spec": {"nodeSelector": {"gpu": "h100"}}}},
    "model.credentialsSecretRef": {"model": {"uri": HF, "credentialsSecretRef": {"name": "s"}}},
}


@pytest.mark.parametrize("spec", MUTABLE.values(), ids=MUTABLE)
async def test_every_mutable_field_changes_the_live_child(spec: dict[str, Any]) -> None:
    world = await _world(decoder(model={"uri": HF.replace("-adapter", "")}), model())
    before = {live["metadata"]["name"]: copy.deepcopy(live["spec"]) for live in world.store.all("Deployment")}
    task = {key: value for key, value in spec.items() if key in {"replicas", "rollout", "template"}}
    given = {"model": {"uri": HF.replace("-adapter", "")}, **spec}
    given["model"] = {**given["model"], "uri": HF.replace("-adapter", "")}
    world.store.put(decoder(**given))
    world.store.put(model(**task))
    await world.settle()
    after = {live["metadata"]["name"]: live["spec"] for live in world.store.all("Deployment")}
    for owner in ("base", "maths"):
        names_of = [name for name in after if name.startswith(owner)]
        assert all(before.get(name) != after[name] for name in names_of), owner


async def test_a_revisions_pods_prefer_different_nodes_and_zones_and_a_user_may_insist() -> None:
    insists = {"topologyKey": "kubernetes.io/hostname", "whenUnsatisfiable": "DoNotSchedule"}
    world = await _world(decoder(), model(template={"spec": {"topologySpreadConstraints": [insists]}}))
    for owner, hard in (("base", "ScheduleAnyway"), ("maths", "DoNotSchedule")):
        (live,) = world.deployments(owner).values()
        by_node, by_zone = live["spec"]["template"]["spec"]["topologySpreadConstraints"]
        assert (by_node["whenUnsatisfiable"], by_zone["whenUnsatisfiable"]) == (hard, "ScheduleAnyway")
        assert by_node["labelSelector"] == live["spec"]["selector"]


MESH = {"traffic.sidecar.istio.io/includeInboundPorts": str(names.ENGINE_PORT)}


async def test_a_mesh_gets_the_api_and_is_kept_from_kv() -> None:
    """It knows pods by the ports that their Services name; what is said to it reaches every engine and no selector."""
    template = {"metadata": {"annotations": MESH, "labels": {"sidecar.istio.io/inject": "true"}}}
    world = await _world(decoder(template=template), model(template=template))
    for owner in ("base", "maths"):
        (live,) = world.deployments(owner).values()
        made, selector = live["spec"]["template"]["metadata"], live["spec"]["selector"]["matchLabels"]
        assert made["annotations"].items() >= MESH.items()
        assert made["labels"]["sidecar.istio.io/inject"] == "true"
        assert selector.items() < made["labels"].items()
        assert not [label for label in selector if "istio" in label]
    for service in world.store.all("Service"):
        assert service["spec"]["clusterIP"] == "None"
        assert [(port["name"], port["port"]) for port in service["spec"]["ports"]] == [("http", names.ENGINE_PORT)]
