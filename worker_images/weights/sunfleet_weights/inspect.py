"""What a checkpoint is: the report that the operator needs of it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final, Literal

from sunfleet_api import names
from sunfleet_api.checkpoint import adapter_relevant, kv_relevant
from sunfleet_api.files import (
    ADAPTER_CONFIG_FILE,
    CONFIG_FILE,
    META_FILE,
    TOKENIZER_FILES,
    relevant_files,
    tokenizer_hash,
    weight_files,
)
from sunfleet_api.fingerprint import digest_of_files
from sunfleet_api.worker import ResolverReport, VerificationReport
from sunfleet_weights.errors import InvalidCheckpoint, NotACheckpoint, ReportTooLarge
from sunfleet_weights.source import Source, SourceFile

Kind = Literal["model", "adapter"]

MAX_REPORT_BYTES: Final = 4096  # kubelet cuts a termination message here


def kind_at(path: str) -> Kind | None:
    """What the operator mounts at this path; ``None`` where any kind may be."""
    kinds: dict[str, Kind] = {names.WEIGHTS_PATH: "model", names.ADAPTER_PATH: "adapter"}
    return kinds.get(path)


def inspect(source: Source, kind: Kind | None) -> ResolverReport:
    """Read and hash what counts. Raises :class:`.errors.WeightsError`; ``kind`` ``None`` takes what is found."""
    files = {file.path: file for file in source.files()}
    kind = kind or ("adapter" if ADAPTER_CONFIG_FILE in files else "model")
    check_complete(source.uri, files, kind)
    counted = [files[path] for path in relevant_files(files)]
    config_file = ADAPTER_CONFIG_FILE if kind == "adapter" else CONFIG_FILE
    return ResolverReport(
        resolved_uri=source.uri,
        digest=digest_of_files(source.hashes(counted)),
        config=_facts(source, config_file, kind),
        tokenizer_hash=_tokenizer(source, files),
        tuned_against=_tuned_against(source, files),
        size_bytes=sum(file.size for file in counted),
        folder=source.folder,
    )


def check_complete(uri: str, files: Mapping[str, SourceFile], kind: Kind) -> None:
    """Raises :class:`.errors.NotACheckpoint` unless there are a config and tensors."""
    wanted, other = (CONFIG_FILE, ADAPTER_CONFIG_FILE) if kind == "model" else (ADAPTER_CONFIG_FILE, CONFIG_FILE)
    if wanted not in files:
        hint = "check the path in the URI"
        if other in files:
            field = "prefill.adapter" if kind == "model" else "prefill.weights"
            hint = f"it holds a {other}, so name it in {field} instead"
        raise NotACheckpoint(f"{uri} has no {wanted}: {hint}. Found: {_shown(files)}.")
    if not weight_files(files):
        raise NotACheckpoint(f"{uri} has a {wanted} but no *.safetensors: was it uploaded completely? {_shown(files)}.")


def encode(report: ResolverReport | VerificationReport) -> bytes:
    """The report as JSON that fits a termination message; a long error message is cut."""
    raw = _dump(report)
    if len(raw) > MAX_REPORT_BYTES and report.error_message:
        kept = max(0, len(report.error_message) - (len(raw) - MAX_REPORT_BYTES) - 8)
        raw = _dump(report.model_copy(update={"error_message": report.error_message[:kept] + " [cut]"}))
    if len(raw) > MAX_REPORT_BYTES:
        raise ReportTooLarge(
            f"what there is to report takes {len(raw)} bytes, and a pod can report {MAX_REPORT_BYTES}:"
            " its config.json is unusual; please report it"
        )
    return raw


def _dump(report: ResolverReport | VerificationReport) -> bytes:
    return json.dumps(report.model_dump(exclude_defaults=True), separators=(",", ":")).encode()


def _facts(source: Source, path: str, kind: Kind) -> dict[str, Any]:
    config = _json_object(source, path)
    try:
        return adapter_relevant(config) if kind == "adapter" else kv_relevant(config)
    except (ValueError, TypeError, AttributeError) as error:  # the config has other types than it should
        raise InvalidCheckpoint(f"{source.uri}: {path}: {error}") from error


def _tokenizer(source: Source, files: Mapping[str, SourceFile]) -> str:
    present = [path for path in TOKENIZER_FILES if path in files]
    if "tokenizer.json" in present:
        present = ["tokenizer.json"]
    try:
        return tokenizer_hash({path: source.read(path) for path in present})
    except (ValueError, TypeError) as error:
        raise InvalidCheckpoint(f"{source.uri}: tokenizer.json cannot be read: {error}") from error


def _tuned_against(source: Source, files: Mapping[str, SourceFile]) -> str:
    if META_FILE not in files:
        return ""
    return str(_json_object(source, META_FILE).get("tuned_against") or "")


def _json_object(source: Source, path: str) -> dict[str, Any]:
    try:
        value = json.loads(source.read(path))
    except ValueError as error:
        raise InvalidCheckpoint(f"{source.uri}: {path} is not JSON: {error}") from error
    if not isinstance(value, dict):
        raise InvalidCheckpoint(f"{source.uri}: {path} holds no JSON object")
    return value


def _shown(files: Mapping[str, SourceFile], most: int = 12) -> str:
    shown = sorted(files)[:most]
    return ", ".join(shown) + (f" and {len(files) - most} more" if len(files) > most else "") if files else "nothing"
