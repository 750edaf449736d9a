"""A chart can only read its own folder: its copies of the components are those of today, all of them and no more."""

from __future__ import annotations

from checkout import ROOT

COMPONENTS = ROOT / "manifests/components"
FILES = ROOT / "manifests/helm/sunfleet/files"
ORIGINALS = {
    "alerts.yaml": COMPONENTS / "alerts/rules.yaml",
    "podmonitors.yaml": COMPONENTS / "monitors/podmonitors.yaml",
    **{f"dashboards/{board.name}": board for board in (COMPONENTS / "dashboards").glob("*.json")},
}


def test_the_charts_copies_are_up_to_date() -> None:
    copies = {path.relative_to(FILES).as_posix(): path for path in FILES.rglob("*.*") if path.parent.name != "crds"}
    assert sorted(copies) == sorted(ORIGINALS), "run `make generate`, or delete what has no original"
    differ = [name for name, copy in copies.items() if copy.read_bytes() != ORIGINALS[name].read_bytes()]
    assert not differ, f"{', '.join(differ)}: run `make generate`"
