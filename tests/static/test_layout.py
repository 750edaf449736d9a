"""The layout rules that no linter knows: no shadowed standard library, a README that shows every room."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from checkout import ROOT, python_files, tracked_files

PRODUCT = ("crds", "operator", "router", "worker_images")
# Each process reads its environment in one settings class; these files hold it, or set what a child process reads.
SETTINGS_FILES = re.compile(r"(settings|environment|launch)\.py$")


def test_no_folder_called_operator_is_a_package() -> None:
    assert not [path for path in tracked_files() if path.name == "__init__.py" and path.parent.name == "operator"]


def test_every_package_says_what_it_is_for() -> None:
    rooms = [path for path in python_files() if path.name == "__init__.py" and path.parts[0] in PRODUCT]
    assert rooms
    assert not [path for path in rooms if not ast.get_docstring(ast.parse((ROOT / path).read_text()))]


@pytest.mark.parametrize("path", [p for p in python_files() if p.parts[0] in PRODUCT], ids=str)
def test_only_settings_read_the_environment(path: Path) -> None:
    if SETTINGS_FILES.search(path.name):
        return
    found = re.findall(r"os\.(?:environ|getenv)", (ROOT / path).read_text())
    assert not found, f"{path}: read the environment in the process's settings class"


@pytest.mark.parametrize("path", python_files(), ids=str)
def test_a_broad_except_says_why(path: Path) -> None:
    for number, line in enumerate((ROOT / path).read_text().splitlines(), 1):
        if re.search(r"except (?:Base)?Exception\b", line):
            assert "#" in line, f"{path}:{number}: say beside it why everything is caught"
        assert not re.match(r"\s*except:\s*(?:#|$)", line), f"{path}:{number}: bare except"


def test_the_readme_names_every_top_level_folder() -> None:
    readme = (ROOT / "README.md").read_text()
    folders = {path.parts[0] for path in tracked_files() if len(path.parts) > 1 and not path.parts[0].startswith(".")}
    assert not [folder for folder in sorted(folders) if f"{folder}/" not in readme]
