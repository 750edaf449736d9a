"""From the API server's objects to a snapshot. Pure: what is watched goes in, a new frozen fleet comes out.

``status.traffic`` says what is served and nothing else does. A task that exists without traffic is known (503), an
object that does not exist is unknown (404); both answers survive a restart since they come from the objects alone.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final, Literal

from sunfleet_api import names, wire
from sunfleet_api.pooling import announced
from sunfleet_api.sun_model import SunModel
from sunfleet_api.traffic import PrefillTarget, Traffic, TrafficTarget
from sunfleet_api.wire import EngineInfo
from sunfleet_router.fleet.selectors import SelectorError, parse
from sunfleet_router.fleet.snapshot import Endpoint, Limits, Rate, Route, Snapshot, Task, Timeouts

_COLD_START: Final = 300.0  # seconds that a request waits for the first pod of a task that sleeps, unless it says


@dataclass(frozen=True, slots=True)
class Pod:
    """What the router needs of an engine pod."""

    namespace: str
    labels: Mapping[str, str]
    ready: bool  # Ready, and nobody has asked for its deletion
    endpoint: Endpoint
    adapters: frozenset[str] = frozenset()  # of a PrefillPool's pod: what its engine has loaded


def is_ready(document: Mapping[str, Any]) -> bool:
    """Whether a pod says that it is Ready."""
    conditions = document.get("status", {}).get("conditions") or []
    return any(one.get("type") == "Ready" and one.get("status") == "True" for one in conditions)


def pod_of(document: Mapping[str, Any]) -> Pod | None:
    """A live pod; ``None`` for one that is no engine or has no address yet."""
    metadata, status = document.get("metadata", {}), document.get("status", {})
    labels: dict[str, str] = metadata.get("labels") or {}
    role, address = labels.get(names.LABEL_ROLE), status.get("podIP")
    if role not in (names.ROLE_PREFILL, names.ROLE_DECODE) or not address:
        return None
    typed_role: Literal["prefill", "decode"] = "prefill" if role == names.ROLE_PREFILL else "decode"
    endpoint = Endpoint(
        uid=metadata["uid"], name=metadata["name"], host=address, port=names.ENGINE_PORT, role=typed_role,
        fingerprint=labels.get(names.LABEL_KV_FINGERPRINT, ""),
    )  # fmt: skip
    usable = is_ready(document) and not metadata.get("deletionTimestamp")
    return Pod(metadata["namespace"], labels, usable, endpoint, announced(metadata, status))


def assemble(
    models: Iterable[SunModel], decoders: Iterable[str], pods: Iterable[Pod], infos: Mapping[str, EngineInfo]
) -> Snapshot:
    """``decoders`` are keys ("namespace/name") of the SharedDecoders that exist: pods of a deleted one get nothing."""
    index = _Index(pods, infos)
    pools = {key: index.pool(key) for key in decoders}
    tasks: dict[str, Task] = {}
    for model in sorted(models, key=_precedence):
        tasks.setdefault(model.model_name, _task(model, index))
    return Snapshot(tasks, pools)


def limits_of(traffic: Traffic, *, wakes: bool = False) -> Limits:
    """The limits of a SunModel's traffic; ``wakes``: something brings up a pod when requests wait for one."""
    seconds, queue = traffic.timeouts, traffic.queue
    hold = queue.hold_seconds
    return Limits(
        weight=traffic.weight,
        max_in_flight=traffic.max_in_flight,
        rate=Rate(traffic.rate_limit.requests_per_minute, traffic.rate_limit.tokens_per_minute),
        queue_requests=queue.max_requests,
        queue_tokens=queue.max_tokens,
        queue_bytes=queue.max_bytes,
        queue_ttl=queue.ttl_seconds,
        hold=hold if hold is not None else _COLD_START if wakes else 0.0,
        timeouts=Timeouts(
            connect=seconds.connect_seconds,
            prefill=seconds.prefill_seconds,
            kv_load=seconds.kv_load_seconds,
            first_token=seconds.first_token_seconds,
            inter_token=seconds.inter_token_seconds,
            request=seconds.request_seconds,
        ),
    )


