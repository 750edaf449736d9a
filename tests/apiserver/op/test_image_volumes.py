"""What is rendered for an image volume, before API servers with and without them."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from sunfleet_apitest.client import Api
from sunfleet_cluster.controlplane import control_plane
from sunfleet_operator.apply import _image_volumes
from sunfleet_optest.objects import decoder, report
from sunfleet_optest.world import World

pytestmark = pytest.mark.timeout(300)
URI = "oci://registry.example/acme/base@sha256:" + "c" * 64
_DEPLOYMENTS = "/apis/apps/v1/namespaces/default/deployments"


@pytest.fixture(scope="module")
def deployment() -> dict[str, Any]:
    """Of a decoder whose weights are a folder of an image, as the operator makes it."""

    async def rendered() -> dict[str, Any]:
        world = World()
        world.resolve = lambda asked: report(asked, folder="models")
        source = {"uri": URI, "credentialsSecretRef": {"name": "opens-it"}, "download": {"imageVolume": True}}
        world.store.put(decoder(model=source))
        await world.settle()
        (live,) = world.deployments("base").values()
        return dict(live)

    live = asyncio.run(rendered())
    kept = {key: live["metadata"][key] for key in ("name", "labels", "annotations")}
    return {"metadata": {**kept, "namespace": "default"}, "spec": live["spec"]}


def test_a_cluster_with_image_volumes_mounts_the_folder_of_the_image(
    deployment: dict[str, Any], tmp_path_factory: pytest.TempPathFactory
) -> None:
    gate = ("--feature-gates=ImageVolume=true",)
    with control_plane(tmp_path_factory.mktemp("image-volumes"), api_flags=gate) as plane:
        made = Api(plane.kubeconfig).create(_DEPLOYMENTS, deployment, dry_run=True)
    spec = made["spec"]["template"]["spec"]
    (volume,) = (one for one in spec["volumes"] if "image" in one)
    assert volume["image"]["reference"] == URI.removeprefix("oci://")
    (engine,) = spec["containers"]
    (mount,) = (one for one in engine["volumeMounts"] if one["name"] == volume["name"])
    assert (mount["subPath"], mount["readOnly"]) == ("models", True)
    assert "initContainers" not in spec
    assert spec["imagePullSecrets"] == [{"name": "opens-it"}]


def test_a_cluster_without_them_takes_them_out_which_the_operator_looks_for(
    api: Api, deployment: dict[str, Any]
) -> None:
    kind = {"kind": "Deployment"}
    made = api.create(_DEPLOYMENTS, deployment, dry_run=True)
    assert (_image_volumes(deployment | kind), _image_volumes(made | kind)) == ({"weights"}, set())
