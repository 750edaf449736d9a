"""docs/field-cases.md names tests: each must exist, and each case must have its line once."""

from __future__ import annotations

import re

import pytest

from checkout import ROOT

TEXT = (ROOT / "docs/field-cases.md").read_text()
NAMED = sorted(set(re.findall(r"`([\w/]+\.py)::(test_\w+)`", TEXT)))


@pytest.mark.parametrize(("path", "test"), NAMED, ids=str)
def test_a_named_test_exists(path: str, test: str) -> None:
    file = ROOT / path
    assert file.is_file(), f"docs/field-cases.md names {path}, which is not there"
    assert re.search(rf"def {test}\(", file.read_text()), (
        f"docs/field-cases.md names {path}::{test}, which is not there"
    )


def test_each_case_stands_once_and_says_something() -> None:
    rows = re.findall(r"^\| ([A-Z]\d+) \| (.+) \| (.+) \|$", TEXT, re.MULTILINE)
    ids = [row[0] for row in rows]
    assert len(ids) == len(set(ids))
    assert len(ids) > 80
    assert [row[0] for row in rows if "::" not in row[2] and "later" not in row[2] and " as " not in f" {row[2]}"] == []
