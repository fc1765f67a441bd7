"""Captures of topics whose values have their schemas in a registry: real producers, a real broker."""

from __future__ import annotations

import json
import random
import time
from collections.abc import Iterator
from decimal import Decimal
from typing import Any

import pytest
from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroSerializer
from confluent_kafka.schema_registry.json_schema import JSONSerializer
from confluent_kafka.schema_registry.protobuf import ProtobufSerializer
from confluent_kafka.serialization import MessageField, SerializationContext
from google.protobuf.descriptor_pb2 import FileDescriptorProto
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message_factory import GetMessageClass
from pyspark.sql import DataFrame

from driftline import AuditError
from driftline.capture.targets import Batch, PatternBatch
from driftline.errors import SetupError
from driftline.lake import Lake, Table, check_sources
from driftline.quarantine import table as quarantine
from driftline.verify import messages
from servers.kafka import Kafka
from servers.registry import Registry

FIRST = """{"type": "record", "name": "Order", "namespace": "shop", "fields": [
    {"name": "id", "type": "long"},
    {"name": "price", "type": {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}}]}"""
SECOND = """{"type": "record", "name": "Order", "namespace": "shop", "fields": [
    {"name": "id", "type": "string"}, {"name": "tags", "type": {"type": "array", "items": "string"}}]}"""


@pytest.fixture(scope="module")
def registry() -> Iterator[Registry]:
    with Registry("me:s3cret") as running:
        yield running


@pytest.fixture
def table(lake: Lake, table_name: str) -> Table:
    return lake.table(table_name)


@pytest.fixture
def topic(table_name: str) -> str:
    return f"typed-{table_name}".replace(".", "-")


def producer(registry: Registry) -> SchemaRegistryClient:
    return SchemaRegistryClient({"url": registry.url, "basic.auth.user.info": registry.login})


def at(topic: str) -> SerializationContext:
    return SerializationContext(topic, MessageField.VALUE)


def captured(table: Table, kafka: Kafka, registry: Registry, topic: str, **options: Any) -> list[Batch]:
    batches: list[Batch] = []
    query = table.capture(
        f"kafka://{kafka.address}/{topic}",
        name="orders",
        on_batch=batches.append,
        registry={"url": registry.url, "basic.auth.user.info": "me:s3cret"},
        **options,
    )
    assert query.awaitTermination(120)
    return batches


def test_avro_in_a_version_that_breaks_with_the_one_before(
    table: Table,
    kafka: Kafka,
    registry: Registry,
    topic: str,
) -> None:
    first, second = (AvroSerializer(producer(registry), schema) for schema in (FIRST, SECOND))
    values = [first({"id": i, "price": Decimal("1.50")}, at(topic)) for i in range(3)]
    wrong = [b'{"id": 7}', b"\0\0\0\x03\xe7x"]
    kafka.send(topic, [(b"k", value) for value in values], partition=0)
    first_run = {"value_format": "avro", "metadata": "partition,offset", "kafka_metadata": True}
    (batch,) = captured(table, kafka, registry, topic, **first_run)
    assert (batch.result.rows_written, batch.result.rows_quarantined) == (3, 0)
    kafka.send(topic, [(b"k", second({"id": "a", "tags": ["x"]}, at(topic))), None, *wrong], partition=0)
    (batch,) = captured(table, kafka, registry, topic, value_format="avro", kafka_metadata=True)
    assert (batch.result.rows_written, batch.result.rows_quarantined, batch.tombstones) == (1, 2, 1)
    columns = "id", "id_string", "price", "tags", "_kafka.key", "_kafka.offset"
    rows = [tuple(row) for row in table.read().select(*columns).orderBy("_kafka.offset").collect()]
    assert rows == [
        *((i, None, Decimal("1.50"), None, "k", i) for i in range(3)),
        (None, "a", None, ["x"], "k", 3),
    ]
    assert table.read().where("_source.offset = _kafka.offset and _source.partition = 0").count() == 4
    kept = quarantine.of(table.format).read().orderBy("offset").collect()
    assert [(row.topic, row.offset) for row in kept] == [(topic, 5), (topic, 6)]
    assert [row.raw_bytes or row.raw.encode() for row in kept] == wrong
    assert "it begins with byte 0x7B" in kept[0].reason and "no schema 999" in kept[1].reason


