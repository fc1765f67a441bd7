"""The Arrow types of table columns."""

from __future__ import annotations

import pyarrow as pa

from driftline.core.schema.types import (
    FRACTIONS,
    READ_AS_TEXT,
    Expression,
    Field,
    List,
    Map,
    Primitive,
    Schema,
    Struct,
    Type,
)

FIELD_ID = b"PARQUET:field_id"
_VARIANT = pa.struct(
    [
        pa.field("value", pa.binary(), nullable=False),
        # Spark's sign of a variant
        pa.field("metadata", pa.binary(), nullable=False, metadata={b"variant": b"true"}),
    ]
)

_PLAIN = {
    "boolean": pa.bool_(),
    "int": pa.int32(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "date": pa.date32(),
    "time": pa.time64("us"),
    "timestamp": pa.timestamp("us", "UTC"),
    "timestamp_ntz": pa.timestamp("us"),
    "string": pa.string(),
    "uuid": pa.binary(16),
    "binary": pa.binary(),
    "unknown": pa.null(),
}
# Types of DuckDB's tables: DuckDB reads wider numbers, too, but registers no such file.
_OF_DUCKDB = {
    "int8": pa.int8(),
    "int16": pa.int16(),
    "uint8": pa.uint8(),
    "uint16": pa.uint16(),
    "uint32": pa.uint32(),
    "uint64": pa.uint64(),
    **dict.fromkeys(FRACTIONS, pa.timestamp("us")),
    "duckdb_uuid": pa.binary(16),
    "json": pa.string(),
}
_ANNOTATED = {"duckdb_uuid": pa.uuid(), "json": pa.json_()}
# Nothing but null and the column's default goes there.
_READ_ONLY = {name: pa.string() for name in READ_AS_TEXT if name not in _OF_DUCKDB}


def arrow_schema(struct: Struct) -> pa.Schema:
    """The Arrow schema of a table's columns, with field ids in the form that Parquet's writers expect.

    >>> from driftline.core.schema.types import LONG
    >>> arrow_schema(Struct((Field("a", LONG, id=3),))).field("a").metadata
    {b'PARQUET:field_id': b'3'}
    """
    return pa.schema([arrow_field(f) for f in struct.fields])


def file_schema(struct: Struct) -> pa.Schema:
    """The Arrow schema of a file of these columns: DuckDB knows UUIDs and JSON by their annotation.

    >>> file_schema(Struct((Field("a", Primitive("json")),))).field("a").type
    JsonType(extension<arrow.json>)
    """
    return pa.schema([_annotated(arrow_field(f), f.type) for f in struct.fields])


def _annotated(field: pa.Field, type_: Type) -> pa.Field:
    match type_:
        case Struct(fields):
            pairs = zip(field.type, fields, strict=True)
            return field.with_type(pa.struct([_annotated(child, f.type) for child, f in pairs]))
        case List(element):
            return field.with_type(pa.list_(_annotated(field.type.value_field, element)))
        case Map(key, value):
            keys, items = field.type.key_field, field.type.item_field
            return field.with_type(pa.map_(_annotated(keys, key), _annotated(items, value)))
        case Primitive(name):
            return field.with_type(_ANNOTATED[name]) if name in _ANNOTATED else field


def arrow_field(field: Field) -> pa.Field:
    """A column, or a field of a struct, as an Arrow field that is nullable unless required."""
    return field_of(field, arrow_type(field.type))


def field_of(field: Field, type_: pa.DataType) -> pa.Field:
    """The Arrow field for a column whose Arrow type is known."""
    return _field(field.name, type_, field.id, field.required)


def in_lists(type_: Type, leaves: pa.DataType) -> pa.DataType:
    """The Arrow type of a column whose ``leaves``, inside its lists, have this one."""
    if not isinstance(type_, List):
        return leaves
    return pa.list_(
        _field("element", in_lists(type_.element, leaves), type_.element_id, type_.element_required)
    )


def arrow_type(type_: Type) -> pa.DataType:
    """The Arrow type that holds a column's values.

    >>> arrow_type(List(Primitive("timestamp")))
    ListType(list<element: timestamp[us, tz=UTC]>)

    Raises KeyError for a type that nothing converts to.
    """
    match type_:
        case Primitive(name) if name in _PLAIN:
            return _PLAIN[name]
        case Struct(fields):
            return pa.struct([arrow_field(f) for f in fields])
        case List(element, element_id, required):
            return pa.list_(_field("element", arrow_type(element), element_id, required))
        case Map(key, value, key_id, value_id, required):
            keys = _field("key", arrow_type(key), key_id, True)
            return pa.map_(keys, _field("value", arrow_type(value), value_id, required))
        case Primitive("decimal", (precision, scale)):
            return pa.decimal128(precision, scale)
        case Primitive("fixed", (length,)):
            return pa.binary(length)
        case Primitive("variant"):
            return _VARIANT
        case Primitive("void"):  # of a source alone, inside what waits: no column has it
            return pa.null()
        case Primitive(name) if name in _OF_DUCKDB:
            return _OF_DUCKDB[name]
        case Primitive(name):
            return _READ_ONLY[name]


_WITH_VALUES = frozenset((*_PLAIN, *_OF_DUCKDB, "decimal", "fixed"))
DEEPEST = 100  # levels of lists, maps and structs: tasks are sent what describes them


def convertible(struct: Struct) -> bool:
    """True if Arrow can make files of these columns.

    Their types have values in Arrow, their defaults are values, and they are not too deep.
    """
    columns = list(Schema(struct).walk())
    depth = max((len(path) for path, _ in columns), default=0)
    return depth <= DEEPEST and all(_has_values(f) for _, f in columns)


def _has_values(field: Field) -> bool:
    is_known = not isinstance(field.type, Primitive) or field.type.name in _WITH_VALUES
    return is_known and not isinstance(field.write_default, Expression)


def _field(name: str, type_: pa.DataType, id_: int, required: bool) -> pa.Field:
    return pa.field(name, type_, not required, {FIELD_ID: str(id_)} if id_ else None)
