"""All kinds that are served now, and parsing of a document by its ``kind``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from sunfleet_api import names
from sunfleet_api.prefill_pool import PrefillPool
from sunfleet_api.prefill_tuning import PrefillTuning
from sunfleet_api.serving_profile import ServingProfile
from sunfleet_api.shared_decoder import SharedDecoder
from sunfleet_api.sun_model import SunModel

AnyResource = SharedDecoder | SunModel | PrefillPool | PrefillTuning | ServingProfile
AnyClass = type[SharedDecoder] | type[SunModel] | type[PrefillPool] | type[PrefillTuning] | type[ServingProfile]
_CLASSES: Final[tuple[AnyClass, ...]] = (SharedDecoder, SunModel, PrefillPool, PrefillTuning, ServingProfile)
KINDS: Final[Mapping[str, AnyClass]] = {cls.KIND.kind: cls for cls in _CLASSES}


def parse(document: Mapping[str, Any]) -> AnyResource:
    """A live object of any of our kinds; unknown fields are skipped, since the CRD may be newer than this program.

    Raises :class:`ValueError` for another kind or version, and its subclass :class:`pydantic.ValidationError` for a
    value that is wrong.
    """
    return _class_of(document).model_validate(document)


def parse_strict(document: Mapping[str, Any]) -> AnyResource:
    """As :func:`parse`, but an unknown field is an error too: for samples and for what a person writes."""
    return _class_of(document).model_validate(document, extra="forbid")


def _class_of(document: Mapping[str, Any]) -> AnyClass:
    kind, version = document.get("kind"), document.get("apiVersion")
    if version != names.API_VERSION:
        raise ValueError(f"apiVersion {version!r}: expected {names.API_VERSION}")
    if not isinstance(kind, str) or kind not in KINDS:
        raise ValueError(f"kind {kind!r}: expected one of {', '.join(KINDS)}")
    return KINDS[kind]