def order_class(*fields: tuple[str, int]) -> Any:
    """The class of a message Order with these fields, of these types of Protobuf's."""
    file = FileDescriptorProto(name="order.proto", package="shop", syntax="proto3")
    message = file.message_type.add(name="Order")
    for number, (name, type_) in enumerate(fields, 1):
        message.field.add(name=name, number=number, type=type_, label=1)  # type: ignore[arg-type]
    pool = DescriptorPool()
    pool.AddSerializedFile(file.SerializeToString())
    return GetMessageClass(pool.FindMessageTypeByName("shop.Order"))


def test_protobuf_and_json_schema(table: Table, kafka: Kafka, registry: Registry, topic: str) -> None:
    order = order_class(("id", 4), ("note", 9))  # uint64, string
    write = ProtobufSerializer(order, producer(registry))
    most = 2**64 - 1
    kafka.send(topic, [write(order(id=most, note="x"), at(topic)), b"\0\0\0\0\x01"], partition=0)
    (batch,) = captured(table, kafka, registry, topic, value_format="protobuf")
    assert (batch.result.rows_written, batch.result.rows_quarantined) == (1, 1)
    assert [tuple(row) for row in table.read().select("id", "note").collect()] == [(Decimal(most), "x")]

    text = JSONSerializer('{"type": "object", "title": "Order"}', producer(registry))
    values = [text({"id": 1, "at": "2026-01-31"}, at(f"{topic}-json")), b'{"id": 2}', b"\0\0\0\0\x01{"]
    kafka.send(f"{topic}-json", values, partition=0)
    other = table.lake.table(f"{table.name}_json")
    (batch,) = captured(other, kafka, registry, f"{topic}-json", value_format="json-schema")
    assert (batch.result.rows_written, batch.result.rows_quarantined) == (1, 2)
    assert str(other.read().first().at) == "2026-01-31"  # type: ignore[union-attr]
    kept = quarantine.of(other.format).read().orderBy("offset").collect()
    assert [row.raw_bytes or row.raw.encode() for row in kept] == values[1:]


def test_what_a_policy_refuses_can_be_replayed(
    table: Table,
    kafka: Kafka,
    registry: Registry,
    topic: str,
) -> None:
    first, second = (AvroSerializer(producer(registry), schema) for schema in (FIRST, SECOND))
    kafka.send(topic, [first({"id": 1, "price": Decimal("1.50")}, at(topic))], partition=0)
    captured(table, kafka, registry, topic, value_format="avro")
    kafka.send(topic, [second({"id": "a", "tags": ["x"]}, at(topic))], partition=0)
    (batch,) = captured(table, kafka, registry, topic, value_format="avro", settings={"policy": "strict"})
    assert batch.result.rows_quarantined == 1
    assert table.replay(settings={"policy": "preserve"}).written == 1
    assert [row.id_string for row in table.read().where("id is null").collect()] == ["a"]


