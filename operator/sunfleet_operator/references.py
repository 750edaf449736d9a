"""What an object says of others: its decoder by reference, its decoders by traffic, its model name, its profiles.
Pure."""

from __future__ import annotations

from sunfleet_operator.types import DECODER, POOL, Json, Key, name_of, namespace_of, spec_of, status_of


def decoder_of(model: Json) -> Key:
    """The decoder that a SunModel or a PrefillPool refers to."""
    ref = spec_of(model).get("decoderRef") or {}
    return Key(DECODER, ref.get("namespace") or namespace_of(model), str(ref.get("name", "")))


def canary_decoder_of(model: Json) -> Key | None:
    """The decoder that a canary brings along, where it does."""
    ref = (spec_of(model).get("canary") or {}).get("decoderRef")
    return Key(DECODER, ref.get("namespace") or namespace_of(model), str(ref.get("name", ""))) if ref else None


def canary_of(model: Json) -> str:
    """The revision of a canary that has pods of its own beside the others; empty when there is none."""
    status = status_of(model)
    told = status.get("canary") or {}
    stands = spec_of(model).get("canary") and told.get("phase") in {"Verifying", "Progressing", "Promotable"}
    revision = str(told.get("revision") or "")
    return revision if stands and revision != status.get("updateRevision") else ""


def pool_of(model: Json) -> Key | None:
    """The PrefillPool that a SunModel refers to, ``None`` for one with pods of its own."""
    ref = ((spec_of(model).get("prefill") or {}).get("adapter") or {}).get("poolRef")
    return Key(POOL, ref.get("namespace") or namespace_of(model), str(ref.get("name", ""))) if ref else None


def model_name(model: Json) -> str:
    """The OpenAI model name in effect."""
    return str(spec_of(model).get("modelName") or name_of(model))


def routed_decoders(model: Json) -> frozenset[Key]:
    """Decoders in ``status.traffic``."""
    pairs = (str(entry.get("decoder", "")).partition("/") for entry in status_of(model).get("traffic") or ())
    return frozenset(Key(DECODER, namespace, name) for namespace, _, name in pairs)


def profiles_of(live: Json) -> tuple[str, ...]:
    """Names of the ServingProfiles that an object starts from, in the order in which they are laid over each other."""
    return tuple(str(ref.get("name", "")) for ref in spec_of(live).get("profileRefs") or ())


def decoders_of(model: Json) -> frozenset[Key]:
    """Every decoder that a SunModel refers to or routes to."""
    beside = canary_decoder_of(model)
    return routed_decoders(model) | {decoder_of(model)} | ({beside} if beside else set())
