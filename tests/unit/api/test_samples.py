"""The samples that users copy: no field that the kinds do not have, and none without effect."""

from pathlib import Path

import pytest
import yaml

from sunfleet_api import names
from sunfleet_api.inactive import inactive_fields
from sunfleet_api.kinds import parse_strict

SAMPLES = Path(__file__).resolve().parents[3] / "manifests" / "samples"
DOCUMENTS = [
    pytest.param(document, id=f"{path.relative_to(SAMPLES)}: {document['metadata']['name']}")
    for path in sorted(SAMPLES.rglob("*.yaml"))
    for document in yaml.safe_load_all(path.read_text())
    if document and str(document.get("apiVersion")).startswith(f"{names.GROUP}/")
]


def test_there_are_samples() -> None:
    assert DOCUMENTS


@pytest.mark.parametrize("document", DOCUMENTS)
def test_a_sample_holds_only_fields_that_act(document: dict[str, object]) -> None:
    assert inactive_fields(parse_strict(document).spec) == ()
