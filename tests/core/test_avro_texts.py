"""Messages in Avro as texts of JSON, without Kafka: types by name, by logical type, and what is no message."""

from __future__ import annotations

import json
from base64 import b64decode
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest

from core.test_connect_schema import VALUES
from core.test_envelopes import AT, LSN, row_key
from core.test_kafka_typed import avro, framed, of_kafka, record
from driftline.readers.envelopes.columns import AvroTexts
from driftline.readers.envelopes.unwrap import Unwrapper
from driftline.readers.kafka import registry as client
from driftline.readers.kafka.values import Wire
from driftline.readers.kafka.wire import UnreadableError
from driftline.sources.kafka import MessageValueTexts
from servers.registry import Registry

SCALED = {
    "type": "record",
    "name": "io.debezium.data.VariableScaleDecimal",
    "fields": [{"name": "scale", "type": "int"}, {"name": "value", "type": "bytes"}],
}
TYPES = {"int32": "int", "int64": "long"}


@pytest.fixture(scope="module")
def registry() -> Iterator[Registry]:
    with Registry() as running:
        yield running


def wire_of(registry: Registry) -> Wire:
    return Wire("avro", client.Registry.of({"url": registry.url}))


def plain(schema: Any) -> Any:
    """The schema as a writer takes it that knows no logical types."""
    if isinstance(schema, list):
        return [plain(one) for one in schema]
    if not isinstance(schema, dict):
        return schema
    return {
        key: plain(value) if key in ("type", "fields", "items", "values") else value
        for key, value in schema.items()
        if key != "logicalType"
    }


def text(registry: Registry, schema: Any, value: Any) -> str:
    number = registry.register(f"s{len(registry.schemas)}", schema)
    return AvroTexts(wire_of(registry)).of(avro(number, plain(schema), value)).decode()


# Connect's converter may write a decimal as a number of JSON, which Avro has no way to.
NAMED = [
    case
    for case in VALUES
    if case[0] and "geometry" not in case[0] and (case[1] != "bytes" or isinstance(case[3], str))
]


@pytest.mark.parametrize(("name", "type_", "parameters", "value", "expected"), NAMED)
def test_values_by_their_connect_name(
    registry: Registry, name: str, type_: str, parameters: Any, value: Any, expected: str
) -> None:
    """The same values as those of JSON with its schema: alone, in a union, in a list, in a map."""
    schema: Any = {"type": TYPES.get(type_, type_), "connect.name": name}
    if type_ == "struct":
        schema = {**SCALED, "connect.name": name}
        value = {**value, "value": b64decode(value["value"])}
    elif type_ == "bytes":
        value = b64decode(value)
    if parameters:
        schema["connect.parameters"] = parameters
    fields = {
        "alone": schema,
        "union": ["null", schema if type_ != "struct" else name],
        "list": {"type": "array", "items": ["null", schema if type_ != "struct" else name]},
        "map": {"type": "map", "values": schema if type_ != "struct" else name},
        "none": ["null", schema if type_ != "struct" else name],
    }
    row = {"alone": value, "union": value, "list": [value, None], "map": {"k": value}, "none": None}
    one = expected
    assert (
        text(registry, record("Row", **fields), row)
        == f'{{"alone":{one},"union":{one},"list":[{one},null],"map":{{"k":{one}}},"none":null}}'
    )


@pytest.mark.parametrize(
    ("type_", "logical", "value", "expected"),
    [
        ("int", "date", -1, '"1969-12-31"'),
        ("int", "time-millis", 43200500, '"12:00:00.500"'),
        ("long", "time-micros", 1, '"00:00:00.000001"'),
        ("long", "timestamp-millis", 1772366400123, '"2026-03-01T12:00:00.123Z"'),
        ("long", "timestamp-micros", -1, '"1969-12-31T23:59:59.999999Z"'),
        ("long", "local-timestamp-micros", 1772366400000000, '"2026-03-01T12:00:00"'),
        ("long", "timestamp-nanos", 1, '"1970-01-01T00:00:00.000000001Z"'),
        ("string", "uuid", "09acf02b-0a42-4a69-8c6f-1f1c7e4cb5a1", '"09acf02b-0a42-4a69-8c6f-1f1c7e4cb5a1"'),
        ("int", "unheard-of", 7, "7"),
        ("long", None, 2**60, "1152921504606846976"),
        ("double", None, 0.1, "0.1"),
        ("double", None, float("nan"), '"NaN"'),
        ("float", None, float("-inf"), '"-Infinity"'),
        ("bytes", None, b"\0\1", '"AAE="'),
        ("boolean", None, True, "true"),
    ],
)
def test_values_by_their_logical_type(
    registry: Registry, type_: str, logical: str | None, value: Any, expected: str
) -> None:
    schema = {"type": type_} if logical is None else {"type": type_, "logicalType": logical}
    assert text(registry, record("Row", f=schema, bare=["null", "double"]), {"f": value, "bare": 1.5}) == (
        f'{{"f":{expected},"bare":1.5}}'
    )


