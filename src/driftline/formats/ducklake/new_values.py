"""Computes the defaults of columns that are expressions, for the rows of one batch."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from driftline.core.schema.types import Default, Expression, Field, Primitive, Schema, Struct
from driftline.errors import DataError
from driftline.formats.ducklake.types import duckdb_name, value_of, write_type
from driftline.runtime.duckdb import literal

if TYPE_CHECKING:
    import duckdb

_ROWS = 1000  # of which each must have the same value
# The SQL is of whoever may write to the catalog: it sees no file, no network and nothing of this process.
_ALONE: dict[str, str | bool | int | float | list[str]] = {
    "enable_external_access": "false",
    "autoinstall_known_extensions": "false",
    "autoload_known_extensions": "false",
}


# What is another value for each row, in Spark's words.
_EACH_ROW = {"uuid()": "uuid()", "gen_random_uuid()": "uuid()", "uuidv4()": "uuid()", "random()": "rand()"}


def values_of(schema: Schema, zone: str) -> dict[int, Default]:
    """Compute the defaults that are expressions, by column id.

    Left out are those without a value that all rows share and without an expression in Spark. ``zone``:
    whose day it is.
    """
    import duckdb

    computed = [f for _, f in schema.walk() if isinstance(f.write_default, Expression)]
    if not computed:
        return {}
    out: dict[int, Default] = {}
    with duckdb.connect(config=_ALONE) as connection:
        for field in computed:
            try:
                values = _values(connection, field, zone)
            except (duckdb.Error, DataError):
                continue
            if len(values) == 1:
                out[field.id] = values[0]
    return out


def _values(connection: duckdb.DuckDBPyConnection, field: Field, zone: str) -> list[Default]:
    """Return the values that new rows have."""
    expression, type_ = field.write_default, field.type
    assert isinstance(expression, Expression)
    if expression.dialect == "duckdb" and (spark := _EACH_ROW.get(expression.sql.lower())):
        return [Expression(spark, "spark")]
    if expression.dialect != "duckdb" or not isinstance(type_, Primitive) or type_.name == "duckdb_variant":
        return []
    kind = duckdb_name(write_type(type_, field.name))
    # Spark knows few of DuckDB's functions, so an expression is computed here, once for each batch. Only one
    # that gives all rows the same value can stand for new rows.
    statement = f"CREATE OR REPLACE TABLE made (i INTEGER, x {kind} DEFAULT {expression.sql})"
    # A text that ends the statement would have DuckDB run another one.
    if len(connection.extract_statements(statement)) != 1:
        return []
    # A day begins by the person's zone; the moments are then printed in UTC.
    connection.execute(f"SET TimeZone = {literal(zone)}")
    connection.execute(statement)
    connection.execute(f"INSERT INTO made (i) SELECT range FROM range({_ROWS})")
    connection.execute("SET TimeZone = 'UTC'")
    rows = connection.execute("SELECT DISTINCT CAST(x AS VARCHAR) FROM made").fetchall()
    return [None if text is None else value_of(text, type_) for (text,) in rows]


def with_values(schema: Schema, values: dict[int, Default]) -> Schema:
    """Put these defaults in place of expressions, which columns have, never fields in them."""
    if not values:
        return schema
    fields = (replace(f, write_default=values[f.id]) if f.id in values else f for f in schema.struct.fields)
    return replace(schema, struct=Struct(tuple(fields)))
