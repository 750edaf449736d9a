"""What a room's manifests allow it, and nothing more: a kubeconfig of its own service account."""

from __future__ import annotations

import json
from pathlib import Path

import yaml

from sunfleet_apitest.client import Api

SYSTEM = "sunfleet-system"
_RBAC = "/apis/rbac.authorization.k8s.io/v1"


def service_account_kubeconfig(api: Api, admin: Path, manifests: Path, target: Path) -> Path:
    """Create the service account and the rights in the folder ``manifests``, and write ``target``: the kubeconfig
    ``admin`` with the account's token in place of its user.
    """
    if not any(one["metadata"]["name"] == SYSTEM for one in api.get("/api/v1/namespaces")["items"]):
        api.create("/api/v1/namespaces", {"metadata": {"name": SYSTEM}})
    accounts = f"/api/v1/namespaces/{SYSTEM}/serviceaccounts"
    account = yaml.safe_load((manifests / "service-account.yaml").read_text())
    api.create(accounts, account)
    for document in yaml.safe_load_all((manifests / "rbac.yaml").read_text()):
        space = document["metadata"].get("namespace")
        scope = f"/namespaces/{space}" if space else ""
        api.create(f"{_RBAC}{scope}/{document['kind'].lower()}s", document)
    token = api.create(f"{accounts}/{account['metadata']['name']}/token", {"spec": {}})["status"]["token"]
    config = yaml.safe_load(admin.read_text())
    for user in config["users"]:
        user["user"] = {"token": token}
    target.write_text(json.dumps(config))
    return target