@pytest.mark.iceberg_only("of the source alone")
def test_rows_by_the_keys_of_messages(table: Table, kafka: Kafka, registry: Registry, topic: str) -> None:
    """Each change counts in its turn, whatever its schema; keys have schemas of their own, or are plain."""
    keys = [
        AvroSerializer(producer(registry), schema)
        for schema in ('{"type": "record", "name": "K", "fields": [{"name": "id", "type": "long"}]}',
                       '{"type": "record", "name": "K", "fields": [{"name": "id", "type": "string"}]}')
    ]  # fmt: skip
    first, second = (AvroSerializer(producer(registry), schema) for schema in (FIRST, SECOND))
    of_key = SerializationContext(topic, MessageField.KEY)
    chance, rows, sent = random.Random(9), {}, []
    for number in range(60):
        key = chance.randrange(8)
        text = chance.random() < 0.3
        wire = chance.choice([keys[text]({"id": str(key) if text else key}, of_key),
                              json.dumps({"id": str(key) if text else key}).encode()])  # fmt: skip
        id_: int | str = str(key) if text else key
        kind = chance.randrange(3)
        value = (
            None if not kind else first({"id": number, "price": Decimal("1.00")}, at(topic)) if kind == 1
            else second({"id": str(number), "tags": []}, at(topic))
        )  # fmt: skip
        sent.append((wire, value))
        rows.pop(id_, None)
        rows |= {id_: number} if kind else {}
    settings = {"key": "_key.id", "delete_when": "value is null"}
    for part in (sent[:25], sent[25:], [(None, None)]):
        kafka.send(topic, part, partition=0)
        captured(table, kafka, registry, topic, value_format="avro", max_records=12, settings=settings)
    found = {
        row.k if row.k is not None else row.k_long: int(row.id if row.id is not None else row.id_string)
        for row in table.read().selectExpr(*_sides(table), "*").collect()
    }
    assert found == rows
    assert table.quarantine().groups[0].reason == "key: no value"

    order = order_class(("id", 4), ("note", 9))
    write = ProtobufSerializer(order, producer(registry))
    other, topic = table.lake.table(f"{table.name}_p"), f"{topic}-p"
    messages = [(write(order(id=n % 3, note="k"), SerializationContext(topic, MessageField.KEY)),
                 write(order(id=n, note="x"), at(topic)) if n < 5 else None) for n in range(6)]  # fmt: skip
    kafka.send(topic, messages, partition=0)
    captured(other, kafka, registry, topic, value_format="protobuf", settings=settings)
    assert sorted(tuple(r) for r in other.read().select("_key.id", "id").collect()) == [(0, 3), (1, 4)]

    text_of = JSONSerializer('{"type": "object", "title": "K"}', producer(registry))
    last, topic = table.lake.table(f"{table.name}_j"), f"{topic}-j"
    messages = [(text_of({"id": n % 3}, SerializationContext(topic, MessageField.KEY)),
                 text_of({"n": n}, at(topic)) if n < 5 else None) for n in range(6)]  # fmt: skip
    kafka.send(topic, messages, partition=0)
    captured(last, kafka, registry, topic, value_format="json-schema", settings=settings)
    assert sorted(tuple(r) for r in last.read().select("_key.id", "n").collect()) == [(0, 3), (1, 4)]


def _sides(table: Table) -> list[str]:
    """The columns of the number and of the text in a key, whichever came first."""
    names = {f.name: f.dataType.typeName() for f in table.read().schema["_key"].dataType.fields}  # type: ignore[attr-defined]
    number = next(name for name, type_ in names.items() if type_ == "long")
    text = next(name for name, type_ in names.items() if type_ == "string")
    return [f"_key.{number} as k_long", f"_key.{text} as k"]


@pytest.mark.iceberg_only("nothing of it is of a format")
def test_a_registry_that_is_away_and_comes_back(
    table: Table,
    kafka: Kafka,
    registry: Registry,
    topic: str,
) -> None:
    schema = FIRST.replace("Order", f"Order{int(time.time())}")  # one that no task has asked for yet
    value = AvroSerializer(producer(registry), schema)({"id": 1, "price": Decimal("1.50")}, at(topic))
    kafka.send(topic, [value])
    registry.failures = [403] * 50
    with pytest.raises(SetupError, match="returned no schema: 403 Forbidden") as caught:
        captured(table, kafka, registry, topic, value_format="avro")
    assert "s3cret" not in str(caught.value)
    registry.failures = []
    captured(table, kafka, registry, topic, value_format="avro")
    assert table.read().count() == 1


WIDE = """["null", {"type": "record", "name": "Wide", "namespace": "a.b", "fields": [
    {"name": "id", "type": "long"},
    {"name": "at", "type": {"type": "long", "logicalType": "timestamp-micros"}},
    {"name": "day", "type": ["null", {"type": "int", "logicalType": "date"}]},
    {"name": "f", "type": "float"}, {"name": "raw", "type": "bytes"},
    {"name": "either", "type": ["null", "string", "double", {"type": "array", "items": "int"}]},
    {"name": "of", "type": {"type": "map", "values": ["null", {"type": "record", "name": "In", "fields": [
        {"name": "id", "type": "long"}, {"name": "f", "type": ["float", "null"]}]}]}},
    {"name": "again", "type": "In"}]}]"""
