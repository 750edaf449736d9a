"""Reads golden prompts, asks for each on one pair of pods after the other, and counts the exact answers."""

from __future__ import annotations

import hashlib
import json
import logging
import ssl
from collections.abc import Sequence
from pathlib import Path
from time import sleep
from typing import Final

import httpx2
from pydantic import ValidationError

from sunfleet_api import wire
from sunfleet_api.explained import explained
from sunfleet_api.golden import GOLDEN_FILE, GoldenPrompt, GoldenSet
from sunfleet_api.worker import VerificationReport
from sunfleet_weights.errors import (
    EngineRefused,
    EngineUnreachable,
    GoldenPromptsChanged,
    GoldenPromptsNotFound,
    InvalidBundle,
    InvalidGoldenPrompts,
)
from sunfleet_weights.source import Source
from sunfleet_weights.verify.compare import difference, report
from sunfleet_weights.verify.legs import Pair

# One answer of 32 tokens, on a pod that is busy with other clients' requests.
_TIMEOUT: Final = httpx2.Timeout(120, connect=10)
# Seconds before a prompt whose pods did not answer is tried again, each time on the next pair. Where NetworkPolicies
# are enforced, a pod that has just started is refused until the network knows it: this one's address is new, too.
_PAUSES: Final = (0.0, 1.0, 2.0, 4.0, 8.0, 16.0)
_log = logging.getLogger(__name__)


def read(source: Source, expected: str = "") -> GoldenSet:
    """``expected`` is the SHA-256 (hex) that the file must have, where it is known."""
    if GOLDEN_FILE not in {file.path for file in source.files()}:
        raise GoldenPromptsNotFound(
            f"{source.uri} has no {GOLDEN_FILE}: the tuner writes one, or name where it lies in"
            " spec.verification.goldenPrompts"
        )
    raw = source.read(GOLDEN_FILE)
    if expected and hashlib.sha256(raw).hexdigest() != expected:
        raise GoldenPromptsChanged(f"{source.uri}: {GOLDEN_FILE} is no longer what this check was made for")
    golden = _parsed(raw, f"{source.uri}: {GOLDEN_FILE}")
    if not golden.prompts:
        raise InvalidGoldenPrompts(f"{source.uri}: {GOLDEN_FILE} holds no prompts")
    return golden


def _parsed(raw: bytes, where: str) -> GoldenSet:
    try:
        document = json.loads(raw)
    except ValueError as error:
        raise InvalidGoldenPrompts(f"{where} is no JSON: {error}") from error
    try:
        return GoldenSet.model_validate(document)
    except ValidationError as error:
        faults = explained(error, document, GoldenSet).splitlines()
        raise InvalidGoldenPrompts(f"{where}: {'; '.join(faults)}") from error


def verify(
    golden: GoldenSet,
    prefill: Sequence[str],
    decode: Sequence[str],
    salt: str,
    decoder: str = "",
    *,
    module: str = wire.ENGINE_MODEL,
    key: str = "",
    authority: Path | None = None,
) -> VerificationReport:
    """Every prompt once; prompts take turns on the pods. ``decoder`` is the digest of the one that is asked, ``module``
    the name that prefill pods know theirs by, ``key`` what engines are shown, where they ask for one, ``authority`` the
    PEM file of who signed their certificates.

    Raises :class:`.errors.WeightsError` when pods do not answer.
    """
    headers = {"authorization": f"Bearer {key}"} if key else {}
    # Not through a proxy that is meant for downloads.
    trusted = True if authority is None else _trusted(authority)
    with httpx2.Client(timeout=_TIMEOUT, trust_env=False, headers=headers, verify=trusted) as client:
        count = max(len(prefill), len(decode))
        pairs = [Pair(client, prefill[at % len(prefill)], decode[at % len(decode)], module) for at in range(count)]
        found = report([_compared(prompt, pairs, at, salt) for at, prompt in enumerate(golden.prompts)])
    if found.first_mismatch and decoder and golden.decoder_digest not in {"", decoder}:
        text = f"{found.first_mismatch}; the prompts were made with decoder {golden.decoder_digest}, this is {decoder}"
        return found.model_copy(update={"first_mismatch": text})
    return found


def _trusted(authority: Path) -> ssl.SSLContext:
    try:
        return ssl.create_default_context(cafile=authority)
    except OSError as error:  # there is none, or it holds no certificate
        raise InvalidBundle(
            f"authority of the engines' certificates, {authority}: {error}: check the Secret's ca.crt"
        ) from error


def _compared(golden: GoldenPrompt, pairs: Sequence[Pair], number: int, salt: str) -> str:
    given, pair = _answered(golden, pairs, number, salt)
    text = difference(given, golden.token_ids)
    _log.info("prompt %d: %s (%s)", number, text or "exact", pair)
    return f"{text} ({pair})" if text else ""


def _answered(golden: GoldenPrompt, pairs: Sequence[Pair], number: int, salt: str) -> tuple[list[int], Pair]:
    def asked(attempt: int) -> tuple[list[int], Pair]:
        pair = pairs[(number + attempt) % len(pairs)]
        return pair.answer(golden.prompt_token_ids, len(golden.token_ids), salt), pair

    for attempt, pause in enumerate(_PAUSES):
        try:
            return asked(attempt)
        except (EngineUnreachable, EngineRefused) as error:
            _log.warning("prompt %d: %s", number, error)
            sleep(pause)
    return asked(len(_PAUSES))
