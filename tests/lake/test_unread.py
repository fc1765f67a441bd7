"""Columns of types that Spark has no values of, as another engine made them: they stand in nobody's way."""

from __future__ import annotations

import json
from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from driftline.errors import DataError
from driftline.lake import Lake, Table
from driftline.runtime.spark_version import unknown_types
from lake.formats import VARIANTS

pytestmark = pytest.mark.iceberg_only("types that Iceberg has and Spark cannot read")


def declared(lake: Lake, name: str, required: str = "", **columns: Any) -> Table:
    """A v3 table with these columns, made by Iceberg itself; a dict is a struct, a list of one type a list."""
    lake.sql(f"create namespace if not exists lake.{name.split('.', maxsplit=1)[0]}")
    jvm: Any = lake.spark._jvm
    ids = count(1)

    def type_of(given: Any) -> Any:
        if isinstance(given, dict):
            return {"type": "struct", "fields": fields(given)}
        if isinstance(given, list):
            inner = {"element-id": next(ids), "element": type_of(given[0]), "element-required": False}
            return {"type": "list", **inner}
        return given

    def fields(given: dict[str, Any]) -> list[dict[str, Any]]:
        return [
            {"id": next(ids), "name": n, "required": n == required, "type": type_of(t)}
            for n, t in given.items()
        ]

    schema = {"type": "struct", "schema-id": 0, "fields": fields(columns)}
    table = lake.table(name)
    table.format.handle.java_catalog.createTable(
        table.format.handle.identifier,
        jvm.org.apache.iceberg.SchemaParser.fromJson(json.dumps(schema)),
        jvm.org.apache.iceberg.PartitionSpec.unpartitioned(),
        {"format-version": "3"},
    )
    return table


def lines(tmp_path: Path, *records: Any) -> Path:
    file = tmp_path / "in.jsonl"
    file.write_text("\n".join(map(json.dumps, records)))
    return file


UNREAD = {
    "t": "time", "ns": "timestamp_ns", "nz": "timestamptz_ns", "s": {"a": "time", "b": "long"}, "l": ["time"],
}  # fmt: skip
UNWRITTEN = {"u": "unknown", "g": "geometry", "su": {"a": "unknown"}}


def columns(table: Table) -> list[str]:
    return [f.name for f in table.schema().schema.struct.fields]


@pytest.mark.nightly
@pytest.mark.hive_refuses("it has no columns of such types")
def test_ingest_goes_on_beside_them(lake: Lake, table_name: str, tmp_path: Path) -> None:
    table = declared(lake, table_name, id="long", **UNREAD, **UNWRITTEN)
    assert table.ingest(lines(tmp_path, {"id": 1, "s": {"b": 5}})).rows_written == 1
    values = {"id": 2, "t": "10:00:00", "u": 7, "g": "here", "ns": 1, "s": {"a": "x", "b": 6}, "l": ["y"]}
    done = table.ingest(lines(tmp_path, values))
    made = sorted(".".join(c.path) for c in done.changes)
    assert made == ["g_string", "l_array_string", "ns_long", "s.a_string", "t_string", "u_long"]
    assert not done.rows_quarantined
    again = table.ingest(lines(tmp_path, values), dry_run=True)
    assert not again.changes
    kept = table.ingest(lines(tmp_path, {"id": 3, "ns": "x"}), settings={"policy": "strict"})
    assert (kept.rows_written, kept.rows_quarantined) == (0, 1)
    # The schema is as it was, and so are the files of a transaction that nobody commits: gone.
    metadata = Path(lake.warehouse or "", *table_name.split("."), "metadata")
    snapshots = table.format.handle.java().snapshots()
    assert len(list(metadata.glob("snap-*.avro"))) == len(list(snapshots)) == 2
    for name in ("t", "ns", "nz", "s.a", "l", *(["g"] if "geometry" in unknown_types() else [])):
        lake.alter(f"ALTER TABLE {table_name} DROP COLUMN {name}")
    rows = sorted((r.asDict(recursive=True) for r in table.read().collect()), key=lambda r: r["id"])
    assert rows[0]["s"] == {"b": 5, "a_string": None}
    assert {k: rows[1][k] for k in ("u", "u_long", "t_string", "g_string", "ns_long", "s", "l_array_string")} == {
        "u": None, "u_long": 7, "t_string": "10:00:00", "g_string": "here", "ns_long": 1,
        "s": {"b": 6, "a_string": "x"}, "l_array_string": ["y"],
    }  # fmt: skip


