"""Watch events. kopf's other handlers would write to users' objects; these write nothing."""

from __future__ import annotations

from typing import Any

import kopf

from sunfleet_api import names
from sunfleet_operator.process import Operator
from sunfleet_operator.types import DECODER, MODEL, NAMESPACE, POOL, PROFILE, TUNING

_OURS = {names.LABEL_MANAGED_BY: names.MANAGED_BY}


@kopf.on.event(names.GROUP, names.VERSION, "shareddecoders")
async def decoder_event(memo: Operator, body: kopf.Body, type: str | None, **_: Any) -> None:  # noqa: A002 - kopf's name
    memo.seen(DECODER, dict(body), type)


@kopf.on.event(names.GROUP, names.VERSION, "sunmodels")
async def model_event(memo: Operator, body: kopf.Body, type: str | None, **_: Any) -> None:  # noqa: A002
    memo.seen(MODEL, dict(body), type)


@kopf.on.event(names.GROUP, names.VERSION, "prefillpools")
async def pool_event(memo: Operator, body: kopf.Body, type: str | None, **_: Any) -> None:  # noqa: A002
    memo.seen(POOL, dict(body), type)


@kopf.on.event(names.GROUP, names.VERSION, "servingprofiles")
async def profile_event(memo: Operator, body: kopf.Body, type: str | None, **_: Any) -> None:  # noqa: A002
    memo.seen(PROFILE, dict(body), type)


@kopf.on.event(names.GROUP, names.VERSION, "prefilltunings")
async def tuning_event(memo: Operator, body: kopf.Body, type: str | None, **_: Any) -> None:  # noqa: A002
    memo.seen(TUNING, dict(body), type)


@kopf.on.event("apps", "v1", "deployments", labels=_OURS)
async def deployment_event(memo: Operator, body: kopf.Body, type: str | None, **_: Any) -> None:  # noqa: A002
    memo.seen("Deployment", dict(body), type)


@kopf.on.event("batch", "v1", "jobs", labels=_OURS)
async def job_event(memo: Operator, body: kopf.Body, type: str | None, **_: Any) -> None:  # noqa: A002
    memo.seen("Job", dict(body), type)


@kopf.on.event("networking.k8s.io", "v1", "networkpolicies", labels=_OURS)
async def policy_event(memo: Operator, body: kopf.Body, type: str | None, **_: Any) -> None:  # noqa: A002
    memo.seen("NetworkPolicy", dict(body), type)


@kopf.on.event("", "v1", "pods", labels=_OURS)
async def pod_event(memo: Operator, body: kopf.Body, type: str | None, **_: Any) -> None:  # noqa: A002
    memo.seen("Pod", dict(body), type)


def watch_namespaces() -> None:
    """Also watch Namespaces. Not for an operator that serves only some: watching these is a right on the whole
    cluster."""
    kopf.on.event("", "v1", "namespaces")(namespace_event)


async def namespace_event(memo: Operator, body: kopf.Body, type: str | None, **_: Any) -> None:  # noqa: A002
    memo.seen(NAMESPACE, dict(body), type)
