"""Names, labels and selectors of children. Every name fits 63 characters for the longest owner
(``MAX_OBJECT_NAME``)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sunfleet_api import names
from sunfleet_api.digests import KVFingerprint
from sunfleet_api.fingerprint import revision_hash
from sunfleet_operator.types import DECODER, POOL, TUNING, Json, Key, Manifest

SPEC_HASH = f"{names.GROUP}/spec-hash"
# What every child carries, pods too.
OURS: Mapping[str, str] = {names.LABEL_MANAGED_BY: names.MANAGED_BY}


def role(kind: str) -> str:
    """The role of the engine pods of an object of this kind."""
    return names.ROLE_DECODE if kind == DECODER else names.ROLE_PREFILL


def owner_label(kind: str) -> str:
    """The label that names the owner on its children."""
    by_kind = {DECODER: names.LABEL_DECODER, POOL: names.LABEL_POOL, TUNING: names.LABEL_TUNING}
    return by_kind.get(kind, names.LABEL_MODEL)


def child_name(owner: Key, suffix: str) -> str:
    return f"{owner.name}-{suffix}"


def pool_name(owner: Key) -> str:
    """Name of Service, PodDisruptionBudget and NetworkPolicy: one each for all revisions. Tasks and pools may share one
    name."""
    return child_name(owner, "pool" if owner.kind == POOL else role(owner.kind))


def resolver_name(owner: Key, question: str) -> str:
    return child_name(owner, f"resolve-{question}")


def verification_name(owner: Key, check: str) -> str:
    """Of the Job that compares, and of the record of what came of it."""
    return child_name(owner, f"verify-{check}")


def canary_record_name(owner: Key, asked: str) -> str:
    """Of a canary that was given up."""
    return child_name(owner, f"canary-{asked}")


def tuner_name(owner: Key) -> str:
    """Name of a run's Job, and of the Service by which its pods find each other."""
    return child_name(owner, names.ROLE_TUNER)


def weights_record_name(owner: Key, uri: str) -> str:
    """Of one URI. The kind counts: a decoder and a task may have one name and one checkpoint."""
    return child_name(owner, f"weights-{revision_hash('weights', {'owner': owner.kind, 'uri': uri})}")


def profiles_record_name(owner: Key, revision: str) -> str:
    """Of what was taken over from ServingProfiles; the kind counts, as above."""
    return child_name(owner, f"profiles-{revision_hash('profiles', {'owner': owner.kind, 'preset': revision})}")


def owned_by(owner: Key) -> dict[str, str]:
    """What every child of an object carries: the label query for its children."""
    return {**OURS, owner_label(owner.kind): owner.name}


def pool_selector(owner: Key) -> dict[str, str]:
    """The engine pods of an object, of all revisions: ``status.selector``, Service, PodDisruptionBudget,
    NetworkPolicy."""
    return {owner_label(owner.kind): owner.name, names.LABEL_ROLE: role(owner.kind)}


def revision_selector(owner: Key, revision: str) -> dict[str, str]:
    return {**pool_selector(owner), names.LABEL_REVISION: revision}


def selector_text(selector: Mapping[str, str]) -> str:
    """``key=value,...`` in a fixed order, as /scale and routers want it."""
    return ",".join(f"{key}={value}" for key, value in sorted(selector.items()))


def child_labels(owner: Key, component: str) -> dict[str, str]:
    return {
        **owned_by(owner),
        names.LABEL_PART_OF: names.MANAGED_BY,
        names.LABEL_NAME: f"sunfleet-{component}",
        names.LABEL_INSTANCE: owner.name,
        names.LABEL_COMPONENT: component,
    }


def owner_reference(owner: Json) -> Manifest:
    """Makes the garbage collector delete the child with its owner; it blocks nobody's foreground deletion."""
    return {
        "apiVersion": names.API_VERSION,
        "kind": owner["kind"],
        "name": owner["metadata"]["name"],
        "uid": owner["metadata"]["uid"],
        "controller": True,
        "blockOwnerDeletion": False,
    }


def child(api_version: str, kind: str, *, name: str, owner: Json, labels: Mapping[str, str], **rest: Any) -> Manifest:
    """A manifest in the owner's namespace with owner reference and a hash of what it says.

    The hash shows a removed field, which comparing with the live object alone cannot.
    """
    return {
        "apiVersion": api_version,
        "kind": kind,
        "metadata": {
            "name": name,
            "namespace": owner["metadata"]["namespace"],
            "labels": dict(labels),
            "annotations": {SPEC_HASH: revision_hash(kind, rest)},
            "ownerReferences": [owner_reference(owner)],
        },
        **rest,
    }


def pod_labels(owner: Key, revision: str, kv: KVFingerprint) -> dict[str, str]:
    """Labels of an engine pod; routers pair pods whose KV fingerprints are equal."""
    return {
        **child_labels(owner, role(owner.kind)),
        **revision_selector(owner, revision),
        names.LABEL_KV_FINGERPRINT: kv.label,
    }
