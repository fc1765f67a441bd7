"""Iceberg's JSON form of a schema: spellings as a table, one schema in full."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from core.shapes import schema, show
from driftline.core.schema.schema_json import from_json, to_json, type_name


@pytest.mark.parametrize(
    ("type_", "spelled"),
    [
        ("boolean", "boolean"),
        ("int", "int"),
        ("long", "long"),
        ("float", "float"),
        ("double", "double"),
        ("decimal(18, 2)", "decimal(18, 2)"),
        ("date", "date"),
        ("time", "time"),
        ("timestamp", "timestamptz"),
        ("timestamp_ntz", "timestamp"),
        ("timestamp_ns", "timestamp_ns"),
        ("string", "string"),
        ("uuid", "uuid"),
        ("binary", "binary"),
        ("fixed[16]", "fixed[16]"),
        ("variant", "variant"),
        ("unknown", "unknown"),
    ],
)
def test_primitives_both_ways(type_: str, spelled: str) -> None:
    table = schema(f"a: {type_}")
    (field,) = to_json(table)["fields"]
    assert field["type"] == type_name(table.struct.fields[0].type) == spelled
    assert from_json(to_json(table)) == table


@pytest.mark.parametrize("spelled", ["decimal(18,2)", "decimal(18, 2)"])
def test_decimals_with_and_without_a_space(spelled: str) -> None:
    data = {"type": "struct", "fields": [{"id": 1, "name": "a", "required": False, "type": spelled}]}
    assert show(from_json(data)) == "a: decimal(18, 2)"


def test_a_type_on_one_line() -> None:
    (column,) = schema("a: map<string, {x: timestamp, y: timestamp_ntz[2]}>").struct.fields
    assert type_name(column.type) == "map<string, struct<x: timestamptz, y: list<list<timestamp>>>>"


FULL = """
{"type": "struct", "schema-id": 3, "identifier-field-ids": [1], "fields": [
  {"id": 1, "name": "id", "required": true, "type": "long"},
  {"id": 2, "name": "id_string", "required": false, "type": "string", "doc": "upsolver_evolved_from:id"},
  {"id": 3, "name": "items", "required": false, "type":
    {"type": "list", "element-id": 5, "element-required": true, "element":
      {"type": "struct", "fields": [{"id": 6, "name": "price", "required": false, "type": "decimal(18, 2)"}]}}},
  {"id": 4, "name": "m", "required": false, "type":
    {"type": "map", "key-id": 7, "key": "string", "value-id": 8, "value": "timestamptz", "value-required": true}}
]}
"""


def test_a_schema_in_full() -> None:
    read = from_json(json.loads(FULL))
    assert show(read) == (
        "id: long!required, id_string@id: string, items: {price: decimal(18, 2)}[1]!elements, "
        "m: map<string, timestamp>!values"
    )
    assert (read.id, read.identifiers, read.highest_id()) == (3, frozenset({1}), 8)
    assert [(".".join(path), field.id) for path, field in read.walk()] == [
        ("id", 1),
        ("id_string", 2),
        ("items", 3),
        ("items.element", 5),
        ("items.element.price", 6),
        ("m", 4),
        ("m.key", 7),
        ("m.value", 8),
    ]
    assert to_json(read) == json.loads(FULL)


def test_identifiers_are_written_where_there_are_some() -> None:
    table = schema("a: long!required")
    assert "identifier-field-ids" not in to_json(table)
    assert to_json(replace(table, identifiers=frozenset({1})))["identifier-field-ids"] == [1]
