"""Defaults of columns: DuckLake keeps them as DuckDB prints them, a schema as Iceberg's JSON writes them."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from driftline.core.changes.defaults import defaults_of
from driftline.core.changes.values import Literal
from driftline.core.schema.types import Default, Expression, Field, Primitive, Schema, Struct, Type
from driftline.errors import DataError
from driftline.formats.ducklake.types import TYPES, read_type, spark_name
from driftline.runtime.duckdb import literal as sql_text
from driftline.sql.quoting import literal

if TYPE_CHECKING:
    from driftline.formats.ducklake.catalog import Connection

_WHOLE = ("int", "long", *(name for name, type_ in TYPES.items() if "int" in name and not type_.refused))

_NUMBER, _MOMENT = r"-?\d+(\.\d+)?", r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d(\.\d{1,6})?"
# Text that means the same to DuckDB, to Spark and here.
_PLAIN = {
    "boolean": "true|false",
    "int": r"-?\d+",
    "float": _NUMBER,
    "double": _NUMBER,
    "decimal": _NUMBER,
    "date": r"\d{4}-\d\d-\d\d",
    "timestamp": _MOMENT + r"[+-]\d\d(:\d\d)?",
    "timestamp_ntz": _MOMENT,
}


def from_text(text: str | None, type_: Primitive) -> Default:
    """The value of DuckLake's text of a default; None if there is none.

    >>> from driftline.core.schema.types import LONG, TIMESTAMP
    >>> from_text("5", LONG), from_text("2026-01-02 03:04:05+00", TIMESTAMP)
    (5, '2026-01-02T03:04:05+00:00')
    """
    return None if text is None or text == "NULL" else value_of(text, type_)


def write_default(text: str | None, kind: str | None, dialect: str | None, type_: Primitive) -> Default:
    """The default of new rows: a value, or a DuckDB expression, which includes values in other dialects.

    ``text``, ``kind`` and ``dialect`` are the catalog's; ``type_`` is the column's.
    """
    if text is None or (text == "NULL" and kind != "expression"):
        return None
    if kind == "expression":
        return Expression(text, dialect or "")
    plain = _PLAIN.get("int" if type_.name in _WHOLE else type_.name)
    return (
        value_of(text, type_)
        if not plain or re.fullmatch(plain, text)
        else Expression(sql_text(text), "duckdb")
    )


def value_of(text: str, type_: Primitive) -> Default:
    """DuckDB's text of a value as a default.

    >>> from driftline.core.schema.types import BINARY
    >>> value_of("a\\\\x00", BINARY)
    '6100'
    """
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
            return _bytes(text).hex()
        case _:
            return text


def to_text(value: Default, type_: Type, where: str) -> str | None:
    """DuckLake's form of a default; None if there is none. Raises DataError if DuckLake cannot keep it."""
    if value is None:
        return None
    if not isinstance(type_, Primitive) or value == "NULL":
        raise DataError(f"{where}: DuckLake has no such default: {value!r}", hint="leave out the default")
    if isinstance(value, Expression):
        return value.sql
    match type_.name:
        case "boolean":
            return str(value).lower()
        case "binary":
            return re.sub("(..)", r"\\x\1", str(value))
        case "timestamp":
            return re.sub(r"([+-]\d\d):00$", r"\1", str(value).replace("T", " ", 1))
        case "timestamp_ntz":
            return str(value).replace("T", " ", 1)
        case _:
            return str(value)


def to_sql(text: str, type_: Primitive, where: str) -> str:
    """DuckLake's text of a default as an expression of Spark's."""
    if type_.name == "binary":
        return f"X'{_bytes(text).hex()}'"
    spelled = spark_name(type_, where)
    if spelled == "timestamp" and not re.search(r"[+-]\d\d(:\d\d)?$|Z$", text):
        text += "+00"
    return f"cast({literal(text)} as {spelled})"


def _bytes(text: str) -> bytes:
    """A blob as DuckDB prints it: with escapes as \\x00."""
    return re.sub(r"\\x([0-9A-Fa-f]{2})", lambda m: chr(int(m[1], 16)), text).encode("latin-1")


def defaults_ever(connection: Connection, table: int) -> dict[int, frozenset[Literal]]:
    """The defaults that columns of the table have had in its known snapshots, by column id."""
    rows = connection.rows(
        "SELECT column_id, column_type, initial_default, default_value, default_value_type, default_value_dialect FROM meta.ducklake_column WHERE table_id = ? "
        "AND (initial_default IS NOT NULL OR default_value <> 'NULL')",
        [table],
    )
    fields = []
    for column, kind, initial, later, sort, dialect in rows:
        type_ = read_type(str(kind))
        defaults = from_text(initial, type_), write_default(later, sort, dialect, type_)
        fields.append(Field(str(column), type_, int(column), False, None, *defaults))
    return defaults_of([Schema(Struct(tuple(fields)))])