@pytest.mark.nightly
@pytest.mark.hive_refuses("it has no columns of such types")
def test_each_command_works_or_names_the_column(lake: Lake, table_name: str, tmp_path: Path) -> None:
    table = declared(lake, table_name, id="long", s={"a": "time", "b": "long"}, g="geometry")
    file = lines(tmp_path, {"id": 1, "s": {"b": 5}})
    table.ingest(file)
    assert [g.records for g in table.layout().groups] == [1]
    for exact in (False, True):
        numbers = {".".join(c.path): c.numbers.values for c in table.stats(exact=exact).columns}
        assert (numbers["id"], numbers["s.b"]) == (1, 1)
    assert table.history().entries
    lake.alter(f"ALTER TABLE {table_name} ADD COLUMN y bigint")
    table.ingest(lines(tmp_path, {"id": 2, "y": 1}))
    with pytest.raises(DataError, match="would hide values: 1 of y"):
        table.undo()
    assert [v.count for v in table.undo(yes=True).hidden] == [1]
    assert "y" not in columns(table)
    sentence = f"{table_name}: Spark cannot read s.a, a time"
    readers: list[Callable[[], Any]] = [
        table.read,
        table.view,
        lambda: table.resolve("id", "string", dry_run=True),
        lambda: lake.sql(f"with x as (select id from {table_name}) select * from x"),
        lambda: lake.sql(f"select * from lake.{table_name}"),
    ]
    for reader in readers:
        with pytest.raises(DataError, match=sentence):
            reader()
    done = lake.alter(f"ALTER TABLE {table_name} ADD COLUMN t time")
    assert done.notes == ("Spark cannot read the table while it has t, a time",)
    with pytest.raises(DataError, match="would hide t, whose values Spark cannot count"):
        table.undo()
    table.undo(yes=True)
    assert columns(table) == ["id", "s", "g"]


def test_a_column_that_must_have_a_value(lake: Lake, table_name: str, tmp_path: Path) -> None:
    table = declared(lake, table_name, required="t", id="long", t="time")
    done = table.ingest(lines(tmp_path, {"id": 1}))
    assert [(c.action, c.path) for c in done.changes] == [("relax", ("t",))]


@pytest.mark.hive_refuses("it has no columns of such types")
def test_a_void_column_is_null(lake: Lake, table_name: str, tmp_path: Path) -> None:
    table = declared(lake, table_name, id="long", u="unknown", s={"u": "unknown", "b": "long"})
    files = [lines(tmp_path, {"id": 1, "u": None, "s": {"b": 2}}, {"id": 2, "s": {}}, {"id": 3, "s": None})]
    table.ingest(files[0])
    rows = sorted(tuple(r.asDict(recursive=True).values()) for r in table.read().drop("s").collect())
    assert rows == [(1, None), (2, None), (3, None)]
    assert table.verify([str(files[0])], "json").ok
    assert table.resolve("id", "string").rest == 0
    assert table.view().in_catalog
    table.ingest(lines(tmp_path, {"id": "4", "u": "x"}))
    assert "u_string" in columns(table)
    table.stats(exact=True)
    table.undo(yes=True)


@VARIANTS
def test_a_variant_column_is_read_at_once(
    lake: Lake, spark: SparkSession, table_name: str, tmp_path: Path
) -> None:
    table = declared(lake, table_name, id="long")
    table.ingest(lines(tmp_path, {"id": 1}))
    done = lake.alter(f"ALTER TABLE {table_name} ADD COLUMN v variant")
    assert len(done.notes) == 1 and "v is a variant: pyiceberg" in done.notes[0]
    assert done.to_dict()["notes"] == list(done.notes)
    assert [tuple(r) for r in lake.sql(f"select * from {table_name}").collect()] == [(1, None)]
    assert [v.count for v in table.undo().hidden] == [0]
    table.undo()
    assert [tuple(r) for r in table.read().collect()] == [(1, None)]
    table.undo()
    assert columns(table) == ["id"]
