"""Data files that tasks write for Iceberg: as its own writer would have written them, or by that."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from driftline import Lake
from driftline.convert import arrow_schema
from driftline.core.types import Schema
from driftline.formats.iceberg.data_files import data_file, modes_of
from driftline.formats.iceberg.gateway import items
from driftline.write import FileSettings, write_files

COLUMNS = """id bigint, i int, b boolean, f float, d double, s string, bin binary, dt date, ts timestamp, tn timestamp_ntz,
    d9 decimal(9,2), d18 decimal(18,4), d38 decimal(38,18), st struct<a: int, t: string, l: array<int>, n: struct<z: double>>,
    l array<struct<x: int, y: string>>, m map<string, struct<k: double>>, whole string, nothing float"""
MODES = {"whole": "full", "st.t": "counts", "i": "none"}
ROWS = """(1, 2, true, float('nan'), -0.0d, repeat('é', 30), X'ffffffffffffffffffffffffffffffffff', date'2024-01-02',
      timestamp'2024-01-02 03:04:05Z', timestamp_ntz'2024-01-02 03:04:05', 1.25, 2.5, -3.000000000000000001,
      named_struct('a', 1, 't', 'x', 'l', array(1, null), 'n', named_struct('z', 1.5d)),
      array(named_struct('x', 1, 'y', 'q')), map('k', named_struct('k', 2d)), repeat('x', 40), null),
    (null, null, null, 1.5f, 0.0d, 'a', X'00', null, null, null, null, null, null, null, null, null, 'b', null),
    (5, 7, false, -2f, 3d, 'zzzzzzzzzzzzzzzz\U0010ffffq', X'01ff', date'1969-01-02', timestamp'1900-01-02 03:04:05.123456Z',
      timestamp_ntz'0001-01-02 03:04:05', -1.25, 0, 12345678901234567890.5,
      named_struct('a', null, 't', null, 'l', null, 'n', null), array(), map(), null, null)"""


def test_metrics_are_those_of_icebergs_own_writer(lake: Lake, spark: SparkSession, table_name: str) -> None:
    modes = ", ".join(
        f"'write.metadata.metrics.column.{column}' = '{mode}'" for column, mode in MODES.items()
    )
    lake.sql("create namespace if not exists lake.t")
    lake.sql(f"create table lake.{table_name} ({COLUMNS}) using iceberg tblproperties ({modes})")
    spark.sql(f"select /*+ coalesce(1) */ * from values {ROWS}").toDF(
        *spark.table(f"lake.{table_name}").columns
    ).coalesce(1).writeTo(f"lake.{table_name}").append()
    table = lake.table(table_name).format
    java, schema, jvm = table.java(), table.load().schema, spark._jvm
    (theirs,) = items(java.currentSnapshot().addedDataFiles(java.io()))
    path = str(theirs.location()).replace(".parquet", "-other.parquet")
    rows = pa.Table.from_pylist(
        pq.read_table(theirs.location()).to_pylist(), schema=arrow_schema(schema.struct)
    )
    (file,) = write_files(
        [path],
        lambda p: pa.OSFile(p, "wb"),
        rows.to_batches(),
        schema,
        modes_of(jvm, java, schema),
        FileSettings(),
        2**30,
    )
    ours = data_file(jvm, java.spec(), file)
    wanted, got = (told(jvm, java, one) for one in (theirs, ours))
    assert wanted["column-sizes"].keys() == got["column-sizes"].keys()
    for apart in ("file-path", "file-size-in-bytes", "column-sizes"):
        del wanted[apart], got[apart]
    assert got == wanted
    java.newAppend().appendFile(ours).commit()
    spark.catalog.refreshTable(f"lake.{table_name}")
    assert spark.sql(f"select * from lake.{table_name}").count() == 6
    assert spark.sql(f"select distinct id, s, m['k'], st from lake.{table_name}").count() == 3


def told(jvm: Any, java: Any, file: Any) -> dict[str, Any]:
    """A data file as Iceberg writes it, its maps by id."""
    found = json.loads(jvm.org.apache.iceberg.ContentFileParser.toJson(file, java.spec()))
    return {
        key: dict(zip(value["keys"], value["values"], strict=True)) if isinstance(value, dict) else value
        for key, value in found.items()
    }


@dataclass(frozen=True)
class Tasks:
    """Two tasks with some rows each; ``broken``: the second one fails after its first rows."""

    schema: Schema
    broken: bool = False
    sizes: tuple[int, ...] = (1, 1)

    def rows(self, task: int) -> Iterator[pa.RecordBatch]:
        types = arrow_schema(self.schema.struct)
        for i in range(3):
            yield pa.RecordBatch.from_pylist([{"a": 10 * task + i, "b": "x"}], schema=types)
            if task and self.broken:
                raise ValueError("no more rows")


@pytest.mark.parametrize(
    ("layout", "files"),
    [
        ("", {"parquet"}),
        ("partitioned by (b)", {"parquet"}),
        ("tblproperties ('write.format.default' = 'orc')", {"orc"}),
        ("tblproperties ('write.parquet.bloom-filter-enabled.column.a' = 'true')", {"parquet"}),
        ("tblproperties ('write.object-storage.enabled' = 'true')", {"parquet"}),
    ],
    ids=["plain", "partitioned", "orc", "bloom filter", "object storage"],
)
def test_each_table_gets_its_rows(lake: Lake, table_name: str, layout: str, files: set[str]) -> None:
    lake.sql("create namespace if not exists lake.t")
    lake.sql(f"create table lake.{table_name} (a bigint, b string) using iceberg {layout}")
    table = lake.table(table_name).format
    transaction = table.transaction(table.load(), pinned=True)
    assert transaction.write(Tasks(transaction.schema), {"driftline.batch": "one"}) == 6
    transaction.commit()
    rows = lake.sql(f"select a, b from lake.{table_name} order by a").collect()
    assert [tuple(row) for row in rows] == [(a, "x") for a in (0, 1, 2, 10, 11, 12)]
    kinds = lake.sql(f"select distinct lower(file_format) from lake.{table_name}.files").collect()
    assert {row[0] for row in kinds} == files
    (summary,) = lake.sql(f"select summary from lake.{table_name}.snapshots").head()
    assert summary["driftline.batch"] == "one"
    assert summary["added-records"] == "6"


def test_tasks_that_fail_leave_no_file(lake: Lake, table_name: str) -> None:
    lake.sql("create namespace if not exists lake.t")
    lake.sql(f"create table lake.{table_name} (a bigint, b string) using iceberg")
    table = lake.table(table_name).format
    transaction = table.transaction(table.load(), pinned=True)
    with pytest.raises(Exception, match="no more rows"):
        transaction.write(Tasks(transaction.schema, broken=True), {})
    transaction.abandon()
    folder = Path(str(table.java().location()).removeprefix("file:"))
    assert not list(folder.rglob("*.parquet"))
    assert table.load().snapshot is None