NESTED = """{"type": "record", "name": "N", "fields": [{"name": "n", "type": ["null", "N"]}]}"""
VERIFIED: dict[str, Any] = {"value_format": "avro", "audit": True, "verify": True}


@pytest.mark.iceberg_only("of the source alone: audits of both formats are in test_audit.py")
def test_micro_batch_of_avro_is_verified_before_anyone_sees_it(
    table: Table, kafka: Kafka, registry: Registry, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = (AvroSerializer(producer(registry), schema) for schema in (FIRST, SECOND))
    wide = AvroSerializer(producer(registry), WIDE)
    leaf = {"id": 7, "f": 0.1}
    record = {"id": 8, "at": -1, "day": 19000, "f": 0.1, "raw": b"\xff", "either": [1], "again": leaf}
    record["of"] = {"x": None, "y": leaf, "z": {"id": 9, "f": None}}
    nested = AvroSerializer(producer(registry), NESTED)({"n": {"n": None}}, at(topic))
    values = [
        first({"id": 1, "price": Decimal("1.50")}, at(topic)),
        second({"id": "a", "tags": ["x"]}, at(topic)),
    ]
    wrong = [b'{"id": 7}', b"\0\0\0\x03\xe7x", values[0] + b"x", nested]
    kafka.send(topic, [*values, wide(record, at(topic)), None, *wrong], partition=0)
    (batch,) = captured(table, kafka, registry, topic, **VERIFIED)
    assert (batch.result.rows_written, batch.result.rows_quarantined, batch.tombstones) == (3, 4, 1)

    def twice(frame: DataFrame, *args: Any, **options: Any) -> messages.WrittenMessages:
        """The messages, each of them twice, as if a row of each had been lost."""
        return messages.write(frame.union(frame), *args, **options)

    lost = [first({"id": id_, "price": Decimal("2.50")}, at(topic)) for id_ in (4, 5)]
    kafka.send(topic, lost, partition=0)
    monkeypatch.setattr(check_sources, "written_messages", twice)
    with pytest.raises(AuditError, match="2 verify") as raised:
        captured(table, kafka, registry, topic, **VERIFIED)
    assert all(violation.seen_in.startswith(f"{topic}/0") for violation in raised.value.result.audit)
    assert table.read().count() == 3


@pytest.mark.iceberg_only("of the source alone: audits of both formats are in test_audit.py")
def test_micro_batch_of_protobuf_is_verified_before_anyone_sees_it(
    table: Table, kafka: Kafka, registry: Registry, topic: str
) -> None:
    row = order_class(
        ("id", 4), ("note", 9), ("f", 2), ("raw", 12), ("n", 5)
    )  # uint64, string, float, bytes, int32
    write = ProtobufSerializer(row, producer(registry))
    key, settings = (
        SerializationContext(topic, MessageField.KEY),
        {"key": "_key.id", "delete_when": "value is null"},
    )
    first = [
        (
            write(row(id=n, note="k"), key),
            write(row(id=2**64 - n, note=f"{n}", f=0.1, raw=b"\xff"), at(topic)),
        )
        for n in (1, 2)
    ]
    kafka.send(topic, [*first, (b"x", b"\0\0\0\0\1"), (b"x", b"bad")], partition=0)
    verified = VERIFIED | {"value_format": "protobuf", "settings": settings}
    (batch,) = captured(table, kafka, registry, topic, **verified)
    assert (batch.result.rows_written, batch.result.rows_quarantined) == (2, 2)
    kafka.send(topic, [(first[0][0], None), (first[1][0], write(row(id=7), at(topic)))], partition=0)
    captured(table, kafka, registry, topic, **verified)
    assert [int(found.id) for found in table.read().collect()] == [7]


@pytest.mark.parametrize("envelope", ["", "debezium"])
def test_typed_messages_are_verified_by_their_keys(
    table: Table, kafka: Kafka, registry: Registry, topic: str, envelope: str
) -> None:
    of_key = SerializationContext(topic, MessageField.KEY)
    keys = AvroSerializer(
        producer(registry), '{"type": "record", "name": "K", "fields": [{"name": "id", "type": "long"}]}'
    )
    write = AvroSerializer(producer(registry), CHANGE if envelope else FIRST)

    def message(id_: int, n: int | None, lsn: int = 0) -> tuple[Any, Any]:
        row = None if n is None else {"id": id_, "total": n}
        source = {"table": "t", "lsn": lsn, "connector": "postgresql"}
        changed = {"op": "u" if row else "d", "before": None, "after": row, "source": source}
        value = changed if envelope else {"id": n, "price": Decimal("1.50")}
        key = json.dumps({"id": id_}).encode() if lsn % 2 else keys({"id": id_}, of_key)
        return key, None if n is None and not envelope else write(value, at(topic))

    settings = {"envelope": envelope, "key": "id"} if envelope else {
        "key": "_key.id", "delete_when": "value is null and _key.id < 3"
    }  # fmt: skip
    first = [message(1, 5, 1), message(2, 6, 2), message(3, 7, 3), (b"k", b"bad")]
    kafka.send(topic, first, partition=0)
    captured(table, kafka, registry, topic, settings=settings, **VERIFIED)
    kafka.send(topic, [message(1, None, 5), message(2, 8, 4), (keys({"id": 9}, of_key), None)], partition=0)
    captured(table, kafka, registry, topic, **VERIFIED)
    assert table.read().count() == 2
    verdict = table.verify(f"kafka://{kafka.address}/{topic}", exactly=True, **again(registry))
    assert verdict.ok and (verdict.records, verdict.quarantined) == ((6, 1) if envelope else (7, 2))


KIND = """{"type": "record", "name": "Kind", "fields": [
    {"name": "kind", "type": ["null", "string"]}, {"name": "id", "type": "long"},
    {"name": "by", "type": ["null", {"type": "record", "name": "By", "fields": [
        {"name": "user", "type": ["null", "string"]}, {"name": "bot", "type": ["null", "int"]}]}]},
    {"name": "note", "type": ["null", "string"]}]}"""


LOGIN = "me:s3cret"


def kinds(
    lake: Lake, pattern: str, kafka: Kafka, registry: Registry, topic: str, **options: Any
) -> list[PatternBatch]:
    """Capture a topic of Avro into the tables of a pattern, and verify each micro-batch."""
    batches: list[PatternBatch] = []
    query = lake.fan_out(pattern).capture(
        f"kafka://{kafka.address}/{topic}", name="kinds", on_batch=batches.append,
        registry={"url": registry.url, "basic.auth.user.info": LOGIN}, **VERIFIED, **options,
    )  # fmt: skip
    assert query.awaitTermination(120)
    return batches


@pytest.mark.parametrize("most", [100, pytest.param(2, marks=pytest.mark.nightly)])
def test_typed_values_go_into_the_tables_that_they_name_with_the_fields_that_they_fill(
    lake: Lake, kafka: Kafka, registry: Registry, topic: str, most: int
) -> None:
    space = topic.replace("-", "_")
    write = AvroSerializer(producer(registry), KIND)
    rows: list[dict[str, Any]] = [
        {"kind": "a", "id": 1, "by": {"user": "x", "bot": None}, "note": None},
        {"kind": "b", "id": 2, "by": None, "note": "n"},
        {"kind": "A", "id": 3, "by": {"user": "y", "bot": None}, "note": None},
        {"kind": None, "id": 4, "by": {"user": None, "bot": 7}, "note": None},
    ]
    values: list[Any] = [write(row, at(topic)) for row in rows]
    kafka.send(topic, [*values, (b"k", None), b"{}"], partition=0)
    batches = kinds(
        lake,
        f"{space}.{{kind}}",
        kafka,
        registry,
        topic,
        metadata="offset",
        max_records=most,
    )
    assert sum(batch.result.rows_written for batch in batches) == 4
    found = {
        name: [row.asDict(True) for row in lake.table(f"{space}.{name}").read().orderBy("id").collect()]
        for name in ("a", "b", "_other")
    }
    assert found == {
        "a": [
            {"kind": "a", "id": 1, "by": {"user": "x"}, "_source": {"offset": 0}},
            {"kind": "A", "id": 3, "by": {"user": "y"}, "_source": {"offset": 2}},
        ],
        "b": [{"kind": "b", "id": 2, "note": "n", "_source": {"offset": 1}}],
        "_other": [{"id": 4, "by": {"bot": 7}, "_source": {"offset": 3}}],
    }
    kept = quarantine.of(lake.table(f"{space}._other").format).read().collect()
    assert [(row.topic, row.offset, row.raw) for row in kept] == [(topic, 5, "{}")]
    tables, avro = lake.fan_out(f"{space}.{{kind}}"), again(registry)
    verdict = tables.verify(f"kafka://{kafka.address}/{topic}", exactly=True, **avro)
    assert (verdict.ok, verdict.records, verdict.found, verdict.quarantined) == (True, 5, 4, 1)
    lake.table(f"{space}.a").erase("id = 3")
    verdict = tables.verify(f"kafka://{kafka.address}/{topic}", **avro)
    assert (verdict.missing, verdict.verdicts[f"{space}.a"].missing) == (1, 1)


def again(registry: Registry) -> dict[str, Any]:
    """The arguments with which a topic of Avro is read once more."""
    return {
        "value_format": "avro",
        "registry": {"url": registry.url, "basic.auth.user.info": LOGIN},
    }


CHANGE = """{"type": "record", "name": "Change", "fields": [
    {"name": "op", "type": "string"},
    {"name": "before", "type": ["null", {"type": "record", "name": "Row", "fields": [
        {"name": "id", "type": "long"}, {"name": "total", "type": ["null", "int"]}]}]},
    {"name": "after", "type": ["null", "Row"]},
    {"name": "source", "type": {"type": "record", "name": "Source", "fields": [
        {"name": "table", "type": "string"}, {"name": "lsn", "type": "long"},
        {"name": "connector", "type": "string"}]}}]}"""


def test_typed_changes_of_a_database_go_into_one_table_for_each_of_its_tables(
    lake: Lake, kafka: Kafka, registry: Registry, topic: str
) -> None:
    space, write = topic.replace("-", "_"), AvroSerializer(producer(registry), CHANGE)

    def change(op: str, table: str, lsn: int, before: Any, after: Any) -> Any:
        source = {"table": table, "lsn": lsn, "connector": "postgresql"}
        return write({"op": op, "before": before, "after": after, "source": source}, at(topic))

    changes = [
        change("c", "orders", 1, None, {"id": 1, "total": 5}),
        change("c", "users", 2, None, {"id": 1, "total": None}),
        change("u", "orders", 3, {"id": 1, "total": 5}, {"id": 1, "total": 7}),
        change("d", "users", 4, {"id": 1, "total": None}, None),
        change("c", "users", 5, None, {"id": 2, "total": None}),
    ]
    kafka.send(topic, changes, partition=0)
    settings = {"key": "id", "envelope": "debezium"}
    kinds(lake, f"{space}.{{source.table}}", kafka, registry, topic, settings=settings)
    found = {name: lake.table(f"{space}.{name}").read().collect() for name in ("orders", "users")}
    assert {name: [(row.id, row.asDict().get("total")) for row in rows] for name, rows in found.items()} == {
        "orders": [(1, 7)], "users": [(2, None)],
    }  # fmt: skip
    url, avro = f"kafka://{kafka.address}/{topic}", again(registry)
    verdict = lake.fan_out(f"{space}.{{source.table}}").verify(url, exactly=True, **avro)
    assert (verdict.ok, verdict.records, verdict.found) == (True, 5, 2)
