"""How checkpoints get into pods: caches, proxies, authorities, image volumes, volumes of the user's own."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any

import pytest
from pydantic import ValidationError

from sunfleet_api import names
from sunfleet_api.download import Download
from sunfleet_operator.build.volumes import GivenVolumes
from sunfleet_operator.build.weights import Fetcher
from sunfleet_operator.cluster import RefusedError
from sunfleet_operator.observed import Defaults
from sunfleet_operator.process import defaults
from sunfleet_operator.settings import Settings
from sunfleet_optest.objects import decoder, model, report
from sunfleet_optest.store import Store
from sunfleet_optest.world import World

Json = dict[str, Any]
BASE = "hf://acme/base@" + "a" * 40
ADAPTER = "s3://acme/maths-adapter@sha256:" + "b" * 64
CACHE = {"claimName": "weights-cache", "sizeLimit": "500Gi"}
NFS = {"name": "models", "nfs": {"server": "nfs.example", "path": "/export"}}
MOUNTS_NFS = {
    "volumes": [NFS],
    "containers": [{"name": "engine", "volumeMounts": [{"name": "models", "mountPath": "/mnt/models"}]}],
}


def source(uri: str, **download: Any) -> Json:
    return {"uri": uri, "credentialsSecretRef": {"name": "opens-it"}, "download": download}


async def world_of(*manifests: Json, defaults: Defaults | None = None) -> World:
    world = World(defaults) if defaults else World()
    world.resolve = lambda uri: report(uri, digest="sha256:" + f"{len(uri):064x}", size_bytes=1000)
    for manifest in manifests:
        world.store.put(manifest)
    await world.settle()
    return world


async def asking(*manifests: Json) -> World:
    """Resolver Jobs that have not answered yet."""
    world = World()
    for manifest in manifests:
        world.store.put(manifest)
    await world.reconcile()
    return world


def pod(world: World, owner: str = "base") -> Json:
    (live,) = world.deployments(owner).values()
    return dict(live["spec"]["template"]["spec"])


def job(world: World) -> Json:
    (live,) = world.store.all("Job")
    return dict(live["spec"]["template"]["spec"])


def named(entries: list[Json], name: str) -> Json:
    return next(entry for entry in entries if entry["name"] == name)


def mount_of(container: Json, path: str) -> Json:
    return next(mount for mount in container["volumeMounts"] if mount["mountPath"] == path)


def env(container: Json) -> dict[str, str]:
    return {entry["name"]: entry["value"] for entry in container["env"] if "value" in entry}


async def test_a_cache_is_filled_before_the_engine_which_sees_one_digest_of_it_read_only() -> None:
    spec = pod(await world_of(decoder(model=source(BASE, cache=CACHE))))
    digest = "sha256:" + f"{len(BASE):064x}"
    fetch, hold = spec["initContainers"]
    claim = named(spec["volumes"], "weights-cache")["persistentVolumeClaim"]
    assert claim == {"claimName": "weights-cache"}
    assert fetch["args"][:2] == ["fetch", BASE]
    told = dict(zip(fetch["args"][2::2], fetch["args"][3::2], strict=True))
    assert told == {
        "--cache": "/cache", "--cache-limit": "500Gi", "--size": "1000", "--kind": "model", "--digest": digest,
    }  # fmt: skip
    assert hold["restartPolicy"] == "Always"
    assert hold["command"][-1] == "/cache/" + digest.replace(":", "-")
    seen = mount_of(named(spec["containers"], "engine"), names.WEIGHTS_PATH)
    assert seen == {
        "name": "weights-cache", "mountPath": names.WEIGHTS_PATH, "subPath": digest.replace(":", "-"), "readOnly": True,
    }  # fmt: skip


async def test_base_and_adapter_of_one_pod_share_the_cache() -> None:
    adapter: Json = {"prefill": {"adapter": source(ADAPTER, cache=CACHE)}}
    spec = pod(await world_of(decoder(model=source(BASE)), model(**adapter)), "maths")
    claims = [volume for volume in spec["volumes"] if "persistentVolumeClaim" in volume]
    assert len(claims) == 1
    assert [c["name"] for c in spec["initContainers"]] == [
        "fetch-weights", "hold-weights", "fetch-adapter", "hold-adapter",
    ]  # fmt: skip
    engine = named(spec["containers"], "engine")
    assert mount_of(engine, names.ADAPTER_PATH)["name"] == mount_of(engine, names.WEIGHTS_PATH)["name"]


async def test_a_claim_that_holds_weights_and_the_cache_can_be_written_for_the_cache() -> None:
    adapter: Json = {"prefill": {"adapter": source(ADAPTER, cache={**CACHE, "claimName": "models"})}}
    spec = pod(await world_of(decoder(), model(**adapter)), "maths")
    (claim,) = [v["persistentVolumeClaim"] for v in spec["volumes"] if "persistentVolumeClaim" in v]
    assert claim == {"claimName": "models"}
    assert mount_of(named(spec["containers"], "engine"), names.WEIGHTS_PATH)["readOnly"] is True


async def test_proxy_authority_and_tuning_reach_resolver_and_download_and_not_the_engine() -> None:
    download = {
        "image": "mirror/weights:2",
        "parallel": 9,
        "proxy": {"url": "http://proxy:3128", "noProxy": ".svc"},
        "caBundle": {"configMapRef": {"name": "company"}},
        "env": [{"name": "AWS_REGION", "value": "eu-central-1"}],
    }
    expected = {
        "HTTP_PROXY": "http://proxy:3128", "HTTPS_PROXY": "http://proxy:3128", "NO_PROXY": ".svc",
        "SUNFLEET_WEIGHTS_WORKERS": "9", "AWS_REGION": "eu-central-1",
        "SUNFLEET_WEIGHTS_CA_FILE": "/etc/sunfleet/ca/ca.crt",
    }  # fmt: skip
    manifest = decoder(model=source(BASE, **download))
    loading, resolving = pod(await world_of(manifest)), job(await asking(manifest))
    for spec, container in ((loading, loading["initContainers"][0]), (resolving, resolving["containers"][0])):
        assert container["image"] == "mirror/weights:2"
        assert expected.items() <= env(container).items()
        assert mount_of(container, "/etc/sunfleet/ca")["readOnly"] is True
        assert named(spec["volumes"], "ca-bundle")["configMap"]["name"] == "company"
        assert container["envFrom"] == [{"secretRef": {"name": "opens-it"}}]
    engine = named(loading["containers"], "engine")
    assert not expected.keys() & env(engine).keys()
    assert "envFrom" not in engine


async def test_two_downloads_of_one_pod_mount_the_authority_once() -> None:
    bundle = {"caBundle": {"configMapRef": {"name": "company"}}}
    spec = pod(
        await world_of(decoder(model=source(BASE)), model(prefill={"adapter": source(ADAPTER, **bundle)})), "maths"
    )
    volumes = [volume["name"] for volume in spec["volumes"]]
    assert len(volumes) == len(set(volumes))


async def test_an_objects_own_way_replaces_the_operators() -> None:
    default = Download.model_validate({"proxy": {"url": "http://everyone:1"}, "parallel": 2})
    defaults = Defaults(engine_image="worker:1", fetcher=Fetcher(image="weights:1", download=default))
    theirs = pod(await world_of(decoder(model={"uri": BASE}), defaults=defaults))
    assert env(theirs["initContainers"][0])["HTTPS_PROXY"] == "http://everyone:1"
    own = pod(await world_of(decoder(model=source(BASE, parallel=3)), defaults=defaults))
    assert env(own["initContainers"][0]) == {"SUNFLEET_WEIGHTS_WORKERS": "3"}


def test_the_operators_way_is_json_with_the_fields_of_an_objects(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SUNFLEET_OPERATOR_WEIGHTS_DOWNLOAD", '{"proxy": {"url": "http://proxy:3128"}}')
    assert defaults(Settings()).fetcher.download.given() == {"proxy": {"url": "http://proxy:3128"}}
    monkeypatch.setenv("SUNFLEET_OPERATOR_WEIGHTS_DOWNLOAD", '{"prxy": {"url": "http://proxy:3128"}}')
    with pytest.raises(ValidationError, match="prxy"):
        Settings()


async def test_an_objects_own_way_is_part_of_its_revision_and_the_operators_is_not() -> None:
    world = await world_of(decoder(model={"uri": BASE}))
    before = world.status("SharedDecoder", "base")["currentRevision"]
    changed = Download.model_validate({"parallel": 2})
    world.defaults = Defaults(engine_image="worker:1", fetcher=Fetcher(image="weights:1", download=changed))
    await world.settle()
    assert world.status("SharedDecoder", "base")["currentRevision"] == before
    world.store.put(decoder(model={"uri": BASE, "download": {"cache": CACHE}}))
    await world.settle()
    assert world.status("SharedDecoder", "base")["currentRevision"] != before


async def test_an_image_volume_needs_no_download() -> None:
    uri = "oci://registry.example/acme/base@sha256:" + "c" * 64
    world = World()
    world.resolve = lambda asked: report(asked, folder="models")
    world.store.put(decoder(model=source(uri, imageVolume=True)))
    await world.settle()
    spec = pod(world)
    assert "initContainers" not in spec
    assert named(spec["volumes"], "weights")["image"] == {"reference": uri.removeprefix("oci://")}
    seen = mount_of(named(spec["containers"], "engine"), names.WEIGHTS_PATH)
    assert (seen["subPath"], seen["readOnly"]) == ("models", True)
    assert spec["imagePullSecrets"] == [{"name": "opens-it"}]


class WithoutImageVolumes(Store):
    """An API server whose feature gate is off: it stores the pod without them, and without a word."""

    async def apply(self, manifest: Json, manager: str, *, subresource: str = "") -> Mapping[str, Any]:
        kept = copy.deepcopy(manifest)
        if manifest["kind"] == "Deployment" and "template" in manifest["spec"]:
            spec = kept["spec"]["template"]["spec"]
            spec["volumes"] = [volume for volume in spec["volumes"] if "image" not in volume]
        return await super().apply(kept, manager, subresource=subresource)


async def test_an_image_volume_that_the_api_server_drops_is_told_with_the_remedy() -> None:
    world = World()
    world.store = WithoutImageVolumes()
    world.store.put(decoder(model=source("oci://registry.example/acme/base@sha256:" + "c" * 64, imageVolume=True)))
    with pytest.raises(RefusedError, match="imageVolume"):
        await world.settle()
    told = world.condition("SharedDecoder", "base", "Progressing")
    assert (told["reason"], "leave out download.imageVolume" in told["message"]) == ("ChildRefused", True)


async def test_a_registrys_login_is_mounted_for_the_download_alone() -> None:
    uri = "oci://registry.example/acme/base@sha256:" + "c" * 64
    manifest = decoder(model=source(uri))
    loading, resolving = pod(await world_of(manifest)), job(await asking(manifest))
    for spec, container in ((loading, loading["initContainers"][0]), (resolving, resolving["containers"][0])):
        folder = env(container)["SUNFLEET_WEIGHTS_SECRET"]
        volume = named(spec["volumes"], mount_of(container, folder)["name"])
        assert volume["secret"] == {"secretName": "opens-it"}
    engine = named(loading["containers"], "engine")
    assert not any("login" in mount["name"] for mount in engine["volumeMounts"])


async def test_a_file_lies_in_a_volume_of_the_template_and_is_never_copied() -> None:
    manifest = decoder(model={"uri": "file:///mnt/models/base"}, template={"spec": MOUNTS_NFS})
    loading, resolving = pod(await world_of(manifest)), job(await asking(manifest))
    assert "initContainers" not in loading
    for spec, container in ((loading, loading["containers"][0]), (resolving, resolving["containers"][0])):
        seen = mount_of(container, names.WEIGHTS_PATH)
        assert (seen["subPath"], seen["readOnly"]) == ("base", True)
        assert named(spec["volumes"], seen["name"])["nfs"] == NFS["nfs"]


async def test_a_file_in_no_volume_is_said_and_starts_nothing() -> None:
    world = await asking(decoder(model={"uri": "file:///mnt/models/base"}))
    said = world.condition("SharedDecoder", "base", "WeightsReady")
    assert (said["status"], said["reason"]) == ("False", "VolumeNotFound")
    assert "spec.template" in said["message"]
    assert not list(world.store.all("Job"))
    world.store.put(decoder(model={"uri": "file:///mnt/models/base"}, template={"spec": MOUNTS_NFS}))
    await world.settle()
    assert world.condition("SharedDecoder", "base", "Ready")["status"] == "True"


async def test_an_adapter_mounts_the_volume_of_its_base_too() -> None:
    base = decoder(model={"uri": "file:///mnt/models/base"}, template={"spec": MOUNTS_NFS})
    adapter: Json = {"prefill": {"adapter": {"uri": ADAPTER}}}
    world = await world_of(base, model(**adapter))
    said = world.condition("SunModel", "maths", "ResolvedRefs")
    assert (said["status"], said["reason"]) == ("False", "VolumeNotFound")
    world.store.put(model(**adapter, template={"spec": MOUNTS_NFS}))
    await world.settle()
    assert mount_of(named(pod(world, "maths")["containers"], "engine"), names.WEIGHTS_PATH)["subPath"] == "base"


@pytest.mark.parametrize(
    ("path", "volume", "inside"),
    [
        ("/mnt", "outer", ""),
        ("/mnt/a/b", "outer", "a/b"),
        ("/mnt/in/x", "inner", "sub/x"),
        ("/mnt/inside", "outer", "inside"),
        ("/mn", "", ""),
        ("/", "", ""),
    ],
)
def test_the_innermost_mount_holds_a_path(path: str, volume: str, inside: str) -> None:
    mounts = [
        {"name": "outer", "mountPath": "/mnt"},
        {"name": "inner", "mountPath": "/mnt/in/", "subPath": "sub"},
        {"name": "strange", "mountPath": "/"},
    ]
    spec = {
        "volumes": [{"name": "outer"}, {"name": "inner"}],
        "containers": [{"name": "engine", "volumeMounts": mounts}, {"name": "other"}],
    }
    found = GivenVolumes.of(spec).find(path)
    assert found == (({"name": volume}, inside) if volume else None)


async def test_every_way_satisfies_restricted_pod_security() -> None:
    adapter: Json = {"prefill": {"adapter": source(ADAPTER, cache=CACHE)}}
    world = await world_of(decoder(model=source(BASE, cache=CACHE)), model(**adapter))
    for owner in ("base", "maths"):
        for container in (*pod(world, owner)["initContainers"], *pod(world, owner)["containers"]):
            security = container["securityContext"]
            assert security["allowPrivilegeEscalation"] is False
            assert security["readOnlyRootFilesystem"] is True
            assert security["capabilities"] == {"drop": ["ALL"]}
