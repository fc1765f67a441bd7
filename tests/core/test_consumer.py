"""A program of somebody else's: it needs nothing but what `driftline` gives out, and its types are checked."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from pathlib import Path

import pytest

import driftline

ROOT = Path(__file__).parents[2]
PROGRAMS = sorted((ROOT / "tests" / "consumer").glob("*.py"))


def test_it_imports_public_names_alone() -> None:
    assert PROGRAMS
    for file in PROGRAMS:
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.Import):
                assert not any(alias.name.startswith("driftline.") for alias in node.names), file
            elif isinstance(node, ast.ImportFrom) and (node.module or "").partition(".")[0] == "driftline":
                assert node.module == "driftline", file
                assert {alias.name for alias in node.names} <= set(driftline.__all__), file


def test_types_go_with_the_package() -> None:
    assert (Path(driftline.__file__).parent / "py.typed").is_file()


@pytest.mark.nightly
@pytest.mark.slow
def test_pyright_knows_all_its_types() -> None:
    """As strictly as mypy, which `make lint` runs; an editor's checker reads some types otherwise."""
    checked = subprocess.run(
        [sys.executable, "-m", "basedpyright", "--outputjson", "--pythonpath", sys.executable],
        cwd=ROOT, capture_output=True, text=True, check=False,
    )  # fmt: skip
    report = json.loads(checked.stdout)
    assert report["summary"]["filesAnalyzed"] == len(PROGRAMS)
    assert report["generalDiagnostics"] == []
