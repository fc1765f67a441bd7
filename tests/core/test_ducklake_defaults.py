"""Defaults that DuckDB has and Iceberg has not: expressions, and values in other words than their own."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from driftline.convert.converter import default_of
from driftline.core.changes import SetDefault, diff
from driftline.core.changes.defaults import literal_of
from driftline.core.schema.schema_json import to_json
from driftline.core.schema.types import Expression, Field, Schema, Struct
from driftline.errors import DataError
from driftline.formats.ducklake.new_values import values_of, with_values
from driftline.formats.ducklake.types import ColumnRow, read_type, rows_of, schema_of, to_text, write_default


def schema(type_: str, sql: str, dialect: str = "duckdb") -> Schema:
    return schema_of([ColumnRow(1, 1, "k", type_, None, True, None, sql, "expression", dialect)], {})


@pytest.mark.parametrize(
    ("type_", "sql", "value"),
    [
        ("int32", "(1 + 2)", 3),
        ("int8", "(1 + 1)", 2),
        ("varchar", "upper('null')", "NULL"),
        ("blob", "CAST('\\x00\\xff' AS \"BLOB\")", "00ff"),
        ("boolean", "(1 = 1)", True),
        ("decimal(9,2)", "(1.005 * 2)", "2.01"),
        ("timestamptz", "CAST('2026-01-01 00:00:00+02' AS TIMESTAMPTZ)", "2025-12-31T22:00:00+00:00"),
        ("timestamptz", "CAST('2026-01-01 00:00:00' AS TIMESTAMPTZ)", "2025-12-31T15:00:00+00:00"),
        ("timestamp", "TIMESTAMP '2026-01-01 00:00:00'", "2026-01-01T00:00:00"),
        ("interval", "to_days(3)", "3 days"),
        ("int128", "(2::HUGEINT * 9223372036854775807)", "18446744073709551614"),
        ("int32", '"nullif"(1, 1)', None),
        ("uuid", "uuid()", Expression("uuid()", "spark")),
        ("float64", "random()", Expression("rand()", "spark")),
    ],
)
def test_an_expression_has_a_value(type_: str, sql: str, value: object) -> None:
    assert values_of(schema(type_, sql), "Asia/Tokyo") == {1: value}


def test_today_is_that_of_the_session() -> None:
    value = values_of(schema("date", "current_date"), "Asia/Tokyo")[1]
    tokyo = datetime.now(UTC) + timedelta(hours=9)
    assert value in {str(tokyo.date()), str((tokyo - timedelta(minutes=5)).date())}


@pytest.mark.parametrize(
    "sql",
    [
        "(2 * random())",  # another for each row
        "lk.s.mm(2)",  # a macro of the lake
        "1 +",
        "1); CREATE TABLE other (i INTEGER",
        "(SELECT content FROM read_text('{file}'))",
        "getenv('HOME')",
    ],
)
def test_what_has_no_value_stays_an_expression(sql: str, tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("secret")
    found = schema("varchar", sql.format(file=secret))
    assert values_of(found, "UTC") == {}
    (column,) = with_values(found, {}).struct.fields
    assert default_of(column, 0).to_pylist() == []
    with pytest.raises(DataError, match="which gives no value here"):
        default_of(column, 1)


def test_another_engines_expression_is_not_computed() -> None:
    assert values_of(schema("int32", "(1 + 2)", "postgres"), "UTC") == {}


@pytest.mark.parametrize(
    ("type_", "text", "value"),
    [
        ("boolean", "true", True),
        ("boolean", "yes", Expression("'yes'", "duckdb")),
        ("int32", "7", 7),
        ("int32", "1.5", Expression("'1.5'", "duckdb")),
        ("date", "2026-1-2", Expression("'2026-1-2'", "duckdb")),
        ("timestamptz", "2026-01-02 03:04:05+02", "2026-01-02T03:04:05+02:00"),
        ("blob", "a\\x00", "6100"),
        ("varchar", "it's", "it's"),
        ("varchar", "NULL", None),
    ],
)
def test_a_literal_is_its_value_or_duckdbs(type_: str, text: str, value: object) -> None:
    assert write_default(text, "literal", "duckdb", read_type(type_)) == value


def test_a_blob_is_text_for_duckdb() -> None:
    assert to_text("6100ff", read_type("blob"), "t.a") == r"\x61\x00\xff"


def test_an_expression_comes_and_goes_as_one() -> None:
    before = schema("int32", "(1 + 2)")
    (row,) = rows_of(before, Schema(), [], "s.t")
    assert (row.default, row.default_type) == ("(1 + 2)", "expression")
    after = Schema(Struct((Field("k", before.struct.fields[0].type, 1),)))
    (dropped,) = rows_of(after, before, [row], "s.t")
    assert (dropped.default, dropped.default_type) == ("NULL", "literal")
    (back,) = rows_of(before, after, [dropped], "s.t")
    assert back == row
    assert diff(after, before) == (SetDefault(("k",), Expression("(1 + 2)", "duckdb")),)
    assert to_json(before)["fields"][0]["write-default-expression"] == "(1 + 2)"


def test_a_default_is_kept_as_what_it_is() -> None:
    expression = Expression("now()", "duckdb")
    assert literal_of(read_type("timestamp"), expression) == expression
