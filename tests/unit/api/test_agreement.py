"""The models and the schema made from them refuse the same: what one side accepts, the other can read."""

from pathlib import Path

import pytest
from pydantic import ValidationError

from sunfleet_api.crd import crd
from sunfleet_api.kinds import KINDS, parse_strict
from sunfleet_apitest.cases import Document, load
from sunfleet_apitest.probes import document, probes

MANIFESTS = Path(__file__).resolve().parents[2] / "apiserver" / "manifests"
# Their schemas are written out, since a structural schema can say "an int or a percentage" and a pod spec is not ours.
WRITTEN_OUT = ("maxSurge", "maxUnavailable", "tolerance", "fallback", "terminationGracePeriodSeconds")


BASES = {kind: load(MANIFESTS / f"{kind.lower()}.yaml").base for kind in KINDS}
SCHEMAS: dict[str, Document] = {kind: crd(kind)["spec"]["versions"][0]["schema"]["openAPIV3Schema"] for kind in KINDS}


def _read(kind: str, *, fits: bool) -> tuple[list[str], list[str]]:
    """Probes that the models read, and those that they refuse."""
    read: list[str] = []
    refused: list[str] = []
    for probe in probes(SCHEMAS[kind]["properties"]["spec"], ("spec",)):
        if probe.fits is fits and probe.path[-1] not in WRITTEN_OUT:
            (refused if _refuses(document(BASES[kind], SCHEMAS[kind], probe)) else read).append(str(probe))
    return read, refused


def _refuses(manifest: Document) -> bool:
    try:
        parse_strict(manifest)
    except ValidationError:
        return True
    return False


@pytest.mark.parametrize("kind", KINDS)
def test_a_value_beyond_a_limit_of_the_schema_is_beyond_the_models(kind: str) -> None:
    read, refused = _read(kind, fits=False)
    assert read == []
    assert len(refused) > 100


@pytest.mark.parametrize("kind", KINDS)
def test_a_value_at_a_limit_of_the_schema_is_read(kind: str) -> None:
    read, refused = _read(kind, fits=True)
    assert refused == []
    assert len(read) > 25
