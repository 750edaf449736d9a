"""Plays every kubelet: a pod is Ready as soon as it exists, and a resolver's pod has ended with a report."""

from __future__ import annotations

import asyncio
from contextlib import suppress

import aiohttp

from operator_scale.api import Api, Document
from sunfleet_api import names
from sunfleet_optest.objects import report

_PATCHES_AT_ONCE = 32
_NOW = "2026-01-01T00:00:00Z"  # kubelet's clock; nothing measures with it


async def run(api: Api) -> None:
    """Until it is cancelled."""
    seen = set[str]()
    slots = asyncio.Semaphore(_PATCHES_AT_ONCE)
    async with asyncio.TaskGroup() as patches:
        async for pod in api.watch("/api/v1/pods"):
            if pod["metadata"]["uid"] not in seen:
                seen.add(pod["metadata"]["uid"])
                patches.create_task(_settle(api, pod, slots))


async def _settle(api: Api, pod: Document, slots: asyncio.Semaphore) -> None:
    meta = pod["metadata"]
    path = f"/api/v1/namespaces/{meta['namespace']}/pods/{meta['name']}/status"
    async with slots:
        with suppress(aiohttp.ClientResponseError):  # deleted meanwhile
            await api.merge(path, {"status": status(pod)})


def status(pod: Document) -> Document:
    """What kubelet would say of it a moment later. Pure."""
    (container, *_) = pod["spec"]["containers"]
    resolver = pod["metadata"]["labels"].get(names.LABEL_ROLE) == names.ROLE_RESOLVER
    said = {"name": container["name"], "image": container["image"], "imageID": "", "restartCount": 0}
    if resolver:
        message = report(container["args"][1]).model_dump_json()
        ended = {"exitCode": 0, "reason": "Completed", "message": message, "startedAt": _NOW, "finishedAt": _NOW}
        return {"phase": "Succeeded", "containerStatuses": [{**said, "ready": False, "state": {"terminated": ended}}]}
    ready = [{"type": type_, "status": "True", "lastTransitionTime": _NOW} for type_ in ("Ready", "ContainersReady")]
    running = {**said, "ready": True, "started": True, "state": {"running": {"startedAt": _NOW}}}
    return {"phase": "Running", "conditions": ready, "containerStatuses": [running]}
