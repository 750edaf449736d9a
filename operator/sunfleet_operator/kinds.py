"""The kinds the operator touches, with the verbs it needs on each: the one table that paths and RBAC are checked
against."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from sunfleet_api import names
from sunfleet_operator.types import DECODER, MODEL, NAMESPACE, POOL, PROFILE, TUNING


@dataclass(frozen=True)
class Kind:
    """Where objects of a kind live in the API, and what the operator does with them."""

    kind: str
    api_version: str
    plural: str
    verbs: tuple[str, ...]
    namespaced: bool = True
    subresources: tuple[str, ...] = ()

    @property
    def group(self) -> str:
        group, slash, _ = self.api_version.partition("/")
        return group if slash else ""

    def path(self, namespace: str = "", name: str = "", subresource: str = "") -> str:
        """The URL path of the collection, or of one object when ``name`` is given."""
        root = f"/apis/{self.api_version}" if self.group else f"/api/{self.api_version}"
        scope = f"/namespaces/{namespace}" if namespace and self.namespaced else ""
        return "/".join(part for part in (f"{root}{scope}/{self.plural}", name, subresource) if part)


# patch with create: a server-side apply of an object that is not there yet needs both.
_CHILD = ("get", "list", "watch", "create", "patch", "delete")

ALL: Final = (
    Kind(DECODER, names.API_VERSION, "shareddecoders", ("get", "list", "watch", "patch"), subresources=("status",)),
    Kind(MODEL, names.API_VERSION, "sunmodels", ("get", "list", "watch"), subresources=("status",)),
    Kind(POOL, names.API_VERSION, "prefillpools", ("get", "list", "watch"), subresources=("status",)),
    Kind(PROFILE, names.API_VERSION, "servingprofiles", ("get", "list", "watch"), subresources=("status",)),
    Kind(TUNING, names.API_VERSION, "prefilltunings", ("get", "list", "watch"), subresources=("status",)),
    Kind("Deployment", "apps/v1", "deployments", _CHILD),
    Kind("Job", "batch/v1", "jobs", _CHILD),
    Kind("ControllerRevision", "apps/v1", "controllerrevisions", ("get", "list", "create", "patch", "delete")),
    Kind("Service", "v1", "services", ("get", "create", "patch")),
    Kind("PodDisruptionBudget", "policy/v1", "poddisruptionbudgets", ("get", "create", "patch")),
    Kind("NetworkPolicy", "networking.k8s.io/v1", "networkpolicies", _CHILD),
    Kind("Pod", "v1", "pods", ("list", "watch", "patch", "delete")),
    Kind("PodLog", "v1", "pods/log", ("get",)),
    Kind("HorizontalPodAutoscaler", "autoscaling/v2", "horizontalpodautoscalers", ("list",)),
    Kind("ConfigMap", "v1", "configmaps", ("get",)),
    Kind(NAMESPACE, "v1", "namespaces", ("get", "list", "watch"), namespaced=False),
    Kind("Event", "v1", "events", ("list", "create")),
    Kind("Lease", "coordination.k8s.io/v1", "leases", ("get", "create", "update")),
)
BY_NAME: Final = {kind.kind: kind for kind in ALL}
