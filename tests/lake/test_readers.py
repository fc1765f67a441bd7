"""Other engines read what docs/readers.md says of them: those that come with the tests, the rest by `make readers`."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path
from types import ModuleType

import pytest

from driftline.lake import Lake
from lake.formats import database

BENCH = Path(__file__).parents[2] / "bench"
NAMES = ("siblings", "lists", "structs", "maps", "renamed", "deletes", "defaults")
HERE = ("pyiceberg", "DuckDB", "Polars", "DuckLake by DuckDB")


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    """The bench that makes the page's table: a script, in no package."""
    monkeypatch.syspath_prepend(str(BENCH))
    import readers

    yield readers
    sys.modules.pop("readers", None)


@pytest.mark.filterwarnings("ignore")  # of other people's libraries
@pytest.mark.parametrize("name", NAMES)
def test_what_the_page_says(name: str, bench: ModuleType, lake: Lake, table_name: str) -> None:
    formats = bench.MADE_IN[name] if database(lake) is None else bench.DUCKLAKE
    places = {
        table_format: bench.made(lake, f"{table_name}_{table_format.lower()}", name, table_format)
        for table_format in formats
    }
    page = bench.documented()
    for reader in HERE:
        if set(bench.READERS[reader].formats) & set(formats):
            verdicts = {one: bench.verdict(reader, name, place) for one, place in places.items()}
            title = f"{reader} {version(bench.READERS[reader].package)}"
            assert page[bench.TITLES[name], title] == bench.cell(verdicts), (title, verdicts)


def test_each_row_and_column_of_the_page_is_measured(bench: ModuleType) -> None:
    page = bench.documented()
    assert tuple(bench.EXPECTED) == NAMES
    assert {row for row, _ in page} == set(bench.TITLES.values())
    assert {column.rpartition(" ")[0] for _, column in page} == set(bench.READERS)
    assert all(page.values())


@pytest.mark.parametrize(
    ("read", "told"),
    [
        ({"id": 1, "l": [None, {"a": 1}]}, ""),
        ({"id": 1, "l": [None, [("a", 1)]], "more": 2}, ""),
        ({"id": 1, "l": [{"a": None}, {"a": 1}]}, '`null` reads as `{"a": null}`'),
        ({"id": 1, "l": [None, {"a": True}]}, "`1` reads as `true`"),
        ({"id": 1, "l": []}, '`[null, {"a": 1}]` reads as `[]`'),
        ({"id": 1}, '`{"id": 1, "l": [null, {"a": 1}]}` reads as `{"id": 1}`'),
    ],
)
def test_a_value_that_reads_otherwise(read: object, told: str, bench: ModuleType) -> None:
    assert bench.difference(read, {"id": 1, "l": [None, {"a": 1}]}) == told
