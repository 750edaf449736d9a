"""Every rule of the CRDs, tried on a real API server: what is accepted, what is rejected, and which field is named."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from sunfleet_api.crd import crd
from sunfleet_api.kinds import KINDS, parse_strict
from sunfleet_apitest.cases import Attempt, Table, load, merged
from sunfleet_apitest.client import Api, RefusedError
from sunfleet_apitest.paths import collection
from sunfleet_apitest.probes import rules

MANIFESTS = Path(__file__).parent / "manifests"
TABLES = {kind: load(MANIFESTS / f"{kind.lower()}.yaml") for kind in KINDS}
# No other value could be written, so that it is immutable cannot be tried.
ONE_CHOICE = (".spec.quantization.scheme",)
ATTEMPTS = [
    pytest.param(kind, attempt, id=f"{kind}: {attempt}") for kind, table in TABLES.items() for attempt in table.attempts
]


@pytest.mark.parametrize(("kind", "attempt"), ATTEMPTS)
def test_the_api_server_decides_as_the_table_says(kind: str, attempt: Attempt, api: Api, namespace: str) -> None:
    refusal = _try(api, namespace, TABLES[kind], attempt)
    if not attempt.rejected_at:
        assert refusal is None, f"should have been accepted: {refusal}"
        return
    assert refusal is not None, f"should have been rejected at {attempt.rejected_at}"
    said = [cause.message for cause in refusal.causes if cause.field == attempt.rejected_at]
    assert said, f"named {sorted(refusal.fields)}, not {attempt.rejected_at}: {refusal}"
    assert any(attempt.says in message for message in said), said


def _try(api: Api, namespace: str, table: Table, attempt: Attempt) -> RefusedError | None:
    path = collection(table.base["kind"], namespace)
    if attempt.start is None:
        return _refusal(lambda: api.create(path, merged(table.base, attempt.patch), dry_run=True))
    stored = api.create(path, merged(table.base, attempt.start))
    own_path = f"{path}/{stored['metadata']['name']}"
    try:
        return _refusal(lambda: api.merge(own_path, attempt.patch, dry_run=True))
    finally:
        api.delete(own_path)


def _refusal(call: Any) -> RefusedError | None:
    try:
        call()
    except RefusedError as refusal:
        return refusal
    return None


@pytest.mark.parametrize("kind", KINDS)
def test_every_cel_rule_has_a_manifest_that_it_rejects(kind: str) -> None:
    schema = crd(kind)["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    rejected = [attempt for attempt in TABLES[kind].attempts if attempt.rejected_at]
    untried = [
        f"{path}: {rule['message']}"
        for path, rule in rules(schema)
        if not path.startswith(".status") and path not in ONE_CHOICE
        if not any(_hits(attempt, path + rule.get("fieldPath", ""), rule["message"]) for attempt in rejected)
    ]
    assert untried == []


def _hits(attempt: Attempt, path: str, message: str) -> bool:
    """The same type stands in several places: a field of the same name counts."""
    (*_, wanted), (*_, tried) = path.split("."), attempt.rejected_at.split(".")
    return bool(attempt.says) and attempt.says in message and wanted == tried


@pytest.mark.parametrize(("kind", "attempt"), [p for p in ATTEMPTS if not p.values[1].rejected_at])  # type: ignore[union-attr]
def test_what_the_api_server_accepts_the_models_read(kind: str, attempt: Attempt) -> None:
    document = merged(merged(TABLES[kind].base, attempt.start or {}), attempt.patch)
    assert parse_strict(document).metadata.name == document["metadata"]["name"]
