"""Keys of messages beside typed values, without Spark: Avro, Protobuf and plain ones, and null values that delete."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import date
from typing import Any

import pyarrow as pa
import pytest

from core.tasks import run
from core.test_kafka_typed import avro, of_kafka, record
from driftline.convert import Converter
from driftline.core.planning.planner import plan
from driftline.core.schema.types import Schema
from driftline.core.settings.properties import from_properties
from driftline.keys.slices import DELETE_FLAG
from driftline.observe.expect import expect
from driftline.readers.kafka import registry as client
from driftline.readers.kafka.values import Wire
from driftline.readers.task import AdmissionTerms
from driftline.sources.kafka_typed import KafkaReader, observed_together
from servers.registry import Registry

KEY, VALUE = record("Key", id="long"), record("Row", n="int")
WIDER = record("Key", id="string")


@pytest.fixture
def registry() -> Iterator[Registry]:
    with Registry() as running:
        yield running


def taken(
    registry: Registry,
    messages: list[tuple[bytes | None, bytes | None]],
    key: str,
    delete_when: str = "value is null",
) -> tuple[dict[str, str], list[dict[str, Any]], list[dict[str, Any]], int]:
    """The columns, rows and rejects of messages, and the number of tombstones that are none of these."""
    wire = Wire("avro", client.Registry.of({"url": registry.url}))
    settings = from_properties({"driftline.key": key, "driftline.delete-when": delete_when})
    terms = AdmissionTerms(expect(Schema(), settings), settings)
    keys, values = zip(*messages, strict=True)
    batch = of_kafka(list(values)).append_column("key", pa.array(keys, pa.binary()))
    *_, reported = run(KafkaReader(wire, terms), iter([batch]))
    whole = observed_together([reported.observed], terms)
    planned = plan(Schema(), whole.shape, settings)
    terms = terms.refusing(None, planned.conflicts)  # type: ignore[arg-type]
    *_, reported = run(KafkaReader(wire, terms), iter([batch]))
    planned = plan(Schema(), observed_together([reported.observed], terms).shape, settings)
    struct = planned.schema.struct
    reader = KafkaReader(wire, terms, Converter(struct, planned.route, settings))
    batches, aside, again = run(reader, iter([batch]))
    assert not again.diverged
    rows = [row for rows in batches for row in rows.to_pylist()]
    kept = [row for some in aside for row in some.to_pylist()]
    return {f.name: str(f.type) for f in struct.fields}, rows, kept, again.observed.tombstones


def test_keys_of_several_schemas_and_plain_ones(registry: Registry) -> None:
    """In the order of the messages, whatever their schemas are."""
    key, wider, value = (registry.register(f"s{n}", s) for n, s in enumerate((KEY, WIDER, VALUE)))
    messages: list[tuple[bytes | None, bytes | None]] = [
        (avro(key, KEY, {"id": 1}), avro(value, VALUE, {"n": 0})),
        (b'{"id": "b"}', avro(value, VALUE, {"n": 1})),
        (avro(wider, WIDER, {"id": "c"}), None),
        (avro(key, KEY, {"id": 4}), avro(value, VALUE, {"n": 3})),
        (b'{"schema": {}, "payload": {"id": 5}}', None),
    ]
    types, rows, kept, tombstones = taken(registry, messages, "_key.id")
    assert types == {"_key": "struct<id_long: long, id: string>", "n": "int"} and (kept, tombstones) == (
        [],
        0,
    )
    found = [(r["_key"]["id_long"], r["_key"]["id"], r["n"], r[DELETE_FLAG]) for r in rows]
    assert found == [
        (1, None, 0, False), (None, "b", 1, False), (None, "c", None, True), (4, None, 3, False),
        (5, None, None, True),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("schema", "key"),
    [
        ({"type": "long"}, 7),
        ({"type": "string"}, "a"),
        ({"type": "int", "logicalType": "date"}, date(1970, 1, 1)),
        ({"type": "bytes"}, b"\xff"),
    ],
)
def test_plain_keys_of_avro(registry: Registry, schema: Any, key: Any) -> None:
    number, value = registry.register("k", schema), registry.register("v", VALUE)
    messages: list[tuple[bytes | None, bytes | None]] = [
        (avro(number, schema, key), avro(value, VALUE, {"n": 0}))
    ]
    _, rows, kept, _ = taken(registry, messages, "_key")
    assert ([(row["_key"], row["n"]) for row in rows], kept) == ([(key, 0)], [])


def test_messages_whose_keys_cannot_be_read(registry: Registry) -> None:
    value, own = registry.register("v", VALUE), registry.register("o", record("Own", _key="int"))
    messages: list[tuple[bytes | None, bytes | None]] = [
        (b"\xff", avro(value, VALUE, {"n": 0})),
        (b"\0\0\0\0\x63x", avro(value, VALUE, {"n": 1})),
        (b"1", avro(own, record("Own", _key="int"), {"_key": 1})),
        (b"2", b"no avro"),
        (None, None),
        (None, avro(value, VALUE, {"n": 5})),
        (b"3", avro(value, VALUE, {"n": 6})),
    ]
    _, rows, kept, _ = taken(registry, messages, "_key")
    assert [(r["_key"], r["n"]) for r in rows] == [(3, 6)]
    assert {r["offset"]: (r["reason"], r["key_bytes"] or r["key"]) for r in kept} == {
        0: ("the message's key is no text", b"\xff"),
        1: ("the message's key: the registry has no schema 99: Schema not found", b"\0\0\0\0\x63x"),
        2: ("it has a field _key of its own, where the table reads the message's key", "1"),
        3: ("not in the registry's wire format: it begins with byte 0x6E, not 0x00", "2"),
        4: ("key: no value", None),
        5: ("key: no value", None),
    }
    assert {r["offset"]: r["raw"] for r in kept if r["offset"] in (4, 5)} == {4: None, 5: '{"n":5}'}


def test_a_null_value_that_does_not_delete(registry: Registry) -> None:
    _, rows, kept, _ = taken(
        registry,
        [(b'{"id": 1}', None), (b'{"id": 2, "x": 1}', None)],
        "_key.id",
        "value is null and _key.x = 1",
    )
    assert ([r["_key"] for r in rows], [(r["raw"], r["reason"]) for r in kept]) == (
        [{"id": 2}], [(None, "a null value, for which delete_when is not true")],
    )  # fmt: skip


def test_null_values_that_nobody_reads_are_counted(registry: Registry) -> None:
    value = registry.register("v", VALUE)
    messages = [(b"1", avro(value, VALUE, {"n": 0})), (b"2", None)]
    assert taken(registry, messages, "_key", "n = 5")[3] == 1  # type: ignore[arg-type]
