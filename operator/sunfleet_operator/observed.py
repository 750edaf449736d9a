"""What one reconcile knows: everything it read, frozen. The plan sees nothing else of the world but the time."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from sunfleet_operator.build.weights import Fetcher
from sunfleet_operator.types import Json, Key, full_name, is_terminating, namespace_of, spec_of, status_of


@dataclass(frozen=True)
class Children:
    """Live objects in the owner's namespace that it controls (owner reference), and their pods."""

    deployments: tuple[Json, ...] = ()
    jobs: tuple[Json, ...] = ()
    pods: tuple[Json, ...] = ()
    records: tuple[Json, ...] = ()
    service: Json | None = None
    budget: Json | None = None


@dataclass(frozen=True)
class Defaults:
    """Settings of the operator that end up in new children."""

    engine_image: str
    fetcher: Fetcher
    pull_policy: str = ""


@dataclass(frozen=True)
class User:
    """What a decoder knows of one SunModel of any namespace that refers to it or routes to it."""

    name: str  # namespace/name
    refers: bool = True  # by decoderRef; else only by status.traffic
    terminating: bool = False
    has_traffic: bool = False
    kv_digest: str = ""  # of the KV that its serving revision makes

    @classmethod
    def of(cls, decoder: Key, model: Json) -> User:
        ref, status = spec_of(model).get("decoderRef") or {}, status_of(model)
        target = (ref.get("namespace") or namespace_of(model), ref.get("name"))
        return cls(
            name=full_name(model),
            refers=target == (decoder.namespace, decoder.name),
            terminating=is_terminating(model),
            has_traffic=bool(status.get("traffic")),
            kv_digest=str((status.get("kvFingerprint") or {}).get("digest") or ""),
        )


@dataclass(frozen=True)
class ObservedDecoder:
    """A SharedDecoder and its surroundings."""

    key: Key
    live: Json
    children: Children = field(default_factory=Children)
    users: tuple[User, ...] = ()
    namespace_terminating: bool = False


@dataclass(frozen=True)
class ObservedModel:
    """A SunModel and its surroundings.

    ``decoder`` is the object that ``decoderRef`` names; ``contract`` the ControllerRevision of that decoder's update
    revision; ``decoder_deployments`` its Deployments. ``rivals`` are other SunModels with the same model name.
    """

    key: Key
    live: Json
    children: Children = field(default_factory=Children)
    decoder: Json | None = None
    contract: Json | None = None
    decoder_deployments: tuple[Json, ...] = ()
    rivals: tuple[Json, ...] = ()
    namespace_labels: Mapping[str, str] = field(default_factory=dict)
