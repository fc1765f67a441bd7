"""Records as deep as they may be, from every source that goes through Spark's rows: Arrow hands over 64 levels at most."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from driftline.lake import Lake, Table
from servers.kafka import Kafka

LEVELS = 99  # and the record itself


def deep(value: Any) -> str:
    text = json.dumps(value)
    return '{"a": ' * LEVELS + text + "}" * LEVELS


def leaf(table: Table, name: str = "a") -> list[Any]:
    """The deepest values of a table, in their order."""
    column = ".".join(["a"] * (LEVELS - 1) + [name])
    return sorted(
        row[0] for row in table.read().selectExpr(f"{column} as v").where("v is not null").collect()
    )


@pytest.fixture
def table(lake: Lake, table_name: str) -> Table:
    return lake.table(table_name)


@pytest.mark.nightly
def test_a_column_of_text(table: Table) -> None:
    spark = table.lake.spark
    for number in range(3):
        frame = spark.createDataFrame([(deep(number),), ("{}",), ("[]",)], "text string")
        result = table.ingest(frame, json_column="text")
        assert (result.rows_written, result.rows_quarantined) == (2, 1)
    assert leaf(table) == [0, 1, 2]


@pytest.mark.nightly
def test_a_replay(table: Table, tmp_path: Path) -> None:
    file = tmp_path / "in.jsonl"
    file.write_text(deep(1))
    table.ingest(file)
    file.write_text(deep("x"))
    assert table.ingest(file, settings={"policy": "strict"}).rows_quarantined == 1
    assert table.replay(settings={"policy": "preserve"}).written == 1
    assert (leaf(table), leaf(table, "a_string")) == ([1], ["x"])


def test_a_topic(table: Table, kafka: Kafka, table_name: str) -> None:
    topic = f"deep-{table_name}-{type(table.lake.format).__name__}"
    kafka.send(topic, [deep(number).encode() for number in range(3)])
    query = table.capture(f"kafka://{kafka.address}/{topic}", name="deep", kafka_metadata=True)
    assert query.awaitTermination(120)
    assert leaf(table) == [0, 1, 2]
    assert table.read().where("_kafka.offset >= 0").count() == 3


@pytest.mark.iceberg_only("a DuckLake's files are written by tasks alone")
def test_a_table_that_sparks_own_writer_writes(lake: Lake, table_name: str, tmp_path: Path) -> None:
    table, file = lake.table(table_name), tmp_path / "in.jsonl"
    file.write_text(deep(1))
    table.ingest(file)
    lake.sql(f"alter table lake.{table_name} set tblproperties ('write.format.default' = 'orc')")
    file.write_text(deep(2))
    table.ingest(file)
    assert leaf(table) == [1, 2]
    formats = lake.sql(f"select distinct file_format from lake.{table_name}.files").collect()
    assert {row[0] for row in formats} == {"PARQUET", "ORC"}
