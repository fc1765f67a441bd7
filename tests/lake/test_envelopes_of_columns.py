"""Messages in envelopes that come as columns: files of Parquet and Avro, tables of Arrow, topics of Protobuf."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from datetime import UTC, date, datetime, time
from decimal import Decimal
from pathlib import Path
from typing import Any

import fastavro
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.protobuf import ProtobufSerializer
from confluent_kafka.serialization import MessageField, SerializationContext
from google.protobuf.descriptor_pb2 import FileDescriptorProto
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message_factory import GetMessageClass

from driftline.errors import DataError
from driftline.lake import Lake
from lake.test_capture_keys import cut, run
from lake.test_keyed import rows_of
from servers.kafka import Kafka
from servers.registry import Registry

SETTINGS = {"key": "id", "envelope": "debezium"}
ROW = pa.struct(
    [
        ("id", pa.int64()), ("name", pa.string()), ("price", pa.decimal128(12, 2)), ("raw", pa.binary()),
        ("ratio", pa.float32()), ("seen", pa.timestamp("us", "UTC")), ("day", pa.date32()),
        ("clock", pa.time64("us")), ("tags", pa.list_(pa.string())), ("sizes", pa.map_(pa.string(), pa.int32())),
        ("inside", pa.struct([("n", pa.int32()), ("fine", pa.timestamp("ns"))])),
    ]
)  # fmt: skip
SOURCE = pa.struct([("connector", pa.string()), ("lsn", pa.int64())])
MESSAGES = pa.schema([("op", pa.string()), ("before", ROW), ("after", ROW), ("source", SOURCE)])
AVRO_ROW = {
    "type": "record",
    "name": "Value",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "name", "type": ["null", "string", {"type": "int", "connect.name": "io.debezium.time.Date"}]},
        {"name": "price", "type": {"type": "bytes", "logicalType": "decimal", "precision": 12, "scale": 2}},
        {"name": "raw", "type": "bytes"},
        {"name": "ratio", "type": "float"},
        {"name": "seen", "type": {"type": "long", "connect.name": "io.debezium.time.MicroTimestamp"}},
        {"name": "day", "type": {"type": "int", "logicalType": "date"}},
        {"name": "clock", "type": {"type": "long", "logicalType": "time-micros"}},
        {"name": "tags", "type": {"type": "array", "items": "string"}},
        {"name": "sizes", "type": {"type": "map", "values": "int"}},
    ],
}  # fmt: skip
AVRO_SOURCE = {
    "type": "record",
    "name": "Source",
    "fields": [{"name": "connector", "type": "string"}, {"name": "lsn", "type": ["null", "long"]}],
}
AVRO = {
    "type": "record",
    "name": "Envelope",
    "fields": [
        {"name": "op", "type": "string"},
        {"name": "before", "type": ["null", AVRO_ROW]},
        {"name": "after", "type": ["null", "Value"]},
        {"name": "source", "type": AVRO_SOURCE},
    ],
}


class Database:
    """A table whose changes are messages; ``rows`` is what it has in the end."""

    def __init__(self, chance: random.Random, fmt: str) -> None:
        self.chance, self.fmt, self.at = chance, fmt, 0
        self.rows: dict[int, dict[str, Any]] = {}

    def row(self, id_: int) -> dict[str, Any]:
        """A row with a value of each type."""
        chance, at = self.chance, self.at
        row = {
            "id": id_,
            "name": chance.choice(["Ann", "2026-03-01", "é", "", None]),
            "price": Decimal(at) + Decimal("0.10"),
            "raw": bytes([at % 256, 255]),
            "ratio": chance.choice([0.1, 1e20, float("nan"), float("-inf"), -0.0]),
            "seen": datetime(2026, 3, 1, 12, 0, at % 60, 5, UTC),
            "day": date(2026, 1, 1 + at % 28),
            "clock": time(1, 2, 3, at),
            "tags": chance.choice([["a", "b"], [], ["c"]]),
            "sizes": chance.choice([{}, {"x": at}]),
        }
        if self.fmt == "avro":
            return {**row, "seen": at, "name": chance.choice([row["name"], 20513])}
        return {**row, "inside": chance.choice([None, {"n": at, "fine": None}])}

    def step(self) -> dict[str, Any]:
        """One change."""
        self.at += 1
        id_, source = self.chance.randrange(12), {"connector": "postgresql", "lsn": self.at}
        old = self.rows.pop(id_, None)
        if old is None or self.chance.random() < 0.6:
            row = self.rows[id_] = self.row(id_)
            return {"op": "u" if old else "c", "before": old, "after": row, "source": source}
        new = self.chance.randrange(12, 20)
        if self.chance.random() < 0.5 or new in self.rows:
            return {"op": "d", "before": old, "after": None, "source": source}
        row = self.rows[new] = self.row(new)
        return {"op": "u", "before": old, "after": row, "source": source}


def write(path: Path, messages: Sequence[dict[str, Any]], fmt: str) -> None:
    """A file of messages, in row groups or blocks of a few."""
    whole = path.with_name(f".{path.name}")
    if fmt == "parquet":
        pq.write_table(pa.Table.from_pylist(list(messages), MESSAGES), whole, row_group_size=7)
    else:
        with whole.open("wb") as file:
            fastavro.writer(file, AVRO, messages, sync_interval=200)
    whole.rename(path)


@pytest.mark.nightly
@pytest.mark.parametrize("fmt", ["parquet", "avro"])
def test_files(lake: Lake, table_name: str, tmp_path: Path, fmt: str) -> None:
    """Captured, killed, checked; a message that is none waits, and is read again by a replay."""
    table, chance, source = lake.table(table_name), random.Random(7), tmp_path / "in"
    source.mkdir()
    database = Database(chance, fmt)
    wrong = {"op": "?", "before": None, "after": None, "source": {"connector": "postgresql", "lsn": 0}}
    deaths = ["", "committed", "write", "commit", "remove"]
    for number, part in enumerate(cut(chance, [database.step() for _ in range(75)])):
        write(source / f"{number:03}.{fmt}", [*part, wrong], fmt)
        run(table, source, deaths[number % len(deaths)], max_files=1, format=fmt, settings=SETTINGS)
    assert number >= len(deaths) - 1
    run(table, source, max_files=2, format=fmt, settings=SETTINGS)

    prices = {row["id"]: Decimal(str(row["price"])) for row in rows_of(table)}
    assert prices == {id_: row["price"] for id_, row in database.rows.items()}
    assert table.quarantine().waiting == number + 1
    lines = lake.table(f"{table_name}__quarantine").read().select("source", "line").collect()
    assert len({tuple(line) for line in lines}) == number + 1
    verdict = table.verify(source, exactly=True)
    assert (verdict.missing, verdict.extra, verdict.quarantined) == (0, 0, number + 1), verdict.mismatches
    assert verdict.found == len(database.rows)
    assert (table.replay().written, table.quarantine().waiting) == (0, number + 1)
    # Another row than the message has is noticed.
    last = database.step()
    write(source / f"zzz.{fmt}", [{**last, "op": "c", "before": None, "after": database.row(99)}], fmt)
    assert table.verify(source).missing == 1


@pytest.mark.nightly
def test_a_table_of_arrow(lake: Lake, table_name: str) -> None:
    table, chance = lake.table(table_name), random.Random(3)
    database = Database(chance, "parquet")
    messages = [database.step() for _ in range(80)]
    sent = pa.Table.from_pylist(chance.sample(messages, len(messages)), MESSAGES)
    (hint,) = lake.table(f"{table_name}_plain").ingest(sent, dry_run=True).hints
    assert hint.startswith("the records are changes of a database: --envelope debezium")
    strict = {"policy": "strict", "policies.id": "preserve"}
    table.ingest(sent.slice(0, 40), settings=SETTINGS)
    table.ingest(sent.slice(40), settings=strict)
    assert {row["id"] for row in rows_of(table)} == set(database.rows)
    verdict = table.verify(sent, exactly=True)
    assert (verdict.missing, verdict.extra, verdict.found) == (0, 0, len(database.rows))
    # What the policy refuses waits as a message, which a replay takes.
    more = {"id": 7, "name": "x", "new": 1.5}
    source = {"connector": "postgresql", "lsn": 1000}
    later = pa.Table.from_pylist([{"op": "c", "after": more, "source": source}, {"op": "c", "after": more}])
    assert table.ingest(later, settings=strict).rows_quarantined == 2
    replayed = table.replay(settings={"policy": "preserve"})
    assert (replayed.written, replayed.stay) == (1, 1)
    patched = lake.table(f"{table_name}_patched")
    with pytest.raises(DataError, match="merge = 'patch', which needs absent fields told from null ones"):
        patched.ingest(sent, settings={**SETTINGS, "merge": "patch"})


def test_whole_numbers_of_a_type_with_a_fraction(lake: Lake, table_name: str) -> None:
    """Their column is the one that later values need."""
    table, types = lake.table(table_name), [("id", pa.int64()), ("price", ROW.field("price").type)]
    row = pa.struct([*types, ("ratio", pa.float64()), ("count", pa.decimal128(9, 0))])
    schema = pa.schema([("op", pa.string()), ("after", row), ("source", SOURCE)])

    def sent(id_: int, price: str, ratio: float) -> pa.Table:
        after = {"id": id_, "price": Decimal(price), "ratio": ratio, "count": Decimal(id_)}
        source = {"connector": "postgresql", "lsn": id_}
        return pa.Table.from_pylist([{"op": "c", "after": after, "source": source}], schema)

    table.ingest(sent(1, "19.00", 2.0), settings=SETTINGS)
    table.ingest(sent(2, "19.50", 2.5))
    assert {f.name: f.dataType.simpleString() for f in table.read().schema.fields} | {"_change": ""} == {
        "id": "bigint", "price": "double", "ratio": "double", "count": "bigint", "_change": "", "_order": "string",
    }  # fmt: skip


def test_keys_beside_values(lake: Lake, table_name: str) -> None:
    """As a sink writes whole records of a topic: a tombstone is a key beside no value."""
    table = lake.table(table_name)
    key, value = pa.struct([("id", pa.int64())]), pa.struct(list(MESSAGES))
    gone = {"op": "d", "before": None, "after": None, "source": {"connector": "postgresql", "lsn": 2}}
    first = {**gone, "op": "c", "after": {"id": 1}, "source": {"connector": "postgresql", "lsn": 1}}
    records = [{"key": {"id": 1}, "value": first}, {"key": {"id": 1}, "value": gone}, {"key": {"id": 1}}]
    sent = pa.Table.from_pylist(records, pa.schema([("key", key), ("value", value)]))
    result = table.ingest(sent, settings=SETTINGS)
    assert (result.marks, result.rows_quarantined, rows_of(table)) == ({"tombstone": 1}, 0, [])
    assert table.verify(sent, exactly=True).missing == 0


@pytest.mark.nightly
def test_files_of_dms(lake: Lake, table_name: str, tmp_path: Path) -> None:
    """They need no envelope: a full load has no column `Op`, and changes have one, with the time of each."""
    table = lake.table(table_name)
    loaded, changed = tmp_path / "LOAD00000001.parquet", tmp_path / "20260301-120000123.parquet"
    at = [datetime(2026, 3, 1, 12, 0, second, tzinfo=UTC) for second in range(9)]
    rows = pa.table({"id": [1, 2, 3], "name": ["Ann", "Ben", "Cem"], "at": at[:3]})
    pq.write_table(rows, loaded)
    changes = {"Op": ["U", "D", "I"], "id": [1, 2, 4], "name": ["Anna", None, "Dee"], "at": at[3:6]}
    pq.write_table(pa.table(changes), changed)
    settings = {"key": "id", "order_by": "at", "delete_when": "Op = 'D'"}
    table.ingest([changed, loaded], settings=settings)
    assert {row["id"]: row["name"] for row in rows_of(table)} == {1: "Anna", 3: "Cem", 4: "Dee"}
    verdict = table.verify([changed, loaded], exactly=True)
    assert (verdict.missing, verdict.extra) == (0, 0)
    taken = lake.table(f"{table_name}_taken")
    assert taken.ingest(changed, settings={"key": "id", "envelope": "dms"}).rows_quarantined == 3
    (why,) = {row.reason for row in lake.table(f"{table_name}_taken__quarantine").read().collect()}
    assert "need no envelope: delete_when = \"Op = 'D'\"" in why


@pytest.fixture(scope="module")
def registry() -> Iterator[Registry]:
    with Registry() as running:
        yield running


def protobuf() -> Any:
    """The classes of an envelope and of its key."""
    file = FileDescriptorProto(name="people.proto", package="shop", syntax="proto3")
    fields = {
        "Envelope": [("op", 9, ""), ("before", 11, ".shop.Person"), ("after", 11, ".shop.Person"), ("source", 11, ".shop.Source")],
        "Person": [("id", 3, ""), ("name", 9, ""), ("born", 5, "")],
        "Source": [("connector", 9, ""), ("lsn", 3, "")],
    }  # fmt: skip
    for name, some in fields.items():
        message = file.message_type.add(name=name)
        for number, (field, type_, of) in enumerate(some, 1):
            added = message.field.add(name=field, number=number, type=type_, label=1)  # type: ignore[arg-type]
            if of:
                added.type_name = of
    pool = DescriptorPool()
    pool.AddSerializedFile(file.SerializeToString())
    return [GetMessageClass(pool.FindMessageTypeByName(f"shop.{name}")) for name in fields]


@pytest.mark.iceberg_only("of the source alone")
def test_a_topic_of_protobuf(lake: Lake, table_name: str, kafka: Kafka, registry: Registry) -> None:
    """Values and keys by a registry; a delete has its key in that of its message."""
    table, topic = lake.table(table_name), f"protobuf-{table_name}"
    envelope, person, source = protobuf()
    client = SchemaRegistryClient({"url": registry.url})
    text, key = ProtobufSerializer(envelope, client), ProtobufSerializer(person, client)

    def sent(op: str, id_: int, lsn: int, after: Any = None) -> tuple[bytes, bytes]:
        value = envelope(op=op, after=after, source=source(connector="postgresql", lsn=lsn))
        return (
            key(person(id=id_), SerializationContext(topic, MessageField.KEY)),
            text(value, SerializationContext(topic, MessageField.VALUE)),
        )

    messages = [
        sent("c", 1, 1, person(id=1, name="Ann", born=20513)),
        sent("c", 2, 2, person(id=2, name="Ben")),
        sent("u", 1, 3, person(id=1, name="Anna")),
        sent("d", 2, 4),
        (sent("d", 2, 4)[0], None),
        sent("?", 3, 5),
        (b"\0\0\0\3\xe7", sent("d", 1, 9)[1]),
        (None, b"{}"),
    ]
    kafka.send(topic, messages, partition=0)
    options = {"registry": {"url": registry.url}, "value_format": "protobuf"}
    run(table, f"kafka://{kafka.address}/{topic}", settings=SETTINGS, **options)
    (row,) = rows_of(table)
    assert (row["id"], row["name"], row["born"], row["_change"]["op"]) == (1, "Anna", 0, "u")
    waiting = lake.table(f"{table_name}__quarantine").read().select("offset", "reason").collect()
    assert {row.offset: row.reason.split(":")[0] for row in waiting} == {
        5: "op '?' is none of Debezium's",
        6: "the registry has no schema 999",
        7: "not in the registry's wire format",
    }
