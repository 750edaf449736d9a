"""Every limit of the schemas (types, choices, bounds, lengths, patterns, required fields), on a real API server."""

from __future__ import annotations

from pathlib import Path

import pytest

from sunfleet_api.crd import crd
from sunfleet_api.kinds import KINDS
from sunfleet_apitest.cases import Document, load
from sunfleet_apitest.client import Api, RefusedError
from sunfleet_apitest.paths import collection
from sunfleet_apitest.probes import Probe, document, probes, rules

BASES = {kind: load(Path(__file__).parent / "manifests" / f"{kind.lower()}.yaml").base for kind in KINDS}
SCHEMAS: dict[str, Document] = {kind: crd(kind)["spec"]["versions"][0]["schema"]["openAPIV3Schema"] for kind in KINDS}
RULES = {kind: tuple(rule["message"] for _, rule in rules(schema)) for kind, schema in SCHEMAS.items()}
PROBES = [
    pytest.param(kind, probe, id=f"{kind}: {probe}")
    for kind, schema in SCHEMAS.items()
    for probe in probes(schema["properties"]["spec"], ("spec",))
]


@pytest.mark.parametrize(("kind", "probe"), PROBES)
def test_the_api_server_holds_the_limit(kind: str, probe: Probe, api: Api) -> None:
    manifest = document(BASES[kind], SCHEMAS[kind], probe)
    try:
        api.create(collection(kind, "default"), manifest, dry_run=True)
    except RefusedError as refusal:
        named = {cause.field: cause.message for cause in refusal.causes}
    else:
        named = {}
    if probe.fits:
        # A rule across fields may still refuse it.
        assert named.get(probe.field, "").endswith(RULES[kind]) or probe.field not in named, named
    else:
        assert probe.field in named, named
