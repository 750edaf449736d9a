"""Each Dockerfile builds alone, without a base of ours, so some stages stand in several: always the same."""

from __future__ import annotations

import re

import pytest

from checkout import ROOT, tracked_files

FILES = {str(path): (ROOT / path).read_text() for path in tracked_files() if path.name == "Dockerfile"}
# How a part that several have begins, and where it ends.
SHARED = {
    "how packages are fetched": r"^FROM \$\{BASE_IMAGE\} AS tools\n.*?(?=^\n)",
    "one environment of the locked packages": r"^FROM tools AS packages\n.*?(?=^\n)",
    "the user, and bytecode": r"^# Bytecode that needs no file times.*\Z",
    "the version of uv": r"^ARG UV_VERSION=.*?$",
    "the base": r"^ARG BASE_IMAGE=python.*?$",
    "the secrets of a build": r"^# Build secrets, both optional.*?(?=^ARG)",
}


@pytest.mark.parametrize("part", SHARED)
def test_what_several_dockerfiles_have_is_the_same_in_each(part: str) -> None:
    found: dict[str, list[str]] = {}
    for name, text in FILES.items():
        for shared in re.findall(SHARED[part], text, re.MULTILINE | re.DOTALL):
            found.setdefault(shared, []).append(name)
    assert found, "nothing is shared: take this part out of the test"
    assert len(found) == 1, f"{part} differs: {list(found.values())}"
    assert len(set(*found.values())) > 1
