"""Which part of the code may know which: held by reading the imports."""

from __future__ import annotations

import ast
from pathlib import Path

import driftline

ROOT = Path(driftline.__file__).parent


def imports(file: Path) -> set[str]:
    """The modules that a file imports, at its head or inside a function."""
    modules = set()
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module:
            modules.add(node.module)
        elif isinstance(node, ast.Import):
            modules |= {alias.name for alias in node.names}
    return modules


def test_only_the_formats_know_a_concrete_format() -> None:
    concrete = ("driftline.formats.iceberg", "driftline.formats.ducklake")
    callers = {
        str(file.relative_to(ROOT)): sorted(known)
        for file in ROOT.rglob("*.py")
        if "formats" not in file.relative_to(ROOT).parts
        and (known := {module for module in imports(file) if module.startswith(concrete)})
    }

    assert callers == {}


def test_the_core_knows_no_engine() -> None:
    engines = ("pyspark", "py4j", "duckdb", "pyarrow", "numpy", "driftline.formats", "driftline.route")
    callers = {
        str(file.relative_to(ROOT)): sorted(known)
        for file in (ROOT / "core").rglob("*.py")
        if (known := {module for module in imports(file) if module.startswith(engines)})
    }

    assert callers == {}
