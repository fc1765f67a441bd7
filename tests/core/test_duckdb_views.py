"""Views in DuckDB's SQL: a table's columns folded by DuckDB, without Spark."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest

from driftline.core.columns.siblings import FieldMerger
from driftline.core.schema.naming import mark
from driftline.core.schema.text import parse_type
from driftline.core.schema.types import JSON, Field, Schema, Struct
from driftline.operations.view_query import select_list
from driftline.runtime.duckdb import alone
from driftline.sql.duckdb import in_duckdb
from driftline.sql.fold import Fold

# The columns of a field in DuckDB's types and in ours, the values of a row, and what the view has.
FOLDED: list[tuple[dict[str, tuple[str, str]], dict[str, str], Any]] = [
    ({"a": ("BIGINT", "long"), "a_double": ("DOUBLE", "double")}, {"a": "7"}, 7.0),
    ({"a": ("BIGINT", "long"), "a_double": ("DOUBLE", "double")}, {"a": f"{2**53 + 1}"}, 2.0**53),
    ({"a": ("BIGINT", "long"), "a_string": ("VARCHAR", "string")}, {"a": "7"}, "7"),
    ({"a": ("DOUBLE", "double"), "a_string": ("VARCHAR", "string")}, {"a": "7.0"}, "7"),
    ({"a": ("DOUBLE", "double"), "a_string": ("VARCHAR", "string")}, {"a": "-0.0::DOUBLE"}, "-0.0"),
    ({"a": ("DECIMAL(9,2)", "decimal(9,2)"), "a_string": ("VARCHAR", "string")}, {"a": "4.50"}, "4.5"),
    ({"a": ("DATE", "date"), "a_string": ("VARCHAR", "string")}, {"a": "'2024-01-02'"}, "2024-01-02"),
    ({"a": ("TINYINT", "tinyint"), "a_long": ("BIGINT", "long")}, {"a": "-7"}, -7),
    ({"a": ("UBIGINT", "ubigint"), "a_string": ("VARCHAR", "string")}, {"a": f"{2**64 - 1}"}, f"{2**64 - 1}"),
    ({"a": ("JSON", "json"), "a_string": ("VARCHAR", "string")}, {"a": "'[1]'"}, "[1]"),
    (
        {"a": ("TIMESTAMPTZ", "timestamptz"), "a_string": ("VARCHAR", "string")},
        {"a": "'2024-01-01 00:00:00.5+00'"},
        "2024-01-01T00:00:00.5Z",
    ),
    ({"a": ("TIMESTAMP", "timestamp_ntz"), "a_long": ("BIGINT", "long")}, {"a": "'1970-01-01 00:00:01'"}, 1000),
    # Half a millisecond before 1970: a view shows the unit before.
    (
        {"a": ("TIMESTAMP", "timestamp_ntz"), "a_long": ("BIGINT", "long")},
        {"a": "'1969-12-31 23:59:59.9995'"},
        -1,
    ),
    ({"a": ("BLOB", "binary"), "a_string": ("VARCHAR", "string")}, {"a_string": "'é'"}, "é".encode()),
    ({"a": ("BIGINT[]", "list<long>"), "a_string": ("VARCHAR", "string")}, {"a_string": "'x'"}, ["x"]),
    (
        {"a": ("BIGINT[]", "list<long>"), "a_array_string": ("VARCHAR[]", "list<string>")},
        {"a": "[1, NULL]", "a_array_string": "[NULL, 'x']"},
        ["1", "x"],
    ),
    (
        {"a": ("MAP(VARCHAR, BIGINT)", "map<string, long>"), "a_map_string": ("MAP(VARCHAR, VARCHAR)", "map<string, string>")},
        {"a": "MAP {'k': 1}", "a_map_string": "MAP {'j': 'x'}"},
        {"j": "x", "k": "1"},
    ),
    (
        {"a": ("STRUCT(b TIMESTAMPTZ, c BLOB, d INTEGER)", "struct<b: timestamptz, c: binary, d: int>"), "a_string": ("VARCHAR", "string")},
        {"a": "{'b': '2024-01-01 00:00:00.000006+00', 'c': '\\xff'::BLOB, 'd': NULL}"},
        '{"b":"2024-01-01T00:00:00.000006Z","c":"/w=="}',
    ),
]  # fmt: skip


def folded(columns: dict[str, tuple[str, str]], values: dict[str, str]) -> Any:
    """The value of the only field in the view of a table with a row of these values."""
    fields = [
        Field(name, JSON if ours == "json" else parse_type(ours), i, doc=None if name == "a" else mark("a"))
        for i, (name, (_, ours)) in enumerate(columns.items(), 1)
    ]
    schema = Schema(Struct(tuple(fields)))
    one = FieldMerger().record([schema.struct])
    select = in_duckdb(select_list(Fold(near=True, duckdb=True), schema, one))
    with alone() as connection:
        connection.execute("SET TimeZone = 'Asia/Tokyo'")
        made = ", ".join(f"{name} {type_}" for name, (type_, _) in columns.items())
        connection.execute(f"CREATE TABLE t ({made})")
        given = ", ".join(f"{value} AS {name}" for name, value in values.items())
        connection.execute(f"INSERT INTO t BY NAME SELECT {given}")
        connection.execute(f"CREATE VIEW v AS {select} FROM t")
        ((value,),) = connection.execute("FROM v").fetchall()
    return value


@pytest.mark.parametrize(("columns", "values", "expected"), FOLDED)
def test_duckdb_folds_columns_as_spark_does(
    columns: dict[str, tuple[str, str]], values: dict[str, str], expected: Any
) -> None:
    assert folded(columns, values) == expected


def test_a_duckdb_alone_prints_no_progress_where_main_has_no_file() -> None:
    code = "from driftline.runtime.duckdb import alone\nwith alone() as c: c.sql(\"SELECT current_setting('enable_progress_bar')\").show()"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "false" in run.stdout
