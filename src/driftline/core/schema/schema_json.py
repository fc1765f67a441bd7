"""Reads and writes schemas in Iceberg's JSON form (Iceberg spec, appendix C)."""

from __future__ import annotations

import json
import re
from typing import Any, Literal, NotRequired, TypedDict

from driftline.core.schema.types import (
    Expression,
    Field,
    List,
    Map,
    Primitive,
    Schema,
    Struct,
    Type,
    decimal,
    fixed,
)

_ListParts = TypedDict(
    "_ListParts",
    {"element-id": int, "element": "str | NestedTypeJson", "element-required": bool},
    total=False,
)
_MapParts = TypedDict(
    "_MapParts",
    {
        "key-id": int,
        "key": "str | NestedTypeJson",
        "value-id": int,
        "value": "str | NestedTypeJson",
        "value-required": bool,
    },
    total=False,
)
_FieldParts = TypedDict(
    "_FieldParts",
    {"initial-default": Any, "write-default": Any, "write-default-expression": str},
    total=False,
)
_SchemaParts = TypedDict("_SchemaParts", {"schema-id": int, "identifier-field-ids": NotRequired[list[int]]})


class NestedTypeJson(_ListParts, _MapParts):
    """A struct with its fields, a list with its element, or a map with its key and value."""

    type: Literal["struct", "list", "map"]
    fields: NotRequired[list[FieldJson]]


class FieldJson(_FieldParts):
    """A column, at any depth."""

    id: int
    name: str
    required: bool
    type: str | NestedTypeJson
    doc: NotRequired[str]


class SchemaJson(_SchemaParts):
    """A schema in the form of Iceberg's table metadata."""

    type: Literal["struct"]
    fields: list[FieldJson]


_SPELLED = {"timestamp": "timestamptz", "timestamp_ntz": "timestamp"}
_READ = {spelled: name for name, spelled in _SPELLED.items()}
_DECIMAL = re.compile(r"decimal\((\d+),\s*(\d+)\)")
_FIXED = re.compile(r"fixed\[(\d+)\]")


def type_name(type_: Type) -> str:
    """A type in Iceberg's spelling, on one line.

    >>> from driftline.core.schema.types import TIMESTAMP, List
    >>> type_name(List(TIMESTAMP))
    'list<timestamptz>'
    """
    match type_:
        case Primitive(name):
            return _SPELLED.get(name, str(type_))
        case List(element):
            return f"list<{type_name(element)}>"
        case Map(key, value):
            return f"map<{type_name(key)}, {type_name(value)}>"
        case Struct(fields):
            return f"struct<{', '.join(f'{f.name}: {type_name(f.type)}' for f in fields)}>"


def type_text(type_: Type) -> str:
    """A type as text that `type_of` reads back, whatever the names of its fields.

    Nested types are written as Iceberg's JSON.

    >>> from driftline.core.schema.types import LONG
    >>> type_text(LONG), type_of(type_text(Struct((Field("a b", LONG),)))) == Struct((Field("a b", LONG),))
    ('long', True)
    """
    return type_name(type_) if isinstance(type_, Primitive) else json.dumps(_type(type_))


def type_of(text: str) -> Type:
    """The type that `type_text` wrote."""
    return _read_type(json.loads(text) if text.startswith("{") else text)


def outline(type_: Type) -> str:
    """A type on one line, without the fields of its struct.

    >>> from driftline.core.schema.types import LONG
    >>> outline(List(Struct((Field("a", LONG),))))
    'list<struct>'
    """
    match type_:
        case Struct():
            return "struct"
        case List(element):
            return f"list<{outline(element)}>"
        case Map(key, value):
            return f"map<{outline(key)}, {outline(value)}>"
        case _:
            return type_name(type_)


def to_json(schema: Schema) -> SchemaJson:
    """The schema in the form of Iceberg's table metadata."""
    out: SchemaJson = {"type": "struct", "schema-id": schema.id, "fields": _fields(schema.struct)}
    if schema.identifiers:
        out["identifier-field-ids"] = sorted(schema.identifiers)
    return out


def _fields(struct: Struct) -> list[FieldJson]:
    out = []
    for f in struct.fields:
        entry: FieldJson = {"id": f.id, "name": f.name, "required": f.required, "type": _type(f.type)}
        if f.doc is not None:
            entry["doc"] = f.doc
        if f.initial_default is not None:
            entry["initial-default"] = f.initial_default
        if isinstance(f.write_default, Expression):
            entry["write-default-expression"] = f.write_default.sql  # Iceberg has no such thing
        elif f.write_default is not None:
            entry["write-default"] = f.write_default
        out.append(entry)
    return out


def _type(type_: Type) -> str | NestedTypeJson:
    match type_:
        case Primitive():
            return type_name(type_)
        case Struct():
            return {"type": "struct", "fields": _fields(type_)}
        case List():
            return {
                "type": "list",
                "element-id": type_.element_id,
                "element": _type(type_.element),
                "element-required": type_.element_required,
            }
        case Map():
            return {
                "type": "map",
                "key-id": type_.key_id,
                "key": _type(type_.key),
                "value-id": type_.value_id,
                "value": _type(type_.value),
                "value-required": type_.value_required,
            }


def from_json(data: dict[str, Any]) -> Schema:
    """The schema that Iceberg's JSON describes.

    >>> schema = from_json({"type": "struct", "fields": [{"id": 1, "name": "a", "required": False,
    ...     "type": {"type": "list", "element-id": 2, "element": "timestamptz", "element-required": False}}]})
    >>> str(schema.struct), from_json(to_json(schema)) == schema
    ('struct<a: list<timestamp>>', True)
    """
    return Schema(
        _read_struct(data), int(data.get("schema-id", 0)), frozenset(data.get("identifier-field-ids", ()))
    )


def _read_struct(data: dict[str, Any]) -> Struct:
    return Struct(
        tuple(
            Field(
                f["name"],
                _read_type(f["type"]),
                int(f["id"]),
                bool(f["required"]),
                f.get("doc"),
                f.get("initial-default"),
                f.get("write-default"),
            )
            for f in data["fields"]
        )
    )


def _read_type(data: Any) -> Type:
    if isinstance(data, str):
        if match := _DECIMAL.fullmatch(data):
            return decimal(int(match[1]), int(match[2]))
        if match := _FIXED.fullmatch(data):
            return fixed(int(match[1]))
        return Primitive(_READ.get(data, data))
    if data["type"] == "list":
        return List(_read_type(data["element"]), data["element-id"], data["element-required"])
    if data["type"] == "map":
        key, value = _read_type(data["key"]), _read_type(data["value"])
        return Map(key, value, data["key-id"], data["value-id"], data["value-required"])
    return _read_struct(data)
