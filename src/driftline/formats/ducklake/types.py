"""DuckLake's types, defaults and column rows, mapped to driftline's exactly or not at all.

The tables are literal; docs/ducklake.md prints them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from driftline.core.changes.defaults import defaults_of
from driftline.core.changes.values import Literal
from driftline.core.schema.naming import caseless
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
    Default,
    Expression,
    Field,
    List,
    Map,
    Path,
    Primitive,
    Schema,
    Struct,
    Type,
    children,
    decimal,
    dotted,
    without_types,
)
from driftline.errors import DataError
from driftline.runtime.duckdb import literal as sql_text
from driftline.runtime.spark_version import reads_uuids
from driftline.sql.quoting import literal

if TYPE_CHECKING:
    from driftline.formats.ducklake.catalog import Connection


@dataclass(frozen=True, slots=True)
class DuckLakeType:
    """One of DuckLake's types: how each engine has it.

    Args:
        duckdb: DuckDB's name.
        ours: the driftline type that is written and read as this one.
        spark: the Spark type, as DDL, that holds all of its values.
        held_as: another of DuckLake's types, in which Spark holds all of its values. A value of a batch goes
            there if it is exact; any other gets a column beside.
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
    # Values of JSON alone: a text of a typed source may be JSON or a string, and nothing says which.
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


COMMENT = "comment"  # the tag that DuckDB shows as a column's comment


@dataclass(frozen=True, slots=True)
class ColumnRow:
    """One row of ``ducklake_column``."""

    id: int
    order: int
    name: str
    type: str
    parent: int | None = None
    nullable: bool = True
    initial_default: str | None = None
    default: str | None = None
    default_type: str = ""
    dialect: str = "duckdb"


def schema_of(rows: Iterable[ColumnRow], docs: Mapping[int, str]) -> Schema:
    """The schema that the rows describe; ``docs`` by column id."""
    children_of: dict[int | None, list[ColumnRow]] = {}
    for row in sorted(rows, key=lambda r: (r.order, r.id)):
        children_of.setdefault(row.parent, []).append(row)

    def field(row: ColumnRow) -> Field:
        """The field of a row; a nested one is never required."""
        type_ = nested(row)
        # DuckDB sets NOT NULL of nested fields at random, and does not enforce it.
        required = not row.nullable and row.parent is None
        initial = write = None
        if isinstance(type_, Primitive):
            initial = from_text(row.initial_default, type_)
            write = write_default(row.default, row.default_type, row.dialect, type_)
        return Field(row.name, type_, row.id, required, docs.get(row.id), initial, write)

    def nested(row: ColumnRow) -> Type:
        """The type of a row, with the rows below it."""
        nested_rows = children_of.get(row.id, [])
        match row.type.lower():
            case "struct":
                return Struct(tuple(field(child) for child in nested_rows))
            case "list":
                (element,) = nested_rows
                return List(nested(element), element.id)
            case "map":
                key, value = sorted(nested_rows, key=lambda child: child.name != "key")
                return Map(nested(key), nested(value), key.id, value.id)
            case text:
                return read_type(text)

    return Schema(Struct(tuple(field(row) for row in children_of.get(None, []))))


def rows_of(schema: Schema, before: Schema, current_rows: Sequence[ColumnRow], table: str) -> list[ColumnRow]:
    """The rows that describe ``schema``; those that did not change since ``before`` are those of
    ``current_rows``.

    Raises DataError for a schema that DuckLake cannot have: a type, a promotion that loses values, a name
    twice.
    """
    rows = {row.id: row for row in current_rows}
    fields = {f.id: f for _, f in before.walk()}
    out: list[ColumnRow] = []

    def add(type_: Type, path: Path, parent: int | None) -> None:
        """Append the rows of the fields inside a type."""
        nested_fields = children(type_)
        _unique(nested_fields, fields, path, table)
        orders = _orders([f.id for f in nested_fields], rows)
        for child, order in zip(nested_fields, orders, strict=True):
            child_path = (*path, child.name)
            where = f"{table}: {dotted(child_path)}"
            out.append(_row(child, fields.get(child.id), rows.get(child.id), order, parent, where))
            add(child.type, child_path, child.id)

    add(schema.struct, (), None)
    return out


def _row(
    field: Field, old: Field | None, current: ColumnRow | None, order: int, parent: int | None, where: str
) -> ColumnRow:
    type_ = _kind(field.type, where)
    top = parent is None
    if current is None or old is None:
        plain = isinstance(field.type, Primitive)
        return ColumnRow(
            field.id,
            order,
            field.name,
            type_,
            parent,
            not (field.required and top),
            to_text(field.initial_default, field.type, where),
            to_text(field.write_default, field.type, where) or "NULL",
            _default_type(field.write_default) if plain else "",
        )
    if type_ != _kind(old.type, where) and not promotes(current.type.lower(), type_):
        raise DataError(
            f"{where}: a DuckLake column of type {current.type} cannot become {type_} without loss",
            hint="see docs/ducklake.md for the promotions",
        )
    row = replace(current, name=field.name, order=order, parent=parent)
    if type_ != _kind(old.type, where):
        row = replace(row, type=type_)
    if top:
        row = replace(row, nullable=not field.required)
    if field.write_default != old.write_default:
        row = replace(
            row,
            default=to_text(field.write_default, field.type, where) or "NULL",
            default_type=_default_type(field.write_default),
        )
    return row


def _default_type(default: Default) -> str:
    return "expression" if isinstance(default, Expression) else "literal"


def _kind(type_: Type, where: str) -> str:
    match type_:
        case Struct():
            return "struct"
        case List():
            return "list"
        case Map():
            return "map"
        case Primitive():
            return write_type(type_, where)


def _orders(ids: list[int], rows: Mapping[int, ColumnRow]) -> list[int]:
    """A position for each sibling: its present one if they are still in that order; new ones come last."""
    positions = [rows[i].order if i in rows else i for i in ids]
    return positions if positions == sorted(positions) else sorted(positions)


def _unique(fields: Sequence[Field], before: Mapping[int, Field], path: Path, table: str) -> None:
    """Check that no new name repeats another; existing duplicates may stay."""
    by_name: dict[str, Field] = {}
    for field in fields:
        twin = by_name.setdefault(caseless(field.name), field)
        as_before = all(f.id in before and before[f.id].name == f.name for f in (field, twin))
        if twin is not field and not as_before:
            raise DataError(
                f"{table}: {dotted((*path, field.name))} and {dotted((*path, twin.name))} differ only in case",
                hint="engines treat them as one name: rename one of them",
            )
