"""Contracts of tables: exported by the standard's own schema, read back the same, and what breaks one."""

from __future__ import annotations

import json
from importlib.resources import files
from pathlib import Path

import jsonschema
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from core.shapes import schema
from driftline.core.schema.types import Field, Schema, Struct
from driftline.errors import UsageError
from driftline.operations.contract import breaks
from driftline.operations.odcs import exported, read

STANDARD = json.loads(files("open_data_contract_standard").joinpath("schema.json").read_text())
TABLE = (
    "id: long!required, size: long, size_string@size: string, at: timestamp, day: date, n: decimal(38, 2), f: fixed[3], "
    "l: {x: long, s: string}[2], m: map<string, {k: double}>, t: time, u: uuid, b: binary, o: {p: timestamp_ntz}"
)
SETTINGS = {
    "driftline.policy": "strict", "driftline.hints.size": "long", "driftline.maps.m": "auto", "driftline.batch": "7",
    "driftline.capture.orders": "x:1", "write.format.default": "parquet",
}  # fmt: skip


def written(folder: Path, text: str) -> Path:
    file = folder / "orders.yaml"
    file.write_text(text)
    return file


def test_a_table_is_exported_and_read_back(tmp_path: Path) -> None:
    table = schema(TABLE)
    text = exported("shop.orders", table, SETTINGS)
    jsonschema.validate(yaml.safe_load(text), STANDARD)
    promise = read(written(tmp_path, text), "shop.orders")
    assert [str(f.type) for f in promise.schema.struct.fields] == [str(f.type) for f in table.struct.fields]
    assert [(f.required, f.doc) for _, f in promise.schema.walk()] == [
        (f.required, f.doc) for _, f in table.walk()
    ]
    assert promise.properties == {
        "driftline.policy": "strict", "driftline.hints.size": "long", "driftline.maps.m": "auto",
    }  # fmt: skip
    assert promise.loose == {}
    assert list(breaks(promise, table, SETTINGS)) == []


def test_expectation_is_a_rule_of_quality_and_is_read_back(tmp_path: Path) -> None:
    expected = {
        "driftline.expect.price": "price >= 0 and price is not null ELSE quarantine",
        "driftline.expect.at": "at >= date '2026-01-01'",
    }
    text = exported("shop.orders", schema("price: long, at: date"), {**SETTINGS, **expected})
    contract = yaml.safe_load(text)
    jsonschema.validate(contract, STANDARD)
    assert [(rule["name"], rule["type"], rule["mustBe"], rule["query"]) for rule in contract["schema"][0]["quality"]] == [
        ("at", "sql", 0, "SELECT COUNT(*) FROM `shop`.`orders` WHERE NOT (at >= date '2026-01-01')"),
        ("price", "sql", 0, "SELECT COUNT(*) FROM `shop`.`orders` WHERE NOT (price >= 0 and price is not null)"),
    ]  # fmt: skip
    promise = read(written(tmp_path, text), "shop.orders")
    assert {key: promise.properties.get(key) for key in expected} == expected
    assert [one.text for one in breaks(promise, schema("price: long, at: date"), SETTINGS)] == [
        "expect.at is not set, and not at >= date '2026-01-01'",
        "expect.price is not set, and not price >= 0 and price is not null ELSE quarantine",
    ]


def test_rule_of_quality_of_others_is_passed_over(tmp_path: Path) -> None:
    rules = "    quality: [{type: sql, query: select 1, mustBe: 1}, {type: text, description: fresh}]\n"
    promise = read(written(tmp_path, BY_OTHERS + rules), "shop.orders")

    assert promise.properties == {}


@given(st.lists(st.tuples(st.text(min_size=1), st.text()), unique_by=lambda pair: pair[0], max_size=4))
def test_any_names_and_docs_are_read_back(
    tmp_path_factory: pytest.TempPathFactory, names: list[tuple[str, str]]
) -> None:
    fields = tuple(
        Field(name, schema("a: long").struct.fields[0].type, i, doc=f"d{doc}")
        for i, (name, doc) in enumerate(names, 1)
    )
    text = exported("shop.orders", Schema(Struct(fields)), {})
    file = tmp_path_factory.mktemp("contract") / "c.yaml"
    file.write_bytes(text.encode("utf-8", "surrogatepass"))
    found = read(file, "shop.orders").schema.struct.fields
    assert [(f.name, f.doc) for f in found] == [(f.name, f.doc) for f in fields]