def test_decimals_and_enums(registry: Registry) -> None:
    price = {"type": "bytes", "logicalType": "decimal", "precision": 60, "scale": 2}
    size = {"type": "enum", "name": "Size", "symbols": ["S", "L"]}
    fixed = {"type": "fixed", "name": "Two", "size": 2, "logicalType": "decimal", "precision": 4, "scale": 1}
    row = {"price": (10**50 + 1).to_bytes(24, "big"), "size": "L", "fixed": b"\xff\xff"}
    assert text(registry, record("Row", price=price, size=size, fixed=fixed), row) == (
        f'{{"price":1{"0" * 48}.01,"size":"L","fixed":-0.1}}'
    )


ROW = {
    "type": "record",
    "name": "srv.public.people.Value",
    "fields": [
        {"name": "id", "type": "long"},
        {
            "name": "born",
            "type": ["null", {"type": "int", "connect.version": 1, "connect.name": "io.debezium.time.Date"}],
            "default": None,
        },
    ],
}
ENVELOPE = {
    "type": "record",
    "name": "srv.public.people.Envelope",
    "connect.name": "srv.public.people.Envelope",
    "fields": [
        {"name": "before", "type": ["null", ROW], "default": None},
        {"name": "after", "type": ["null", "srv.public.people.Value"], "default": None},
        {"name": "source", "type": record("Source", connector="string", lsn=["null", "long"])},
        {"name": "op", "type": "string"},
    ],
}
KEY = record("Key", id="long")


def messages(registry: Registry) -> list[tuple[bytes | None, bytes | None]]:
    value, key = registry.register("v", ENVELOPE), registry.register("k", KEY)

    def sent(op: str, before: Any, after: Any) -> bytes:
        return avro(value, ENVELOPE, {"op": op, "before": before, "after": after, "source": LSN})

    def of(id_: int) -> bytes:
        return avro(key, KEY, {"id": id_})

    return [
        (of(7), sent("c", None, {"id": 7, "born": 20513})),
        (of(7), sent("d", None, None)),
        (of(7), None),
        (b"7", sent("d", None, None)),
        (of(7), framed(999, b"")),
        (of(7), framed(value, b"\xff")),
        (b"\0\0\0\3\xe7", sent("d", None, None)),
        (None, b"{}"),
    ]


def test_messages_of_a_topic(registry: Registry) -> None:
    keys, values = zip(*messages(registry), strict=True)
    batch = of_kafka(list(values)).append_column("key", pa.array(keys, pa.binary()))
    (run,) = MessageValueTexts(wire=wire_of(registry)).of(row_key()).runs(batch)
    unwrapper = Unwrapper(row_key())
    texts, places = unwrapper.records(run.lines)
    gone = {"id": 7, "_change": {"op": "d", "position": AT}}
    read = [(place, json.loads(one)) for place, one in zip(places, texts, strict=True)]
    assert read[:3] == [
        (0, {"id": 7, "born": "2026-03-01", "_change": {"op": "c", "position": AT}}),
        (1, gone),
        (3, gone),
    ]
    assert unwrapper.control_messages == {"tombstone": 1}
    rejects = [run.reject(place, "no object") for place in places[3:]]
    assert [(one.origin.offset, one.why.split(":")[0]) for one in rejects] == [  # type: ignore[union-attr]
        (4, "the registry has no schema 999"),
        (5, "invalid Avro for its schema"),
        (6, "the registry has no schema 999"),
        (7, "not in the registry's wire format"),
    ]
    assert [one.raw for one in rejects[:2]] == list(values[4:6])
    # What can be read waits as a text, which a replay takes.
    assert json.loads(rejects[2].raw or b"")["op"] == "d"
    assert json.loads(run.reject(0, "x").raw or b"")["op"] == "c"
    assert run.reject(0, "x").origin.key == b'{"id":7}'


@pytest.mark.parametrize(
    "schema", ["7", '{"type": "record"}', '{"type": "array", "items": 5}', '["null", "none"]']
)
def test_what_is_no_schema(registry: Registry, schema: str) -> None:
    number = registry.register("wrong", schema)
    for _ in range(2):
        with pytest.raises(UnreadableError, match="invalid Avro schema"):
            AvroTexts(wire_of(registry)).of(framed(number, b""))


def test_bytes_that_go_on(registry: Registry) -> None:
    number = registry.register("v", KEY)
    with pytest.raises(UnreadableError, match="1 bytes follow"):
        AvroTexts(wire_of(registry)).of(avro(number, KEY, {"id": 7}) + b"\0")


def test_a_schema_that_the_registry_has_later(registry: Registry) -> None:
    """The next batch of the same process reads what the batch before could not."""
    number = registry.register("before", {"type": "enum", "name": "Before", "symbols": ["a"]}) + 1
    value, wire = avro(number, KEY, {"id": 7}), wire_of(registry)
    batch = AvroTexts(wire)
    for _ in range(2):
        with pytest.raises(UnreadableError, match=f"the registry has no schema {number}"):
            batch.of(value)
    later = {"type": "record", "name": "Later", "fields": [{"name": "id", "type": "int"}]}
    assert registry.register("later", later) == number
    assert AvroTexts(wire).of(value) == b'{"id":7}'
