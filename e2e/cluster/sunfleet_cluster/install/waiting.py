"""What a Deployment and its pods still lack, read from their objects. Pure."""

from collections.abc import Sequence
from typing import Any

Object = dict[str, Any]

# Reasons that time alone does not mend.
_HOPELESS = {
    "ErrImagePull",
    "ImagePullBackOff",
    "ErrImageNeverPull",
    "InvalidImageName",
    "CreateContainerConfigError",
    "CreateContainerError",
}
_HASH = "pod-template-hash"
_CRASHES_ALLOWED = 2  # a start that loses a race with the cluster's own start


def lacks(deployment: Object) -> str:
    """Why `deployment` is not done rolling out, in a few words; empty when it is."""
    wanted = deployment["spec"].get("replicas", 1)
    status = deployment.get("status", {})
    if status.get("observedGeneration", 0) < deployment["metadata"].get("generation", 0):
        return "not seen by its controller yet"
    updated, available = status.get("updatedReplicas", 0), status.get("availableReplicas", 0)
    if updated < wanted:
        return f"{updated} of {wanted} pods updated"
    if status.get("replicas", 0) > updated:
        return f"{status['replicas'] - updated} old pods still there"
    return "" if available >= wanted else f"{available} of {wanted} pods available"


def current_pods(deployments: Sequence[Object], replica_sets: Sequence[Object], pods: Sequence[Object]) -> list[Object]:
    """The pods of the revision that each of `deployments` rolls out; a crashing pod of the one before says nothing."""
    revisions = {(each["metadata"]["name"], _revision(each)) for each in deployments}
    hashes = {
        replica_set["metadata"]["labels"][_HASH]
        for replica_set in replica_sets
        for owner in replica_set["metadata"].get("ownerReferences", [])
        if (owner["name"], _revision(replica_set)) in revisions
    }
    return [pod for pod in pods if pod["metadata"].get("labels", {}).get(_HASH) in hashes]


def _revision(owner: Object) -> str:
    return str(owner["metadata"].get("annotations", {}).get("deployment.kubernetes.io/revision", ""))


def hopeless(pods: Sequence[Object]) -> str:
    """Why waiting for `pods` is in vain; empty when it may not be."""
    for pod in pods:
        for status in _container_statuses(pod):
            waiting = status.get("state", {}).get("waiting", {})
            crashed = waiting.get("reason") == "CrashLoopBackOff" and status.get("restartCount", 0) > _CRASHES_ALLOWED
            if waiting.get("reason") in _HOPELESS or crashed:
                return f"pod {pod['metadata']['name']}: {waiting['reason']}: {waiting.get('message', '')}".rstrip(": ")
    return ""


def complaints(pods: Sequence[Object]) -> list[str]:
    """One line for each condition that does not hold and each container that does not run."""
    lines: list[str] = []
    for pod in pods:
        name = pod["metadata"]["name"]
        conditions = pod.get("status", {}).get("conditions", [])
        failed = [each for each in conditions if each["status"] != "True" and each.get("message")]
        lines += [f"{name}: {each['type']}={each['status']}: {each['message']}" for each in failed]
        for status in _container_statuses(pod):
            state = status.get("state", {})
            if "running" not in state:
                lines += [f"{name}/{status['name']}: {kind}: {_detail(state[kind])}" for kind in state]
    return lines


def _detail(state: Object) -> str:
    parts = [str(state[key]) for key in ("reason", "exitCode", "message") if state.get(key) is not None]
    return ", ".join(parts)


def _container_statuses(pod: Object) -> list[Object]:
    status = pod.get("status", {})
    return [*status.get("initContainerStatuses", []), *status.get("containerStatuses", [])]
