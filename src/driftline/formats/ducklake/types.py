"""DuckLake's types and ours: mapped exactly, or not at all. The tables
are literal; docs/ducklake.md prints them.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from driftline.core.schema.types import (
    BINARY,
    BOOLEAN,
    DATE,
    DOUBLE,
    FLOAT,
    INT,
    LONG,
    STRING,
    TIMESTAMP,
    TIMESTAMP_NTZ,
    Primitive,
    Schema,
    decimal,
    without_types,
)
from driftline.errors import DataError
from driftline.runtime.spark_version import reads_uuids


@dataclass(frozen=True, slots=True)
class DuckLakeType:
    """One of DuckLake's types: how each engine has it.

    Args:
        duckdb: DuckDB's name.
        ours: the driftline type that is written and read as this one.
        spark: the Spark type, as DDL, that holds all of its values.
        held_as: another of DuckLake's types, in which Spark holds all of its values. Ours have nothing of the
            kind, so that no value of a batch goes there: it gets a column beside.
        refused: why Spark cannot read it.
        promotions: what a column of it may become, by DuckLake's documentation; DuckDB takes more, which lose
            values.
        sqlite: how a SQLite catalog keeps its inlined values, where that is not as DuckDB.
        postgres: the same of a PostgreSQL catalog.
    """

    duckdb: str
    ours: Primitive | None = None
    spark: str = ""
    held_as: str = ""
    refused: str = ""
    promotions: tuple[str, ...] = ()
    sqlite: str = ""
    postgres: str = ""


TYPES: dict[str, DuckLakeType] = {
    "boolean": DuckLakeType("BOOLEAN", BOOLEAN, "boolean"),
    "int8": DuckLakeType(
        "TINYINT", spark="tinyint", promotions=("int16", "int32", "int64"), postgres="SMALLINT"
    ),
    "int16": DuckLakeType("SMALLINT", spark="smallint", promotions=("int32", "int64")),
    "int32": DuckLakeType("INTEGER", INT, "int", promotions=("int64",)),
    "int64": DuckLakeType("BIGINT", LONG, "bigint"),
    "int128": DuckLakeType(
        "HUGEINT", refused="its files hold doubles, which are not exact", postgres="VARCHAR"
    ),
    "uint8": DuckLakeType(
        "UTINYINT", held_as="int16", promotions=("uint16", "uint32", "uint64"), postgres="INTEGER"
    ),
    "uint16": DuckLakeType("USMALLINT", held_as="int32", promotions=("uint32", "uint64"), postgres="INTEGER"),
    "uint32": DuckLakeType("UINTEGER", held_as="int64", promotions=("uint64",), postgres="BIGINT"),
    "uint64": DuckLakeType("UBIGINT", held_as="decimal(20,0)", postgres="VARCHAR"),
    "uint128": DuckLakeType(
        "UHUGEINT", refused="its files hold doubles, which are not exact", postgres="VARCHAR"
    ),
    "float32": DuckLakeType(
        "FLOAT", FLOAT, "float", promotions=("float64",), sqlite="VARCHAR", postgres="REAL"
    ),
    "float64": DuckLakeType("DOUBLE", DOUBLE, "double", sqlite="VARCHAR", postgres="DOUBLE PRECISION"),
    "date": DuckLakeType("DATE", DATE, "date", postgres="VARCHAR"),
    "time": DuckLakeType("TIME", refused="Spark's Parquet reader has no type for it"),
    "time_ns": DuckLakeType("TIME_NS", refused="Spark has no type for it"),
    "timetz": DuckLakeType("TIMETZ", refused="Spark has no type for it"),
    "timestamp": DuckLakeType("TIMESTAMP", TIMESTAMP_NTZ, "timestamp_ntz", postgres="VARCHAR"),
    "timestamptz": DuckLakeType(
        "TIMESTAMPTZ", TIMESTAMP, "timestamp", sqlite="TIMESTAMP WITH TIME ZONE", postgres="VARCHAR"
    ),
    "timestamp_s": DuckLakeType("TIMESTAMP_S", held_as="timestamp", postgres="VARCHAR"),
    "timestamp_ms": DuckLakeType("TIMESTAMP_MS", held_as="timestamp", postgres="VARCHAR"),
    "timestamp_ns": DuckLakeType(
        "TIMESTAMP_NS", refused="Spark's timestamps have microseconds", postgres="VARCHAR"
    ),
    "interval": DuckLakeType(
        "INTERVAL", refused="Spark has no type that holds months, days and microseconds together"
    ),
    "varchar": DuckLakeType("VARCHAR", STRING, "string", postgres="BYTEA"),
    "blob": DuckLakeType("BLOB", BINARY, "binary", postgres="BYTEA"),
    "json": DuckLakeType("JSON", held_as="varchar", postgres="BYTEA"),
    "uuid": DuckLakeType("UUID", held_as="varchar"),
    "variant": DuckLakeType("VARIANT", refused="Spark and DuckDB write it differently"),
    "geometry": DuckLakeType("GEOMETRY", refused="Spark has no type for it"),
    "unknown": DuckLakeType("UNKNOWN", refused="it has no values"),
}
SYNONYMS = {"timestamp_us": "timestamp"}

# Ours that DuckLake has no type for.
UNWRITTEN: dict[str, str] = {
    "unknown": "it has no values",
    "time": "Spark's Parquet writer has no type for it",
    "uuid": "Spark writes it as text, DuckLake's files hold 16 bytes",
    "fixed": "DuckLake's blob has no length",
    "variant": "Spark and DuckDB write it differently",
}

_DECIMAL = re.compile(r"decimal\((\d+),\s*(\d+)\)")
_BY_OURS = {type_.ours: name for name, type_ in TYPES.items() if type_.ours is not None}
# DuckLake's types whose names ours have too, though they are not the same thing to Spark.
_OTHER = {
    name: f"duckdb_{name}" for name in ("uuid", "time", "variant", "timestamp_ns", "geometry", "unknown")
}
# Those without a type of ours, by the names that a schema has for them.
_FOREIGN = {ours: theirs for theirs, ours in _OTHER.items()} | {
    name: name for name, type_ in TYPES.items() if type_.ours is None
}


def read_type(text: str) -> Primitive:
    """The driftline type for one of DuckLake's; a type of its own name if it is only read, or not at all.

    >>> read_type("decimal(9,2)"), read_type("uint8")
    (Primitive(name='decimal', args=(9, 2)), Primitive(name='uint8', args=()))
    """
    text = SYNONYMS.get(text.lower(), text.lower())
    if match := _DECIMAL.fullmatch(text):
        return decimal(int(match[1]), int(match[2]))
    entry = TYPES.get(text)
    return (entry and entry.ours) or Primitive(_OTHER.get(text, text))


def write_type(type_: Primitive, where: str) -> str:
    """DuckLake's type for one of ours.

    >>> write_type(decimal(38, 0), "a"), write_type(TIMESTAMP, "a"), write_type(read_type("uuid"), "a")
    ('decimal(38,0)', 'timestamptz', 'uuid')

    Raises DataError, which names ``where``, for a type that DuckLake cannot hold exactly.
    """
    if type_.name == "decimal":
        return f"decimal({type_.args[0]},{type_.args[1]})"
    if type_ in _BY_OURS:
        return _BY_OURS[type_]
    if type_.name in UNWRITTEN or type_.name not in _FOREIGN:
        raise DataError(
            f"{where}: a DuckLake table has no column of type {type_}: {UNWRITTEN.get(type_.name, 'unknown to it')}",
            hint="see docs/ducklake.md for its types",
        )
    return _FOREIGN[type_.name]


def spark_name(type_: Primitive, where: str) -> str:
    """The Spark type, as DDL, that holds DuckLake's values of this type.

    Raises DataError if there is none.
    """
    if type_.name == "decimal":
        return f"decimal({type_.args[0]},{type_.args[1]})"
    theirs = _theirs(type_)
    entry = TYPES.get(theirs)
    if why := "unknown to it" if entry is None else _refused(theirs, entry):
        raise DataError(
            f"{where}: Spark cannot read DuckLake's {theirs}: {why}",
            hint="change the column's type with DuckDB, or read the table with it",
        )
    assert entry is not None
    return entry.spark or spark_name(read_type(entry.held_as), where)


def _theirs(type_: Primitive) -> str:
    return _BY_OURS.get(type_) or _FOREIGN.get(type_.name, type_.name)


def written_as(type_: Primitive) -> str:
    """The Spark type, as DDL, in which a batch writes the column: text, which
    DuckDB casts, for what Spark cannot read.

    Nothing but null and the column's default goes there.

    >>> written_as(read_type("int128")), written_as(read_type("int8"))
    ('string', 'tinyint')
    """
    return "string" if why_unreadable(type_) else spark_name(type_, "")


def readable(schema: Schema) -> Schema:
    """The schema without what Spark cannot read, at any depth.

    >>> from driftline.core.schema.types import Field, List, Struct
    >>> text, time = Field("a", STRING, 1), Field("b", read_type("time"), 2)
    >>> columns = (text, time, Field("c", List(time.type), 3), Field("d", Struct((text, time)), 4))
    >>> str(readable(Schema(Struct(columns))).struct)
    'struct<a: string, d: struct<a: string>>'
    """
    return without_types(schema, lambda type_: why_unreadable(type_) is not None)


def why_unreadable(type_: Primitive) -> str | None:
    """The reason Spark cannot read the type; None if it can."""
    theirs = _theirs(type_)
    entry = TYPES.get(theirs)
    return (entry and _refused(theirs, entry)) or None


def _refused(theirs: str, entry: DuckLakeType) -> str:
    """The reason the Spark of this process cannot read the type; empty if it can."""
    if theirs == "uuid" and not reads_uuids():
        return "before version 4.0 its Parquet reader has no type for it"
    return entry.refused


def duckdb_name(name: str) -> str:
    """DuckDB's name of one of DuckLake's types without children.

    >>> duckdb_name("int8"), duckdb_name("timestamp_us"), duckdb_name("decimal(9,2)")
    ('TINYINT', 'TIMESTAMP', 'DECIMAL(9,2)')
    """
    entry = _known(name)
    return entry.duckdb if entry else name.upper()


def stored_name(name: str, kind: str) -> str:
    """The type in which a catalog of this kind keeps inlined values of one of DuckLake's types.

    >>> stored_name("int8", "postgres"), stored_name("int8", "sqlite")
    ('SMALLINT', 'TINYINT')
    """
    entry = _known(name)
    stored = "" if entry is None else entry.sqlite if kind == "sqlite" else entry.postgres
    return stored or duckdb_name(name)


def handed_over_as(name: str) -> str | None:
    """DuckDB's type in which Spark takes values over from it; None for their own.

    >>> handed_over_as("uint8"), handed_over_as("interval"), handed_over_as("int8")
    ('SMALLINT', 'VARCHAR', None)
    """
    entry = _known(name)
    if entry is None or not (entry.refused or entry.held_as):
        return None
    return duckdb_name(entry.held_as or "varchar")


def _known(name: str) -> DuckLakeType | None:
    return TYPES.get(SYNONYMS.get(name, name))


def promotes(old: str, new: str) -> bool:
    """True if a column of DuckLake's type ``old`` may become ``new`` without loss.

    >>> promotes("int32", "int64"), promotes("int64", "float64"), promotes("decimal(9,2)", "decimal(18,2)")
    (True, False, True)
    """
    before, after = _DECIMAL.fullmatch(old), _DECIMAL.fullmatch(new)
    if before and after:
        return before[2] == after[2] and int(after[1]) >= int(before[1])
    entry = TYPES.get(old)
    return entry is not None and new in entry.promotions