@pytest.mark.parametrize(
    ("table", "kind", "says"),
    [
        ("a: long, s: {x: long}, l: {y: date}[1]!", "", ""),
        ("a: long!required, s: {x: long}, l: {y: date}[1]", "", ""),
        ("a: string, s: {x: long}, l: {y: date}[1]", "type", "a is string, and not long"),
        ("a: long, s: {x: long}", "missing", "there is no l list<struct>"),
        ("a: long, s: {x: long, z: date}, l: {y: date}[1]", "new", "s.z date is new"),
        ("a: long, a_string@a: string, s: {x: long}, l: {y: date}[1]", "sibling", "a_string string is new"),
        ("a: long, s: {x: long}, l: {y: string}[1]", "type", "l.element.y is string, and not date"),
        ("a: long, s: map<string, long>, l: {y: date}[1]", "type", "s is map<string, long>, and not struct"),
    ],
)  # fmt: skip
def test_what_a_table_breaks(tmp_path: Path, table: str, kind: str, says: str) -> None:
    golden = schema("a: long, s: {x: long}, l: {y: date}[1]")
    promise = read(written(tmp_path, exported("shop.orders", golden, {})), "shop.orders")
    found = [(one.kind, one.text) for one in breaks(promise, schema(table.replace("]!", "]")), {})]
    assert found == ([(kind, says)] if kind else [])


def test_settings_and_required_columns(tmp_path: Path) -> None:
    text = exported("shop.orders", schema("a: long!required"), SETTINGS)
    promise = read(written(tmp_path, text), "shop.orders")
    found = {
        one.kind: one.text for one in breaks(promise, schema("a: long"), {"driftline.hints.size": "long"})
    }
    assert found["required"] == "a may be null"
    assert found["setting"] == "policy is preserve, and not strict"


BY_OTHERS = """\
apiVersion: v3.0.2
kind: DataContract
id: x
version: 1.0.0
status: active
schema:
  - name: orders
    properties:
      - {name: id, logicalType: integer, required: true}
      - {name: price, logicalType: number}
      - {name: name, logicalType: string, physicalType: VARCHAR(20)}
      - {name: at, logicalType: timestamp}
      - {name: tags, logicalType: array, items: {logicalType: string}}
"""


def test_a_contract_of_others_may_say_less(tmp_path: Path) -> None:
    promise = read(written(tmp_path, BY_OTHERS), "shop.orders")
    assert str(promise.schema.struct) == (
        "struct<id: long, price: double, name: string, at: timestamp, tags: list<string>>"
    )
    table = schema("id: int!required, price: decimal(9, 2), name: string, at: timestamp_ntz, tags: string[1]")
    assert list(breaks(promise, table, {})) == []
    wrong = schema("id: double!required, price: string, name: string, at: date, tags: long[1]")
    assert [(one.kind, ".".join(one.path)) for one in breaks(promise, wrong, {})] == [
        ("type", "id"), ("type", "price"), ("type", "at"), ("type", "tags.element"),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("a: [", "not a data contract"),
        ("- a", "not a data contract"),
        ("", "not a data contract"),
        ("apiVersion: v2.2.0\n", "apiVersion v2.2.0 is not read"),
        ("apiVersion: v3.1.0\nwhatever: 1\n", "not a data contract: whatever"),
        ("apiVersion: v3.1.0\nschema: []\n", "there is no shop.orders in it"),
        ("apiVersion: v3.1.0\nschema: [{name: a}, {name: b}]\n", "there is no shop.orders in it\nthere are a, b"),
        ("apiVersion: v3.1.0\nschema: [{name: a, properties: [{name: b, physicalType: geo}]}]\n", "b: the type geo is not known"),
        ("apiVersion: v3.1.0\nschema: [{name: a, properties: [{logicalType: date}]}]\n", "a property of the table has no name"),
        (
            "apiVersion: v3.1.0\nschema: [{name: a, properties: [{name: b, logicalType: date}, {name: b, logicalType: date}]}]\n",
            "there are two properties 'b'",
        ),
        (
            "apiVersion: v3.1.0\nschema: [{name: a, customProperties: [{property: polcy, value: strict, vendor: driftline}]}]\n",
            "did you mean 'policy'",
        ),
    ],
)  # fmt: skip
def test_a_file_that_is_no_contract_is_named(tmp_path: Path, text: str, says: str) -> None:
    with pytest.raises(UsageError) as error:
        read(written(tmp_path, text), "shop.orders")
    assert "orders.yaml" in str(error.value)
    assert says in str(error.value)


def test_no_file(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="cannot be read"):
        read(tmp_path / "away.yaml", "shop.orders")
