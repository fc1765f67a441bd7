"""Defaults and ingests: what a record without a value gets."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from driftline.lake import Lake, Table


@pytest.fixture
def table(lake: Lake, table_name: str, tmp_path: Path) -> Table:
    """With a row that is older than its defaults."""
    table = lake.table(table_name)
    table.ingest(write(tmp_path, '{"id": 1, "s": {"x": 1}, "l": [{"p": 1}]}'))
    lake.alter(
        f"ALTER TABLE {table_name} ADD COLUMN n int DEFAULT 7;"
        f"ALTER TABLE {table_name} ADD COLUMN s.y string DEFAULT 'it''s';"
        f"ALTER TABLE {table_name} ADD COLUMN l.element.q date DEFAULT '2026-01-02';"
        f"ALTER TABLE {table_name} ALTER n SET DEFAULT 100",
        upgrade=True,
    )
    return table


def write(folder: Path, *records: str) -> Path:
    folder.mkdir(exist_ok=True)
    file = folder / "in.jsonl"
    file.write_text("\n".join(records))
    return file


def rows(table: Table) -> list[tuple[object, ...]]:
    found = table.read().selectExpr("id", "n", "s.x", "s.y", "get(l, 0).p", "cast(get(l, 0).q as string)")
    return sorted((tuple(row) for row in found.collect()), key=str)


def test_a_record_without_a_value_gets_the_default(table: Table, tmp_path: Path) -> None:
    file = write(
        tmp_path,
        '{"id": 2, "s": {"x": 2}, "l": [{"p": 2}]}',
        '{"id": 3, "n": 5, "s": {"y": "given"}, "l": [{"q": "2020-01-01"}]}',
        '{"id": 4, "n": null, "s": null}',
        '{"id": 5, "s": {"x": 3, "y": null}, "l": []}',
    )
    assert not table.ingest(file).changes
    assert rows(table) == [
        (1, 7, 1, "it's", 1, "2026-01-02"),
        (2, 100, 2, "it's", 2, "2026-01-02"),
        (3, 5, None, "given", None, "2020-01-01"),
        (4, 100, None, None, None, None),
        (5, 100, 3, "it's", None, None),
    ]


def test_a_key_that_no_record_of_the_batch_has(table: Table, tmp_path: Path) -> None:
    table.ingest(write(tmp_path, '{"id": 2}'))
    assert rows(table)[1] == (2, 100, None, None, None, None)


def test_a_value_of_another_type_is_a_value(table: Table, tmp_path: Path) -> None:
    """It goes to a sibling; the default would tell what was never there."""
    table.ingest(write(tmp_path, '{"id": 2, "n": "many"}', '{"id": 3, "n": 8}', '{"id": 4}'))
    found = table.read().select("id", "n", "n_string").collect()
    assert sorted(map(tuple, found)) == [
        (1, 7, None),
        (2, None, "many"),
        (3, 8, "8"),
        (4, 100, None),
    ]


def test_a_typed_source(table: Table, spark: SparkSession) -> None:
    table.ingest(spark.sql("select 2L as id, struct(5L as x) as s"))
    table.ingest(spark.sql("select 3L as id, 9 as n union all select 4L, null"))
    assert [(row[0], row[1], row[3]) for row in rows(table)] == [
        (1, 7, "it's"),
        (2, 100, "it's"),
        (3, 9, None),
        (4, 100, None),
    ]


def test_every_type(lake: Lake, table_name: str, spark: SparkSession, tmp_path: Path) -> None:
    table = lake.table(table_name)
    table.ingest(spark.sql("select 1 as id"))
    given = {
        "a boolean": "false",
        "b bigint": "-5000000000",
        "c double": "0.1",
        "d decimal(38, 18)": "12345678901234567890.000000000000000001",
        "e timestamp": "'2026-01-02T03:04:05.000001+01:00'",
        "f timestamp_ntz": "'1900-01-02 03:04:05'",
        "g binary": "X'00ff'",
        "h float": "0.1",
        "i string": r"'back\slash ''quoted'' ${x}'",
    }
    lake.alter(
        "; ".join(f"ALTER TABLE {table_name} ADD COLUMN {k} DEFAULT {v}" for k, v in given.items()),
        upgrade=True,
    )
    table.ingest(write(tmp_path, '{"id": 2}'))
    old, new = table.read().orderBy("id").drop("id").collect()
    assert old == new
    assert old.i == r"back\slash 'quoted' ${x}"
    assert old.g == b"\x00\xff"
    assert str(old.d) == "12345678901234567890.000000000000000001"


def test_the_check_of_source_against_table_holds(table: Table, tmp_path: Path) -> None:
    file = write(tmp_path, '{"id": 2}', '{"id": 3, "n": 8}')
    table.ingest(file)
    assert table.verify([str(file)], "json").ok


def test_a_required_column_stays_so_where_its_default_fills_it(
    lake: Lake, table_name: str, tmp_path: Path
) -> None:
    table = lake.table(table_name)
    files = [str(write(tmp_path / f"{i}", '{"id": 1, "s": {"x": 1}}')) for i in "ab"]
    table.ingest(files[0])
    lake.alter(f"ALTER TABLE {table_name} ADD COLUMN n int NOT NULL DEFAULT 7", upgrade=True)
    lake.alter(f"ALTER TABLE {table_name} ADD COLUMN s.f float DEFAULT 0.1")
    assert not table.ingest(files[1]).changes
    lake.alter(f"ALTER TABLE {table_name} ALTER n SET DEFAULT 100")
    last = write(
        tmp_path / "c", '{"id": 2, "n": null, "s": {"x": null}}', '{"id": 3, "n": 5, "s": {}}', '{"id": 4}'
    )
    assert not table.ingest(last).changes
    column = table.schema().schema.find(("n",))
    assert column is not None and column.required
    found = table.read().selectExpr("id", "n", "s.f = cast(0.1 as float) as f").collect()
    assert sorted(map(tuple, found)) == [
        (1, 7, True),
        (1, 7, True),
        (2, 100, True),
        (3, 5, True),
        (4, 100, None),
    ]
    assert table.verify([*files, str(last)], "json").ok
    lake.alter(f"ALTER TABLE {table_name} ALTER n DROP DEFAULT; ALTER TABLE {table_name} RENAME n TO m")
    assert table.verify([*files, str(last)], "json").ok
    assert [c.action for c in table.ingest(write(tmp_path / "d", '{"id": 5}')).changes] == ["relax"]


@pytest.mark.iceberg_only("Spark's SQL changes Iceberg alone")
def test_the_check_takes_a_default_and_no_other_value(lake: Lake, table_name: str, tmp_path: Path) -> None:
    table = lake.table(table_name)
    file = write(tmp_path, '{"id": 1}', '{"id": 2}')
    table.ingest(file)
    lake.alter(f"ALTER TABLE {table_name} ADD COLUMN n int DEFAULT 7", upgrade=True)
    assert table.verify([str(file)], "json").ok
    lake.sql(f"update lake.{table_name} set n = 8 where id = 2")
    verdict = table.verify([str(file)], "json")
    assert not verdict.ok
