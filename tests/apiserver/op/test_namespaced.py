"""An operator that serves one namespace: with RoleBindings alone it does all of its work and asks for nothing else."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from sunfleet_apitest.client import Api
from sunfleet_apitest.identity import SYSTEM
from sunfleet_cluster.controlplane import RunningControlPlane
from sunfleet_optest.live import Fleet, Process
from sunfleet_optest.objects import decoder, model

from .conftest import in_place_of, make_process

pytestmark = pytest.mark.timeout(300)
ACCOUNT = "sunfleet-operator-of-one"
_RBAC = "rbac.authorization.k8s.io"


def _bind(api: Api, namespace: str, kind: str, role: str) -> None:
    subject = {"kind": "ServiceAccount", "name": ACCOUNT, "namespace": SYSTEM}
    reference = {"apiGroup": _RBAC, "kind": kind, "name": role}
    binding: dict[str, Any] = {"metadata": {"name": ACCOUNT}, "roleRef": reference, "subjects": [subject]}
    api.create(f"/apis/{_RBAC}/v1/namespaces/{namespace}/rolebindings", binding)


@pytest.fixture
def bound(identity: Path, api: Api, plane: RunningControlPlane, namespace: str, tmp_path: Path) -> Path:
    """A kubeconfig of an account that has the operator's rights in ``namespace`` and nowhere else."""
    accounts = f"/api/v1/namespaces/{SYSTEM}/serviceaccounts"
    api.create(accounts, {"metadata": {"name": ACCOUNT}})
    _bind(api, namespace, "ClusterRole", "sunfleet-operator")
    _bind(api, SYSTEM, "Role", "sunfleet-operator-leader")
    token = api.create(f"{accounts}/{ACCOUNT}/token", {"spec": {}})["status"]["token"]
    config = yaml.safe_load(plane.kubeconfig.read_text())
    for user in config["users"]:
        user["user"] = {"token": token}
    target = tmp_path / "namespaced.kubeconfig"
    target.write_text(json.dumps(config))
    return target


def test_it_serves_its_namespace_and_says_what_lies_beyond(
    operator: Process, bound: Path, api: Api, namespace: str
) -> None:
    process = make_process(bound, "of-one")
    process.env = {**process.env, "SUNFLEET_OPERATOR_NAMESPACES": namespace}
    fleet = Fleet(api, namespace)
    with in_place_of(operator, process):
        fleet.apply(decoder())
        fleet.apply(model())
        fleet.apply(model("abroad", decoderRef={"name": "base", "namespace": "elsewhere"}))
        fleet.until_ready(("SharedDecoder", "base"), ("SunModel", "maths"))
        fleet.until(lambda: fleet.condition("SunModel", "abroad")[1] == "DecoderNotFound", "what it may not read")
        assert "SUNFLEET_OPERATOR_NAMESPACES" in fleet.condition("SunModel", "abroad")[2]
        fleet.clear()
        fleet.until(lambda: fleet.gone("SharedDecoder", "base"), "the decoder goes after its tasks")
