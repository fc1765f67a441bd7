"""VARIANT columns, which Iceberg's v3 tables have: filled exactly."""

from __future__ import annotations

import json
from decimal import Decimal
from pathlib import Path

import pytest

from driftline.lake import Lake
from lake.formats import VARIANTS

pytestmark = [
    pytest.mark.iceberg_only("a DuckLake has no variants"),
    VARIANTS,
]


def test_values_go_in_exactly(lake: Lake, table_name: str, tmp_path: Path) -> None:
    lake.sql("create namespace if not exists lake.t")
    lake.sql(
        f"create table lake.{table_name} (id bigint, v variant, price decimal(9,2)) using iceberg "
        "tblproperties ('format-version' = '3')"
    )
    table = lake.table(table_name)
    values = {
        1: "5",
        2: '{"a": 1}',
        3: "[1.50, [null]]",
        4: '"5"',
        5: "1e400",
        6: "null",
        7: "-0.0",
        8: f"{10**20}",
    }
    file = tmp_path / "in.jsonl"
    file.write_text("\n".join(f'{{"id": {i}, "v": {value}, "price": 1.{i}}}' for i, value in values.items()))
    done = table.ingest(file)
    assert (done.rows_written, done.rows_quarantined) == (8, 0)
    # The number that is in no type, and the common denominator of all.
    assert {change.path for change in done.changes} == {("v_string",), ("v_array_string",)}
    rows = table.read().selectExpr("id", "to_json(v) as v", "v_string", "cast(price as string) as price")
    found = {row.id: row for row in rows.collect()}
    assert {i: row.price for i, row in found.items()} == {i: f"1.{i}0" for i in values}
    assert found[5].v is None and found[5].v_string == "1e400"
    assert found[6].v is None
    for i in (1, 2, 3, 4, 7, 8):
        assert json.loads(found[i].v, parse_float=Decimal) == json.loads(values[i], parse_float=Decimal)
    assert found[7].v == "-0.0"
    # The same again: nothing new.
    assert not table.ingest(file, again=True).changes
    texts = lake.spark.createDataFrame([('{"id": 9, "v": {"b": [true]}}',)], "text string")
    table.ingest(texts, json_column="text")
    assert lake.sql(f"select to_json(v) from lake.{table_name} where id = 9").head()[0] == '{"b":[true]}'


def test_variants_of_a_dataframe_go_in_as_they_are(lake: Lake, table_name: str) -> None:
    lake.sql("create namespace if not exists lake.t")
    lake.sql(
        f"create table lake.{table_name} (id bigint, v variant, s struct<v: variant>) using iceberg "
        "tblproperties ('format-version' = '3')"
    )
    frame = lake.spark.sql(
        """select id, parse_json(text) as v, struct(parse_json(text) as v) as s
        from values (1L, '{"a": [1.50]}'), (2L, null) as t(id, text)"""
    )
    done = lake.table(table_name).ingest(frame)
    assert (done.rows_written, list(done.changes)) == (2, [])
    rows = lake.sql(f"select to_json(v), to_json(s.v) from lake.{table_name} order by id").collect()
    assert [tuple(row) for row in rows] == [('{"a":[1.5]}', '{"a":[1.5]}'), (None, None)]
