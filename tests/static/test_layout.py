"""The layout rules that no linter knows: no shadowed standard library, a README that shows every room."""

from __future__ import annotations

import ast
import re
from collections import Counter
from fnmatch import fnmatch
from pathlib import Path

import pytest

from checkout import ROOT, python_files, tracked_files

PRODUCT = ("crds", "operator", "router", "worker_images", "cli")
# Each process reads its environment in one settings class; these files hold it.
SETTINGS_FILES = re.compile(r"settings\.py$")
# More in one folder and nobody finds the test of what was changed.
MAX_TEST_FILES = 30
# Unit tests of these are sorted as their packages are.
SORTED = {"tests/unit/router": "router/sunfleet_router", "tests/unit/op": "operator/sunfleet_operator"}


def reads_of_the_environment(tree: ast.Module) -> list[int]:
    """Lines that read ``os.environ`` or call ``os.getenv``; setting a variable for a child process is no read."""
    found = []
    for node in ast.walk(tree):
        match node:
            case ast.Subscript(value=ast.Attribute(attr="environ"), ctx=ast.Load()):
                found.append(node.lineno)
            case ast.Attribute(
                value=ast.Attribute(attr="environ"), attr=("get" | "items" | "copy" | "keys" | "values")
            ):
                found.append(node.lineno)
            case ast.Attribute(attr="getenv"):
                found.append(node.lineno)
            case _:
                pass
    return found


def silent_broad_handlers(source: str) -> list[int]:
    """Lines of handlers that catch everything, do not raise it again, and give no reason beside the ``except``."""
    lines = source.splitlines()
    found = []
    for node in ast.walk(ast.parse(source)):
        if not isinstance(node, ast.ExceptHandler):
            continue
        caught = node.type.id if isinstance(node.type, ast.Name) else "" if node.type else "everything"
        raised_again = isinstance(node.body[-1], ast.Raise) and node.body[-1].exc is None
        if (
            caught in {"Exception", "BaseException", "everything"}
            and not raised_again
            and "#" not in lines[node.lineno - 1]
        ):
            found.append(node.lineno)
    return found


def test_no_folder_called_operator_is_a_package() -> None:
    assert not [path for path in tracked_files() if path.name == "__init__.py" and path.parent.name == "operator"]


def test_every_package_says_what_it_is_for() -> None:
    rooms = [path for path in python_files() if path.name == "__init__.py" and path.parts[0] in PRODUCT]
    assert rooms
    assert not [path for path in rooms if not ast.get_docstring(ast.parse((ROOT / path).read_text()))]


@pytest.mark.parametrize("path", [p for p in python_files() if p.parts[0] in PRODUCT], ids=str)
def test_only_settings_read_the_environment(path: Path) -> None:
    if not SETTINGS_FILES.search(path.name):
        found = reads_of_the_environment(ast.parse((ROOT / path).read_text()))
        assert not found, f"{path}, lines {found}: read the environment in the process's settings class"


@pytest.mark.parametrize("path", python_files(), ids=str)
def test_a_broad_except_raises_again_or_says_why(path: Path) -> None:
    found = silent_broad_handlers((ROOT / path).read_text())
    assert not found, f"{path}, lines {found}: say beside the except why everything is caught"


def test_the_rules_find_what_they_forbid() -> None:
    source = "import os\nos.environ['A'] = os.environ['B']\nos.environ.get('C')\nos.getenv('D')\n"
    assert reads_of_the_environment(ast.parse(source)) == [2, 3, 4]
    handler = "try:\n    pass\nexcept Exception:{reason}\n    {body}\n"
    assert silent_broad_handlers(handler.format(reason="", body="pass")) == [3]
    assert not silent_broad_handlers(handler.format(reason="  # a plug-in may raise anything", body="pass"))
    assert not silent_broad_handlers(handler.format(reason="", body="raise"))


def test_the_readme_names_every_top_level_folder() -> None:
    readme = (ROOT / "README.md").read_text()
    folders = {path.parts[0] for path in tracked_files() if len(path.parts) > 1 and not path.parts[0].startswith(".")}
    assert not [folder for folder in sorted(folders) if f"{folder}/" not in readme]


def test_no_folder_of_tests_is_crowded() -> None:
    count = Counter(path.parent.as_posix() for path in python_files() if path.name.startswith("test_"))
    crowded = {folder: files for folder, files in count.items() if files > MAX_TEST_FILES}
    assert not crowded, f"at most {MAX_TEST_FILES} files: sort them into folders that mirror the package's"


def test_no_folder_of_tests_is_passed_over(pytestconfig: pytest.Config) -> None:
    files = [path for path in python_files() if path.name.startswith("test_")]
    folders = {part for path in files for part in path.parts[:-1]}
    passed_over = pytestconfig.getini("norecursedirs")
    assert not [folder for folder in sorted(folders) if any(fnmatch(folder, pattern) for pattern in passed_over)]


@pytest.mark.parametrize(("tests", "package"), SORTED.items())
def test_a_folder_of_unit_tests_has_the_name_of_what_it_tests(tests: str, package: str) -> None:
    rooms = {path.relative_to(package).parts[0] for path in python_files() if path.is_relative_to(package)}
    folders = {path.relative_to(tests).parts[0] for path in python_files() if path.is_relative_to(tests)}
    assert not [name for name in sorted(folders) if not name.endswith(".py") and name not in rooms]
