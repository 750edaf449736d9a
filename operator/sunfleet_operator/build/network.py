"""Who may reach the engine pods of an object: one NetworkPolicy for all its revisions. Pure.

Engines do what they are told by whoever reaches them, and hand KV to whoever asks for it, so: the API is for routers,
KV for the other role's pods of the same fleet, metrics for Prometheus. What pods may reach themselves is left open: no
two clusters' registries, hubs and name servers stand at the same address.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from sunfleet_api import names
from sunfleet_api.refs import AllowedNamespaces
from sunfleet_operator.build import labels
from sunfleet_operator.types import DECODER, POOL, Json, Key, Manifest

Peer = Mapping[str, Any]  # a NetworkPolicyPeer
# The label that every namespace carries by itself.
_NAMESPACE_NAME: Final = "kubernetes.io/metadata.name"
_KV: Final = {"port": names.KV_PORT_FIRST, "endPort": names.KV_PORT_LAST, "protocol": "TCP"}


@dataclass(frozen=True)
class Visitors:
    """Who comes from outside a fleet, as NetworkPolicy peers; of no peers nobody comes."""

    routers: tuple[Peer, ...]
    prometheus: tuple[Peer, ...]
    operator: tuple[Peer, ...] = ()  # comes to the pods of PrefillPools alone


@dataclass(frozen=True)
class Fellows:
    """Pods of the same fleet that come to these: of the other role for KV, verifiers for the API."""

    other_role: tuple[Peer, ...]
    verifiers: Peer


def network_policy(owner: Json, key: Key, visitors: Visitors, fellows: Fellows) -> Manifest:
    """For the pods of one object, of all its revisions."""
    # A decode pod asks the prefill pod's side channel where KV lies, and then reads it. UCX may answer over a
    # connection that the read side opens, or over one of its own: hence the KV ports of both, and one side channel.
    side_channel = [] if key.kind == DECODER else [_port(names.SIDE_CHANNEL_PORT)]
    rules = (
        _rule([*visitors.routers, fellows.verifiers], [_port(names.ENGINE_PORT)]),
        _rule(visitors.prometheus, [_port(names.METRICS_PORT)]),
        _rule(visitors.operator if key.kind == POOL else (), [_port(names.ADMIN_PORT)]),
        _rule(fellows.other_role, [*side_channel, dict(_KV)]),
    )
    return labels.child(
        "networking.k8s.io/v1",
        "NetworkPolicy",
        name=labels.pool_name(key),
        owner=owner,
        labels=labels.child_labels(key, labels.role(key.kind)),
        spec={
            "podSelector": {"matchLabels": labels.pool_selector(key)},
            "policyTypes": ["Ingress"],
            "ingress": [rule for rule in rules if rule is not None],
        },
    )


def _rule(peers: Sequence[Peer], ports: list[Manifest]) -> Manifest | None:
    """No rule without peers: an empty ``from`` would let everybody in."""
    return {"from": [dict(peer) for peer in peers], "ports": ports} if peers else None


def _port(number: int) -> Manifest:
    return {"port": number, "protocol": "TCP"}


def of_task(key: Key, decoders: Iterable[Key]) -> Fellows:
    """The decode pods of these SharedDecoders, wherever they are, and the task's own verifier."""
    decode = tuple(_peer(_named(each.namespace), labels.pool_selector(each)) for each in sorted(decoders))
    return Fellows(
        decode, _peer(_named(key.namespace), {**labels.owned_by(key), names.LABEL_ROLE: names.ROLE_VERIFIER})
    )


def of_decoder(key: Key, allowed: AllowedNamespaces) -> Fellows:
    """Prefill pods and verifiers of the namespaces whose tasks may attach."""
    return Fellows((_of_tasks(key, allowed, names.ROLE_PREFILL),), _of_tasks(key, allowed, names.ROLE_VERIFIER))


def of_pool(key: Key, decoder: Key, allowed: AllowedNamespaces) -> Fellows:
    """The decode pods, and verifiers of the namespaces whose tasks may share these pods."""
    decode = _peer(_named(decoder.namespace), labels.pool_selector(decoder))
    return Fellows((decode,), _of_tasks(key, allowed, names.ROLE_VERIFIER))


def _of_tasks(key: Key, allowed: AllowedNamespaces, role: str) -> Peer:
    """Pods of a role, of the tasks that ``key`` lets attach."""
    if allowed.from_ == "Selector" and allowed.selector is not None:
        spaces = allowed.selector.to_wire()
    else:
        spaces = {} if allowed.from_ == "All" else _named(key.namespace)
    return _peer(spaces, {**labels.OURS, names.LABEL_ROLE: role})


def routers(namespace: str) -> tuple[Peer, ...]:
    """The router's pods, which live in the operator's namespace."""
    return (_peer(_named(namespace), {names.LABEL_NAME: "sunfleet-router"}),)


def operators(namespace: str) -> tuple[Peer, ...]:
    """The operator's own pods."""
    return (_peer(_named(namespace), {names.LABEL_NAME: "sunfleet-operator"}),)


def _peer(namespaces: Mapping[str, Any], pods: Mapping[str, str]) -> Peer:
    return {"namespaceSelector": dict(namespaces), "podSelector": {"matchLabels": dict(pods)}}


def _named(namespace: str) -> Manifest:
    return {"matchLabels": {_NAMESPACE_NAME: namespace}}
