"""Who else scales what we scale: HorizontalPodAutoscalers, also those that KEDA makes. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence

from sunfleet_api import names
from sunfleet_operator import counts
from sunfleet_operator.groups import World, auto_of
from sunfleet_operator.types import (
    DECODER,
    MODEL,
    POOL,
    Json,
    Key,
    full_name,
    key_of,
    metadata,
    namespace_of,
    owner_of,
    spec_of,
)


def rivals(world: World) -> Mapping[Key, str]:
    """What is wrong, in words, by object."""
    on_object, on_child = _targets(world)
    found: dict[Key, str] = {}
    listed = ((DECODER, world.decoders), (MODEL, world.models), (POOL, world.pools))
    everyone = [(kind, live) for kind, found in listed for live in found]
    for kind, live in everyone:
        key = key_of(kind, live)
        text = _conflict(counts.mode(auto_of(live, kind)), key, on_object.get(key, []), on_child.get(key, []))
        if text:
            found[key] = text
    return found


def _conflict(mode: counts.Mode, key: Key, on_object: Sequence[str], on_child: Sequence[str]) -> str:
    if on_child:
        return (
            f"HorizontalPodAutoscaler {', '.join(on_child)} scales a Deployment of this object, whose count is put "
            f"right again: let it scale {key.kind} {key.name} (scaleTargetRef), with autoscaling.mode External"
        )
    if mode == "BuiltIn" and on_object:
        return (
            f"HorizontalPodAutoscaler {', '.join(on_object)} scales this object too and is not followed: delete it, "
            "or set autoscaling.mode to External"
        )
    if len(on_object) > 1:
        return f"HorizontalPodAutoscalers {', '.join(on_object)} all scale this object: keep one of them"
    return ""


def _targets(world: World) -> tuple[dict[Key, list[str]], dict[Key, list[str]]]:
    owners = {
        (namespace_of(live), str(metadata(live)["name"])): owner
        for live in world.deployments
        if (owner := owner_of(live)) is not None
    }
    on_object: defaultdict[Key, list[str]] = defaultdict(list)
    on_child: defaultdict[Key, list[str]] = defaultdict(list)
    for scaler in sorted(world.scalers, key=full_name):
        target: Json = spec_of(scaler).get("scaleTargetRef") or {}
        kind, name, space = target.get("kind"), str(target.get("name", "")), namespace_of(scaler)
        group = str(target.get("apiVersion", "")).partition("/")[0]
        if group == names.GROUP and kind in {DECODER, MODEL, POOL}:
            on_object[Key(str(kind), space, name)].append(full_name(scaler))
        elif kind == "Deployment" and (owner := owners.get((space, name))) is not None:
            on_child[owner].append(full_name(scaler))
    return on_object, on_child
