"""Defaults of columns: DuckLake keeps them as DuckDB prints them, a schema as Iceberg's JSON writes them."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from driftline.core.changes.defaults import defaults_of
from driftline.core.changes.values import Literal
from driftline.core.types import Default, Field, Primitive, Schema, Struct, Type
from driftline.errors import DataError
from driftline.formats.ducklake.types import READ, read_type, spark_name
from driftline.route.sql import literal

if TYPE_CHECKING:
    from driftline.formats.ducklake.catalog import Connection

_WHOLE = ("int", "long", *(name for name in READ if "int" in name))


def from_text(text: str | None, type_: Primitive) -> Default:
    """DuckLake's text of a default as a value; None where there is none.

    >>> from driftline.core.types import LONG, TIMESTAMP
    >>> from_text("5", LONG), from_text("2026-01-02 03:04:05+00", TIMESTAMP)
    (5, '2026-01-02T03:04:05+00:00')
    """
    if text is None or text == "NULL":
        return None
    match type_.name:
        case "boolean":
            return text.lower() in ("true", "t", "1")
        case name if name in _WHOLE:
            return int(text)
        case "float" | "double":
            return float(text)
        case "timestamp" | "timestamp_ntz":
            return re.sub(r"([+-]\d\d)$", r"\1:00", text.replace(" ", "T", 1))
        case "binary":
            return None  # read by its text, never written
        case _:
            return text


def to_text(value: Default, type_: Type, where: str) -> str | None:
    """A default as DuckLake keeps it; None where there is none. Raises DataError where it can keep none."""
    if value is None:
        return None
    if not isinstance(type_, Primitive) or type_.name == "binary" or value == "NULL":
        raise DataError(f"{where}: DuckLake has no such default: {value!r}", hint="leave the default out")
    match type_.name:
        case "boolean":
            return str(value).lower()
        case "timestamp":
            return re.sub(r"([+-]\d\d):00$", r"\1", str(value).replace("T", " ", 1))
        case "timestamp_ntz":
            return str(value).replace("T", " ", 1)
        case _:
            return str(value)


def to_sql(text: str, type_: Primitive, where: str) -> str:
    """DuckLake's text of a default as an expression of Spark's."""
    if type_.name == "binary":
        # \x00 escapes, as DuckDB prints a blob.
        raw = re.sub(r"\\x([0-9A-Fa-f]{2})", lambda m: chr(int(m[1], 16)), text).encode("latin-1")
        return f"X'{raw.hex()}'"
    spelled = spark_name(type_, where)
    if spelled == "timestamp" and not re.search(r"[+-]\d\d(:\d\d)?$|Z$", text):
        text += "+00"
    return f"cast({literal(text)} as {spelled})"


def defaults_ever(connection: Connection, table: int) -> dict[int, frozenset[Literal]]:
    """The defaults that each column of the table has had, by its id, as far as its snapshots are there."""
    rows = connection.rows(
        "SELECT column_id, column_type, initial_default, default_value FROM meta.ducklake_column WHERE table_id = ? "
        "AND (initial_default IS NOT NULL OR (default_value <> 'NULL' AND default_value_type = 'literal'))",
        [table],
    )
    fields = []
    for column, kind, initial, later in rows:
        type_ = read_type(str(kind))
        given = from_text(initial, type_), from_text(later, type_)
        fields.append(Field(str(column), type_, int(column), False, None, *given))
    return defaults_of([Schema(Struct(tuple(fields)))])