def _precedence(model: SunModel) -> tuple[bool, float, str]:
    """Of equal names: the one that has traffic, then the oldest, as the operator decides it too."""
    created = model.metadata.creation_timestamp
    return not model.status.traffic, created.timestamp() if created else 0.0, model.key


def _task(model: SunModel, index: _Index) -> Task:
    created, scaling = model.metadata.creation_timestamp, model.spec.autoscaling
    wakes = _pooled(model) or (scaling is not None and scaling.min_replicas == 0)
    return Task(
        name=model.model_name,
        created=int(created.timestamp()) if created else 0,
        routes=tuple(_route(model, target, index) for target in model.status.traffic),
        limits=limits_of(model.traffic_limits, wakes=wakes),
        defaults=model.spec.generation.defaults.request_fields(),
        sample_per_million=model.spec.verification.sample_per_million if model.spec.verification else 0,
    )


def _pooled(model: SunModel) -> bool:
    """Whether pods of a pool serve it: they may sleep, or have yet to load its adapter again."""
    adapter = model.spec.prefill.adapter
    return adapter is not None and adapter.pool_ref is not None


def _route(model: SunModel, target: TrafficTarget, index: _Index) -> Route:
    return Route(
        revision=target.revision,
        weight=target.weight,
        decoder=target.decoder,
        salt=target.cache_salt,
        prefill=_prefill(model.metadata.namespace, target.prefill, index),
        module=target.prefill.adapter or wire.ENGINE_MODEL,
    )


def _prefill(namespace: str, target: PrefillTarget, index: _Index) -> tuple[Endpoint, ...]:
    return index.holding(target.pool, target.adapter) if target.pool else index.select(namespace, target.selector)


class _Index:
    """Ready and known pods by (namespace, label, value), so that hundreds of tasks need not each look at every pod."""

    def __init__(self, pods: Iterable[Pod], infos: Mapping[str, EngineInfo]) -> None:
        self._by_label: dict[tuple[str, str, str], list[Pod]] = defaultdict(list)
        self._by_adapter: dict[tuple[str, str], list[Pod]] = defaultdict(list)  # by pool and name
        for pod in pods:
            if not pod.ready or not pod.endpoint.fingerprint:
                continue  # without a fingerprint nobody knows whose KV it can read
            info = infos.get(pod.endpoint.uid)
            if info is None:
                continue  # it has not said who it is yet
            known = replace(pod, endpoint=pod.endpoint.told(info))
            for key, value in pod.labels.items():
                self._by_label[pod.namespace, key, value].append(known)
            for adapter in pod.adapters:
                self._by_adapter[f"{pod.namespace}/{pod.labels.get(names.LABEL_POOL)}", adapter].append(known)

    def holding(self, pool: str, adapter: str) -> tuple[Endpoint, ...]:
        """Pods of a PrefillPool ("namespace/name") that have loaded an adapter."""
        return _endpoints(pod for pod in self._by_adapter.get((pool, adapter), ()) if pod.endpoint.role == "prefill")

    def select(self, namespace: str, text: str) -> tuple[Endpoint, ...]:
        try:
            selector = parse(text)
        except SelectorError:
            return ()
        pin = selector.pin()
        if pin is None:
            return ()  # selects by absence alone: no selector of ours, and it could match another task's pods
        candidates = self._by_label.get((namespace, *pin), ())
        return _endpoints(pod for pod in candidates if selector.matches(pod.labels) and pod.endpoint.role == "prefill")

    def pool(self, key: str) -> tuple[Endpoint, ...]:
        namespace, _, name = key.partition("/")
        candidates = self._by_label.get((namespace, names.LABEL_DECODER, name), ())
        return _endpoints(pod for pod in candidates if pod.endpoint.role == "decode")


def _endpoints(pods: Iterable[Pod]) -> tuple[Endpoint, ...]:
    return tuple(sorted((pod.endpoint for pod in pods), key=lambda endpoint: endpoint.uid))
