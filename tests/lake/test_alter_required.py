"""SET NOT NULL: what statistics prove, and what other writers bring meanwhile."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from driftline.core.changes import RequireColumn, evolved
from driftline.errors import DataError
from driftline.formats.base import CommitConflict
from driftline.lake import Lake, Table
from lake.ducklake_peer import run
from lake.formats import database


def ingest(table: Table, tmp_path: Path, *records: Any) -> None:
    file = tmp_path / "in.jsonl"
    file.write_text("\n".join(map(json.dumps, records)))
    table.ingest(file)


def required(table: Table) -> list[str]:
    return [f.name for f in table.schema().schema.struct.fields if f.required]


def test_a_null_that_comes_meanwhile(lake: Lake, table_name: str, tmp_path: Path) -> None:
    table = lake.table(table_name)
    ingest(table, tmp_path, {"a": 1, "b": "x"})
    alteration = table.format.alteration()
    after, _ = evolved(alteration.before, [RequireColumn(("a",))], nulls_of=alteration.nulls)
    draft = alteration.change(after, {})
    ingest(table, tmp_path, {"b": "y"})
    with pytest.raises(CommitConflict):
        draft.commit()
    with pytest.raises(DataError, match="a is optional, and cannot become required: it is null in 1 row"):
        lake.alter(f"ALTER TABLE {table_name} ALTER a SET NOT NULL")
    assert required(table) == []


def test_it_can_be_taken_back(lake: Lake, table_name: str, tmp_path: Path) -> None:
    table = lake.table(table_name)
    ingest(table, tmp_path, {"a": 1, "b": "x"}, {"a": 2})
    done = lake.alter(f"ALTER TABLE {table_name} ALTER A SET NOT NULL")
    assert [c["path"] for c in done.to_dict()["changes"]] == ["a"]
    assert required(table) == ["a"]
    assert [c.action for c in table.history().entries[-1].changes] == ["require"]
    table.undo()
    assert required(table) == []
    ingest(table, tmp_path, {"b": "y"})
    assert table.read().where("a is null").count() == 1


@pytest.mark.iceberg_only("a DuckLake has no branches")
def test_nulls_of_a_branch(lake: Lake, table_name: str, tmp_path: Path) -> None:
    table = lake.table(table_name)
    ingest(table, tmp_path, {"a": 1, "b": "x"})
    lake.sql(f"alter table {table_name} create branch other")
    lake.sql(f"insert into {table.format.handle.full_name}.branch_other values (null, 'y')")
    with pytest.raises(DataError, match="it is null in 1 row"):
        lake.alter(f"ALTER TABLE {table_name} ALTER a SET NOT NULL")
    lake.alter(f"ALTER TABLE {table_name} ALTER b SET NOT NULL")
    assert required(table) == ["b"]


@pytest.mark.iceberg_only("a DuckLake's statistics are in its catalog")
def test_files_without_statistics(lake: Lake, table_name: str, tmp_path: Path) -> None:
    table = lake.table(table_name)
    ingest(table, tmp_path, {"a": 1})
    lake.alter(f"ALTER TABLE {table_name} SET TBLPROPERTIES ('write.metadata.metrics.default' = 'none')")
    ingest(table, tmp_path, {"a": 1}, {"a": 2})
    with pytest.raises(DataError, match="whether it is null in 2 rows is not known"):
        lake.alter(f"ALTER TABLE {table_name} ALTER a SET NOT NULL")


def test_rows_that_the_catalog_of_a_ducklake_keeps(ducklake: Lake, table_name: str) -> None:
    catalog, full = database(ducklake), f"lk.{table_name}"
    assert catalog is not None
    catalog.make()
    run(
        catalog,
        "CREATE SCHEMA IF NOT EXISTS lk.t",
        f"CREATE TABLE {full} (a INT, b INT, s STRUCT(x INT))",
        f"INSERT INTO {full} VALUES (1, NULL, {{'x': 1}}), (2, 3, NULL)",
        f"INSERT INTO {full} SELECT range, range, {{'x': 1}} FROM range(100)",
        f"ALTER TABLE {full} ADD COLUMN d INT DEFAULT 7",
        f"ALTER TABLE {full} ADD COLUMN n INT",
        f"INSERT INTO {full} SELECT range, range, {{'x': 1}}, range, range FROM range(100)",
    )
    for column, why in (
        ("b", "it is null in 1 row"),
        ("n", "it is null in 102 rows"),
        ("s", "it is null in 1 row"),
        ("s.x", "s.x is nested, and DuckLake requires no nested field"),
    ):
        with pytest.raises(DataError, match=why):
            ducklake.alter(f"ALTER TABLE {table_name} ALTER {column} SET NOT NULL")
    ducklake.alter(f"ALTER TABLE {table_name} ALTER a SET NOT NULL, d SET NOT NULL")
    table = ducklake.table(table_name)
    assert required(table) == ["a", "d"]
    described = run(catalog, f'SELECT column_name, "null" FROM (DESCRIBE {full})')
    assert dict(described) == {"a": "NO", "b": "YES", "s": "YES", "d": "NO", "n": "YES"}
    assert table.read().where("d = 7 and n is null").count() == 102
