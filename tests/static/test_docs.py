"""What the documents name exists: files, headings, verbs of the Makefile."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from checkout import ROOT

FILES = [path for pattern in ("*.md", "docs/**/*.md", "manifests/**/*.md") for path in sorted(ROOT.glob(pattern))]
EACH = pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOT)))
VERBS = set(re.findall(r"^([a-z0-9-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))


def headings(path: Path) -> set[str]:
    """Anchors of a document, as forges make them."""
    titles = re.findall(r"^#+ (.*)$", path.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).strip().replace(" ", "-") for title in titles}


@EACH
def test_a_link_leads_somewhere(path: Path) -> None:
    for link in re.findall(r"\]\(([^)\s]+)\)", path.read_text()):
        if "://" in link:
            continue
        file, _, anchor = link.partition("#")
        target = path.parent / file if file else path
        assert target.exists(), link
        assert not anchor or anchor in headings(target), link


@EACH
def test_a_verb_exists(path: Path) -> None:
    text = path.read_text()
    named = [
        *re.findall(r"`make ([a-z0-9 -]+)`", text),
        *re.findall(r"^make ([a-z0-9 -]+?)(?: *#.*)?$", text, re.MULTILINE),
    ]
    assert {verb for words in named for verb in words.split()} <= VERBS


@EACH
def test_a_module_that_is_run_can_be_found(path: Path) -> None:
    """Nothing of ours is installed: a command without PYTHONPATH in its document fails for whoever copies it.

    Inside a pod the image has set it.
    """
    text = path.read_text()
    if re.search(r"^(?!kubectl .*exec )[^`\n]*python\S* -m sunfleet_", text, re.MULTILINE):
        assert "PYTHONPATH=" in text
