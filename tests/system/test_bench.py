"""The bench's check for lost values finds what is lost, and nothing else, on a handful of records."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import duckdb
import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.schema import Schema
from pyiceberg.types import DoubleType, LongType, NestedField, StringType

BENCH = Path(__file__).parents[2] / "bench"
MODULES = ("check", "tables", "contestants")


@pytest.fixture
def bench(monkeypatch):
    """The bench's modules, which are no package: they run as scripts."""
    monkeypatch.syspath_prepend(str(BENCH))
    import check

    yield check
    for name in MODULES:
        sys.modules.pop(name, None)


def source(bench, folder: Path, *records: Any):
    file = folder / "source.jsonl"
    file.write_text(
        "".join(f"{record if isinstance(record, str) else json.dumps(record)}\n" for record in records)
    )
    return bench.in_source([file])


def duckdb_table(folder: Path, select: str):
    from contestants import Table

    with duckdb.connect(folder / "t.duckdb") as connection:
        connection.execute(f"CREATE TABLE t AS {select}")
    return Table("duckdb", str(folder / "t.duckdb"), "t")


def test_all_is_there(bench, tmp_path):
    values = source(
        bench,
        tmp_path,
        {"a": 1, "s": {"b": [0.1, True]}},
        {"a": {"x": "y"}, "at": "2026-01-01T00:00:00Z"},
        {"a": []},
    )
    table = duckdb_table(
        tmp_path,
        """SELECT '1'::JSON AS a, {'b': [0.1::DOUBLE, 1]} AS s, NULL::TIMESTAMP AS at
        UNION ALL SELECT '{"x": "y"}'::JSON, NULL, TIMESTAMP '2026-01-01'""",
    )
    loss = bench.compare(values, table)
    assert (loss.values, loss.lost) == (5, 1), loss  # true became 1.0
    assert loss.examples == ["s.b True (1)"]


@pytest.mark.parametrize(
    ("value", "kept", "text"),
    [
        ("5", "'5'", 1),  # a number as text
        ("true", "'true'", 1),
        ('"5"', "5", 0),  # a text as a number
        ("9007199254740993", "9007199254740992::DOUBLE", 0),
        ("0.12345678901234567891", "0.12345678901234568::DOUBLE", 0),
        ("1557933565", "TIMESTAMP '2019-05-15 15:19:25'", 0),
        ('{"x": 1}', '\'{"x": "1"}\'', 1),
        ('"a"', "'A'", 0),
        ("1", "NULL::INT", 0),
    ],
)
def test_lost(bench, tmp_path, value, kept, text):
    values = source(bench, tmp_path, f'{{"v": {value}}}')
    loss = bench.compare(values, duckdb_table(tmp_path, f"SELECT {kept} AS v"))
    assert (loss.lost, loss.as_text) == (1, text)


@pytest.mark.parametrize(
    ("value", "kept"),
    [
        ("5", "5.0::DOUBLE"),
        ("1.50", "1.5::DECIMAL(9, 4)"),
        ("9007199254740993", "9007199254740993::BIGINT"),
        ('"2024-02-29"', "DATE '2024-02-29'"),
        ('{"x": [1, "1"]}', '\'{"x": [1, "1"]}\''),
        ('"007"', "'007'"),
    ],
)
def test_kept(bench, tmp_path, value, kept):
    values = source(bench, tmp_path, f'{{"v": {value}}}')
    assert bench.compare(values, duckdb_table(tmp_path, f"SELECT {kept} AS v")).lost == 0


def test_siblings_hold_a_value_once(bench, tmp_path):
    """Two columns that both hold the first record's 1 do not make up for the second record's."""
    from contestants import Table

    mark = "upsolver_evolved_from:v"
    schema = Schema(
        NestedField(1, "v", LongType()),
        NestedField(2, "v_double", DoubleType(), doc=mark),
        NestedField(3, "v_string", StringType(), doc=mark),
    )
    catalog = SqlCatalog("t", uri=f"sqlite:///{tmp_path}/catalog.db", warehouse=f"file://{tmp_path}")
    catalog.create_namespace("n")
    table = catalog.create_table("n.t", schema)
    import pyarrow as pa

    table.append(
        pa.table(
            {"v": [1, None, None], "v_double": [1.0, None, 0.5], "v_string": ["1", None, "x"]},
            table.schema().as_arrow(),
        )
    )
    values = source(bench, tmp_path, {"v": 1}, {"v": 1}, {"v": 0.5}, {"v": "x"})
    loss = bench.compare(values, Table("iceberg", table.location().removeprefix("file://"), "t", "driftline"))
    assert (loss.values, loss.lost, loss.examples) == (4, 1, ["v 1 (1)"])
    catalog.close()
