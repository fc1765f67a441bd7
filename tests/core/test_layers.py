"""Which part of the code may know which: held by reading the imports."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

import house

PAGE = Path(__file__).parents[2] / "docs" / "how-it-works.md"


def callers(place: str, *engines: str) -> list[str]:
    """Modules whose names begin with ``place`` and that import one of these."""
    return sorted(
        f"{module} imports {name}"
        for module, tree in house.modules().items()
        if module.startswith(place)
        for name in imported(tree)
        if name.startswith(engines)
    )


def imported(tree: ast.Module) -> set[str]:
    """The modules that a module imports, at its head or inside a function."""
    names = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module:
            names.add(node.module)
        elif isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
    return names


def test_only_the_formats_know_a_concrete_format() -> None:
    concrete = ("driftline.formats.iceberg", "driftline.formats.ducklake")

    assert [caller for caller in callers("", *concrete) if not caller.startswith("formats.")] == []


def test_in_the_formats_only_one_module_knows_all_of_them() -> None:
    assert callers("formats.iceberg", "driftline.formats.ducklake") == []
    assert callers("formats.ducklake", "driftline.formats.iceberg") == []
    assert callers("formats.base", "driftline.formats.") == []


def test_the_core_knows_no_engine() -> None:
    engines = ("pyspark", "py4j", "duckdb", "pyarrow", "numpy")

    assert callers("core", *engines) == []


def test_the_conversion_knows_no_spark() -> None:
    alone = ("convert.spark", "convert.variants")

    assert [caller for caller in callers("convert", "pyspark", "py4j") if not caller.startswith(alone)] == []


def test_no_file_reads_what_stands_outside_the_clone() -> None:
    root = PAGE.parents[1]
    upwards, neighbour = re.compile(r"__file__.*parents\[(\d+)\]"), re.compile(r"\.\./shared")
    beyond = []
    for path in (
        found for folder in ("tests", "bench", "src", "docs", ".ci") for found in texts(root / folder)
    ):
        depth = len(path.relative_to(root).parts) - 1
        beyond += [
            f"{path.relative_to(root)}: {line.strip()}"
            for line in path.read_text().splitlines()
            if neighbour.search(line) or any(int(n) > depth for n in upwards.findall(line))
        ]

    assert beyond == []


def texts(folder: Path) -> list[Path]:
    """The texts of a folder that belong to the checkout; environments made below it have hidden names."""
    files = (
        path for path in folder.rglob("*") if path.suffix in {".py", ".md", ".sh", ""} and path.is_file()
    )
    return [
        path for path in files if not any(step.startswith(".") for step in path.relative_to(folder).parts)
    ]


def test_every_room_has_its_layer() -> None:
    assert house.rooms() <= set(house.LAYERS)
    assert len(house.rooms()) <= 31


@pytest.mark.parametrize("faults", [house.against_layers, house.circles, house.late])
def test_imports_run_one_way_at_the_head_of_modules(faults) -> None:
    assert faults() == []


def test_the_command_line_and_statistics_without_spark_start_without_what_takes_long() -> None:
    assert house.libraries("cli") == frozenset()
    assert house.libraries("stats.build") == frozenset()


def test_every_room_has_its_line_in_the_docs() -> None:
    table = PAGE.read_text().partition("\n## The rooms\n")[2].partition("\n## ")[0]
    listed = [
        room.replace("/", ".") for room in re.findall(r"^\| `([\w/]+?)(?:/|\.py)` ", table, re.MULTILINE)
    ]

    assert listed == [room for room in house.LAYERS if room in house.rooms()]


def test_the_map_of_the_code_names_few_files() -> None:
    """A page that names every file explains none; the tree has to speak for itself."""
    named = set(re.findall(r"`([a-z_/]+\.py)`", PAGE.read_text()))
    files = {name for name in named if not any(other.endswith(f"/{name}") for other in named)}

    assert len(files) <= 60


def test_no_function_is_long_or_wide_and_none_of_the_core_is_winding() -> None:
    assert house.long() == []
    assert house.wide() == []
    assert house.branching("core.") == []


def test_what_is_on_its_way_to_a_goal_does_not_go_back() -> None:
    """Ceilings to be lowered as the figures of `make house` fall."""
    vague, locals_ = house.vague_locals()
    interrogative, docstrings = house.interrogative_docstrings()
    undocumented, public = house.undocumented()

    assert not house.shared_class_names()
    assert not house.circles(with_types=True)
    assert house.import_lines() / house.lines() <= 0.078
    assert house.comment_lines() / house.lines() >= 0.019
    assert max(house.sizes().values()) < house.LARGEST
    assert house.spread() >= 1.9
    assert len(vague) / locals_ <= 0.01
    assert interrogative == [] and docstrings
    assert len(undocumented) / public <= 0.03
    assert len(house.changing_globals()) <= 2
