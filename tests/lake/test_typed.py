"""Records of declared types: those that a table refuses wait in quarantine, whole."""

from __future__ import annotations

import json
from typing import Any

import pytest
from pyspark.sql import SparkSession

from driftline import quarantine
from driftline.lake import Lake, Table


@pytest.fixture
def table(either: Lake, table_name: str) -> Table:
    return either.table(table_name)


def aside(table: Table) -> list[Any]:
    return quarantine.of(table.format).read().orderBy("raw").collect()


def types(table: Table) -> dict[str, str]:
    return {f.name: str(f.type) for f in table.schema().schema.struct.fields}


def test_rows_without_a_required_column_wait(table: Table, spark: SparkSession) -> None:
    """As records of JSON do: the batch goes on, and nothing of theirs is lost."""
    strict = {"policy": "strict"}
    table.ingest(spark.sql("select 1L as id, 'x' as name"))
    table.lake.alter(f"ALTER TABLE {table.name} ALTER id SET NOT NULL")
    result = table.ingest(spark.sql("select 'y' as name, cast('ab' as binary) as key"), settings=strict)
    assert (result.rows_written, result.rows_quarantined) == (0, 1)
    result = table.ingest(
        spark.sql("select * from values (2L, 'z'), (null, 'n') as t(id, name)"), settings=strict
    )
    assert (result.rows_written, result.rows_quarantined) == (1, 1)
    assert types(table) == {"id": "long", "name": "string"}
    assert [(r.path, json.loads(r.raw)) for r in aside(table)] == [
        ("id", {"name": "n"}),
        ("key", {"name": "y", "key": "YWI="}),
    ]
