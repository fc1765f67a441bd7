"""DuckLake's types and ours: mapped exactly, or not at all. The tables
are literal; docs/ducklake.md prints them.
"""

from __future__ import annotations

import re
from dataclasses import replace

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
    List,
    Map,
    Primitive,
    Schema,
    Struct,
    Type,
    decimal,
)
from driftline.errors import DataError

# Written and read.
BOTH: dict[str, Primitive] = {
    "boolean": BOOLEAN,
    "int32": INT,
    "int64": LONG,
    "float32": FLOAT,
    "float64": DOUBLE,
    "date": DATE,
    "timestamp": TIMESTAMP_NTZ,
    "timestamptz": TIMESTAMP,
    "varchar": STRING,
    "blob": BINARY,
}
SYNONYMS = {"timestamp_us": "timestamp"}
# DuckLake's types whose names ours have too, though they are not the same thing to Spark.
OTHER = {
    name: f"duckdb_{name}" for name in ("uuid", "time", "variant", "timestamp_ns", "geometry", "unknown")
}

# Read only: what Spark holds all of their values in. Ours have nothing of the kind, so that no value of a
# batch goes there: it gets a column beside.
READ: dict[str, str] = {
    "int8": "tinyint",
    "int16": "smallint",
    "uint8": "smallint",
    "uint16": "int",
    "uint32": "bigint",
    "uint64": "decimal(20,0)",
    "timestamp_s": "timestamp_ntz",
    "timestamp_ms": "timestamp_ntz",
    "json": "string",
    "uuid": "string",
}

# Neither: why.
REFUSED: dict[str, str] = {
    "int128": "its files hold doubles, which are not exact",
    "uint128": "its files hold doubles, which are not exact",
    "time": "Spark's Parquet reader has no type for it",
    "time_ns": "Spark has no type for it",
    "timetz": "Spark has no type for it",
    "timestamp_ns": "Spark's timestamps have microseconds",
    "interval": "Spark has no type that holds months, days and microseconds together",
    "variant": "Spark and DuckDB write it differently",
    "geometry": "Spark has no type for it",
    "unknown": "it has no values",
}

# Ours that DuckLake has no type for.
UNWRITTEN: dict[str, str] = {
    "unknown": "it has no values",
    "time": "Spark's Parquet writer has no type for it",
    "uuid": "Spark writes it as text, DuckLake's files hold 16 bytes",
    "fixed": "DuckLake's blob has no length",
    "variant": "Spark and DuckDB write it differently",
}

# The promotions of DuckLake's documentation, and decimals of one scale; DuckDB takes more, which lose values.
PROMOTIONS: dict[str, tuple[str, ...]] = {
    "int8": ("int16", "int32", "int64"),
    "int16": ("int32", "int64"),
    "int32": ("int64",),
    "uint8": ("uint16", "uint32", "uint64"),
    "uint16": ("uint32", "uint64"),
    "uint32": ("uint64",),
    "float32": ("float64",),
}

_DECIMAL = re.compile(r"decimal\((\d+),\s*(\d+)\)")
_NAMES = {ours: theirs for theirs, ours in BOTH.items()}
_THEIRS = {ours: theirs for theirs, ours in OTHER.items()} | {name: name for name in (*READ, *REFUSED)}


def read_type(text: str) -> Primitive:
    """The driftline type for one of DuckLake's; a type of its own name if it is only read, or not at all.

    >>> read_type("decimal(9,2)"), read_type("uint8")
    (Primitive(name='decimal', args=(9, 2)), Primitive(name='uint8', args=()))
    """
    text = SYNONYMS.get(text.lower(), text.lower())
    if match := _DECIMAL.fullmatch(text):
        return decimal(int(match[1]), int(match[2]))
    return BOTH.get(text) or Primitive(OTHER.get(text, text))


def write_type(type_: Primitive, where: str) -> str:
    """DuckLake's type for one of ours.

    >>> write_type(decimal(38, 0), "a"), write_type(TIMESTAMP, "a"), write_type(read_type("uuid"), "a")
    ('decimal(38,0)', 'timestamptz', 'uuid')

    Raises DataError, which names ``where``, for a type that DuckLake cannot hold exactly.
    """
    if type_.name == "decimal":
        return f"decimal({type_.args[0]},{type_.args[1]})"
    if type_ in _NAMES:
        return _NAMES[type_]
    if type_.name in UNWRITTEN or type_.name not in _THEIRS:
        raise DataError(
            f"{where}: a DuckLake table has no column of type {type_}: {UNWRITTEN.get(type_.name, 'unknown to it')}",
            hint="docs/ducklake.md lists the types that it has",
        )
    return _THEIRS[type_.name]


def spark_name(type_: Primitive, where: str) -> str:
    """The Spark type, as DDL, that holds DuckLake's values of this type.

    Raises DataError if there is none.
    """
    if type_.name == "decimal":
        return f"decimal({type_.args[0]},{type_.args[1]})"
    if type_ in _NAMES:
        return "bigint" if type_ == LONG else type_.name
    theirs = _THEIRS.get(type_.name, type_.name)
    if theirs not in READ:
        raise DataError(
            f"{where}: Spark cannot read DuckLake's {theirs}: {REFUSED.get(theirs, 'unknown to it')}",
            hint="change the column's type with DuckDB, or read the table with it",
        )
    return READ[theirs]


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

    >>> from driftline.core.schema.types import Field
    >>> text, time = Field("a", STRING, 1), Field("b", read_type("time"), 2)
    >>> columns = (text, time, Field("c", List(time.type), 3), Field("d", Struct((text, time)), 4))
    >>> str(readable(Schema(Struct(columns))).struct)
    'struct<a: string, d: struct<a: string>>'
    """

    def of(type_: Type) -> Type | None:
        """The type without unreadable parts; None if nothing is left."""
        match type_:
            case Struct(fields):
                inside = tuple(replace(f, type=inner) for f in fields if (inner := of(f.type)) is not None)
                return Struct(inside) if inside or not fields else None
            case List(element):
                inner = of(element)
                return None if inner is None else replace(type_, element=inner)
            case Map(key, value):
                one, other = of(key), of(value)
                return None if one is None or other is None else replace(type_, key=one, value=other)
            case Primitive():
                return None if why_unreadable(type_) else type_

    struct = of(schema.struct)
    assert isinstance(struct, Struct | None)
    return replace(schema, struct=struct or Struct())


def why_unreadable(type_: Primitive) -> str | None:
    """The reason Spark cannot read the type; None if it can."""
    return REFUSED.get(_THEIRS.get(type_.name, type_.name))


def promotes(old: str, new: str) -> bool:
    """True if a column of DuckLake's type ``old`` may become ``new`` without loss.

    >>> promotes("int32", "int64"), promotes("int64", "float64"), promotes("decimal(9,2)", "decimal(18,2)")
    (True, False, True)
    """
    before, after = _DECIMAL.fullmatch(old), _DECIMAL.fullmatch(new)
    if before and after:
        return before[2] == after[2] and int(after[1]) >= int(before[1])
    return new in PROMOTIONS.get(old, ())
