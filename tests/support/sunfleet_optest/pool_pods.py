"""Pods of PrefillPools in a store: they come and go with their Deployment, and load what they are told to."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from typing import Any

from sunfleet_api import names
from sunfleet_api.pooling import Held, HeldAdapter, State, Wanted
from sunfleet_operator.types import Json
from sunfleet_optest.store import Store

Document = dict[str, Any]


class PoolPods:
    """:class:`~sunfleet_operator.engines.Engines`. ``broken``: why an adapter cannot be loaded, by part of its name;
    ``silent``: names of pods that do not answer. A load is done by the time the pod is asked again.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._held: dict[str, dict[str, str]] = {}  # by pod IP: adapter -> digest
        self._born = 0
        self.broken: dict[str, tuple[str, str]] = {}
        self.silent: set[str] = set()
        self.told: list[tuple[str, tuple[str, ...]]] = []  # each load: pod IP, adapters

    def follow(self, deployment: Document, *, healthy: bool) -> bool:
        """As many pods as the Deployment of a pool wants; whether anything changed."""
        found = deployment["spec"]["template"]["metadata"]["labels"]
        if names.LABEL_POOL not in found:
            return False
        owned = [pod for pod in self._store.all("Pod") if pod["metadata"]["labels"] == found]
        wanted = deployment["spec"]["replicas"]
        for _ in range(wanted - len(owned)):
            self._make(deployment["metadata"]["namespace"], found, healthy=healthy)
        for pod in owned[wanted:]:
            self._store.remove("Pod", pod["metadata"]["namespace"], pod["metadata"]["name"])
        return bool(len(owned) != wanted)

    def _make(self, namespace: str, labels: Mapping[str, str], *, healthy: bool) -> None:
        self._born += 1
        name = f"pool-pod-{self._born}"
        born = f"2026-01-01T01:00:{self._born:02}Z"
        pod = {"name": name, "namespace": namespace, "uid": name, "labels": dict(labels), "resourceVersion": "1"}
        self._store.objects["Pod", namespace, name] = {
            "kind": "Pod", "metadata": {**pod, "generation": 1, "creationTimestamp": born},
            "status": {
                "phase": "Running", "podIP": f"10.0.0.{self._born}",
                "conditions": [{"type": "Ready", "status": "True" if healthy else "False", "lastTransitionTime": "t"}],
                "containerStatuses": [{"name": names.ENGINE_CONTAINER, "containerID": f"containerd://start-1-{name}"}],
            },
        }  # fmt: skip

    def pods(self) -> list[Document]:
        return [pod for pod in self._store.all("Pod") if names.LABEL_POOL in pod["metadata"]["labels"]]

    def restart(self, name: str) -> None:
        """The engine's container starts again, in the same pod, and knows nothing any more."""
        pod = next(pod for pod in self.pods() if pod["metadata"]["name"] == name)
        self._held.pop(pod["status"]["podIP"], None)
        pod["status"] = copy.deepcopy(pod["status"])
        pod["status"]["containerStatuses"][0]["containerID"] = f"containerd://start-2-{name}"

    def loaded(self) -> dict[str, set[str]]:
        """By pod name, of those that are there."""
        return {pod["metadata"]["name"]: set(self._held.get(pod["status"]["podIP"], {})) for pod in self.pods()}

    async def ask(self, pods: Sequence[Json]) -> Mapping[str, Held | None]:
        mine = [pod for pod in pods if names.LABEL_POOL in pod["metadata"]["labels"] and "podIP" in pod["status"]]
        return {pod["metadata"]["name"]: self._answer(pod) for pod in mine}

    def _answer(self, pod: Json) -> Held | None:
        if pod["metadata"]["name"] in self.silent:
            return None
        held = self._held.get(pod["status"]["podIP"], {})
        return Held(adapters=tuple(self._state(name, digest) for name, digest in sorted(held.items())))

    def _state(self, name: str, digest: str) -> HeldAdapter:
        reason, message = next((why for part, why in self.broken.items() if part in name), ("", ""))
        state: State = "Failed" if reason else "Loaded"
        return HeldAdapter(name=name, digest=digest, state=state, reason=reason, message=message)

    async def load(self, address: str, wanted: Wanted) -> None:
        self.told.append((address, tuple(one.name for one in wanted.adapters)))
        self._held[address] = {one.name: one.digest for one in wanted.adapters}
