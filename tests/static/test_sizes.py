"""Files stay under 500 lines and functions under 60, in every Python file of the project."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from checkout import ROOT, python_files

MAX_FILE_LINES = 500
MAX_FUNCTION_LINES = 60


def long_functions(tree: ast.Module) -> Iterator[tuple[str, int]]:
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            lines = (node.end_lineno or node.lineno) - node.lineno + 1
            if lines > MAX_FUNCTION_LINES:
                yield f"{node.name} (line {node.lineno})", lines


@pytest.mark.parametrize("path", python_files(), ids=str)
def test_a_file_and_its_functions_stay_small(path: Path) -> None:
    source = (ROOT / path).read_text()
    lines = source.count("\n")
    assert lines <= MAX_FILE_LINES, f"{path} has {lines} lines, at most {MAX_FILE_LINES}: split it"
    too_long = [f"{name} has {count} lines" for name, count in long_functions(ast.parse(source))]
    assert not too_long, f"{path}: at most {MAX_FUNCTION_LINES} lines a function: {too_long}"


def test_a_long_function_is_found() -> None:
    body = "\n".join("    pass" for _ in range(MAX_FUNCTION_LINES))
    assert list(long_functions(ast.parse(f"def f():\n{body}\n"))) == [("f (line 1)", MAX_FUNCTION_LINES + 1)]
