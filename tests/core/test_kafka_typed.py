"""Typed values of Kafka without Spark: the schemas of a registry, what becomes of each value, and what is none."""

from __future__ import annotations

import base64
import io
import json
from collections.abc import Iterator, Mapping
from datetime import UTC, date, datetime
from decimal import Decimal
from types import SimpleNamespace
from typing import Any

import fastavro
import pyarrow as pa
import pytest
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message_factory import GetMessageClass

from core.shapes import schema as written
from core.tasks import run
from driftline.convert import Converter
from driftline.core.planning.planner import plan
from driftline.core.schema.types import Schema
from driftline.core.settings.properties import from_properties, resolved_as
from driftline.core.settings.table import TableSettings
from driftline.errors import SetupError, UsageError
from driftline.observe.expect import expect
from driftline.readers.kafka import protobuf
from driftline.readers.kafka import registry as client
from driftline.readers.kafka.registry import Registered
from driftline.readers.kafka.values import Wire
from driftline.readers.task import AdmissionTerms
from driftline.sources.kafka_typed import KafkaReader, observed_together
from servers.registry import Registry


@pytest.fixture
def registry() -> Iterator[Registry]:
    with Registry() as running:
        yield running


def record(name: str, /, **fields: Any) -> dict[str, Any]:
    return {
        "type": "record",
        "name": name,
        "fields": [{"name": key, "type": type_} for key, type_ in fields.items()],
    }


def avro(number: int, schema: Any, value: Any, named: dict[str, Any] | None = None) -> bytes:
    """A value in the wire format."""
    out = io.BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(schema, named or {}), value)
    return framed(number, out.getvalue())


def framed(number: int, payload: bytes) -> bytes:
    return b"\0" + number.to_bytes(4, "big") + payload


def of_kafka(values: list[bytes | None]) -> pa.RecordBatch:
    count = len(values)
    return pa.record_batch(
        {
            "value": pa.array(values, pa.binary()),
            "topic": ["orders"] * count,
            "partition": pa.array([0] * count, pa.int32()),
            "offset": pa.array(range(count), pa.int64()),
        }
    )


def taken(
    registry: Registry, values: list[bytes | None], fmt: str = "avro", **settings: str
) -> tuple[dict[str, str], list[dict[str, Any]], list[dict[str, Any]]]:
    """The columns and rows of a table that the values came into, and what was set aside."""
    wire = Wire(fmt, client.Registry.of({"url": registry.url, **settings}))
    terms = AdmissionTerms(expect(Schema()), TableSettings())
    batch = of_kafka(values)
    *_, reported = run(KafkaReader(wire, terms), iter([batch]))
    whole = observed_together([reported.observed], terms)
    planned = plan(Schema(), whole.shape)
    struct = planned.schema.struct
    reader = KafkaReader(wire, terms, Converter(struct, planned.route, TableSettings()))
    batches, aside, again = run(reader, iter([batch]))
    assert not again.diverged
    rows = [row for rows in batches for row in rows.to_pylist()]
    kept = [row for some in aside for row in some.to_pylist()]
    assert whole.tally.rejected == len(kept) and whole.tally.records == len(rows)
    return {f.name: str(f.type) for f in struct.fields}, rows, kept


def test_texts_of_a_resolved_field_are_read_as_its_type(registry: Registry) -> None:
    settings = from_properties(resolved_as(("n",), "double", {}))
    schema = record("R", n="string")
    number = registry.register("orders-value", schema)
    wire = Wire("avro", client.Registry.of({"url": registry.url}))
    before = written("n: double")
    terms = AdmissionTerms(expect(before, settings), settings)
    batch = of_kafka([avro(number, schema, {"n": text}) for text in ("12.50", "7")])
    *_, reported = run(KafkaReader(wire, terms), iter([batch]))
    planned = plan(before, observed_together([reported.observed], terms).shape, settings)
    assert planned.changes == ()
    reader = KafkaReader(wire, terms, Converter(before.struct, planned.route, settings))
    batches, _, again = run(reader, iter([batch]))
    assert not again.diverged
    assert [row for rows in batches for row in rows.to_pylist()] == [{"n": 12.5}, {"n": 7.0}]


ORDER = record(
    "Order",
    id="long",
    at={"type": "long", "logicalType": "timestamp-micros"},
    day={"type": "int", "logicalType": "date"},
    price={"type": "bytes", "logicalType": "decimal", "precision": 12, "scale": 4},
    note=["null", "string", "long"],
)


def test_types_are_those_of_the_schema_and_unions_are_siblings(registry: Registry) -> None:
    number = registry.register("orders-value", ORDER)
    at, price = datetime(2026, 1, 31, 12, 0, 0, 123456, tzinfo=UTC), Decimal("19.9900")
    values = [
        avro(number, ORDER, {"id": i, "at": at, "day": date(2026, 1, 31), "price": price, "note": note})
        for i, note in enumerate([None, "x", 7])
    ]
    types, rows, kept = taken(registry, values)
    assert types == {
        "id": "long",
        "at": "timestamp",
        "day": "date",
        "price": "decimal(12, 4)",
        "note_long": "long",
        "note": "string",
    }
    assert rows[1] == {
        "id": 1,
        "at": at,
        "day": date(2026, 1, 31),
        "price": price,
        "note": "x",
        "note_long": None,
    }
    assert [row["note_long"] for row in rows] == [None, None, 7] and not kept


def test_each_message_is_read_by_its_own_schema(registry: Registry) -> None:
    """Also where a later version of the subject breaks with the one before."""
    old, new = record("Order", id="long", qty="int"), record("Order", id="string", total="double")
    first, second = registry.register("orders-value", old), registry.register("orders-value", new)
    values = [
        avro(second, new, {"id": "a", "total": 1.5}),
        avro(first, old, {"id": 1, "qty": 2}),
        None,
        avro(second, new, {"id": "b", "total": 2.5}),
    ]
    types, rows, kept = taken(registry, values)
    assert types == {"id_long": "long", "qty": "int", "id": "string", "total": "double"}
    assert sorted((r["id_long"] or 0, r["id"] or "") for r in rows) == [(0, "a"), (0, "b"), (1, "1")]
    assert not kept
    assert registry.asked == {f"schemas/ids/{first}": 1, f"schemas/ids/{second}": 1}


def test_references_and_unions_of_records(registry: Registry) -> None:
    place = record("shop.Place", town="string")
    created = record("shop.Created", id="long", place="shop.Place")
    shipped = record("shop.Shipped", id="long", to="shop.Place")
    registry.register("place", place)
    registry.register("created", created, shop__Place=("place", 1))
    registry.register("shipped", shipped, shop__Place=("place", 1))
    top = ["shop.Created", "shop.Shipped"]
    number = registry.register(
        "events-value", top, shop__Created=("created", 1), shop__Shipped=("shipped", 1)
    )
    named: dict[str, Any] = {}
    for one in (place, created, shipped):
        fastavro.parse_schema(one, named)
    out = []
    for value in (
        ("shop.Created", {"id": 1, "place": {"town": "Bonn"}}),
        ("shop.Shipped", {"id": 2, "to": {"town": "Ulm"}}),
    ):
        file = io.BytesIO()
        wrapped = record("Top", value=top)
        fastavro.schemaless_writer(file, fastavro.parse_schema(wrapped, dict(named)), {"value": value})
        out.append(framed(number, file.getvalue()))
    types, rows, kept = taken(registry, out)
    assert types == {"id": "long", "place": "struct<town: string>", "to": "struct<town: string>"}
    assert rows == [
        {"id": 1, "place": {"town": "Bonn"}, "to": None},
        {"id": 2, "place": None, "to": {"town": "Ulm"}},
    ]
    assert not kept


@pytest.mark.parametrize(
    ("value", "why"),
    [
        (b"", "not in the registry's wire format: it is empty"),
        (b'{"id": 1}', "not in the registry's wire format: it begins with byte 0x7B, not 0x00"),
        (b"\0\0\0", "not in the registry's wire format: it is cut off within the schema's id"),
        (framed(99, b"x"), "the registry has no schema 99: Schema not found"),
        (framed(1, b"\x02"), "invalid Avro for its schema"),
        (framed(1, b"\x02\x04hi\xff"), "invalid Avro for its schema: 1 bytes follow the record"),
        (framed(1, b"\x02\x04\xff\xfe"), "invalid Avro for its schema"),
        (framed(2, b"\x02"), "schema 2: its values are not records"),
        (framed(3, b"\x02"), "schema 3 is JSON, not AVRO"),
        (framed(4, b"\x02"), "schema 4: invalid Avro schema"),
        (framed(5, b"\0"), "schema 5: next: the type Node is recursive"),
        (framed(6, b""), "Empty has no fields"),
    ],
)
def test_what_is_no_record_is_set_aside_with_all_its_bytes(
    registry: Registry, value: bytes, why: str
) -> None:
    schema = record("Order", id="long", name="string")
    registry.register("a", schema)
    registry.register("b", '"string"')
    registry.register("c", {"type": "object"}, "JSON")
    registry.register("d", record("Order", id="no.Where"))
    registry.register("e", record("Node", next=["null", "Node"]))
    registry.register("f", record("Empty"))
    _, rows, (kept,) = taken(registry, [avro(1, schema, {"id": 1, "name": "hi"}), value])
    assert [row["id"] for row in rows] == [1]
    assert kept["reason"].startswith(why)
    assert (kept["raw_bytes"] if kept["raw_bytes"] is not None else kept["raw"].encode()) == value
    assert "\0" not in kept["raw"]
    assert (kept["topic"], kept["partition"], kept["offset"]) == ("orders", 0, 1)


def test_a_registry_that_is_busy_is_asked_again(registry: Registry, monkeypatch: pytest.MonkeyPatch) -> None:
    pauses: list[float] = []
    monkeypatch.setattr(client, "time", SimpleNamespace(sleep=pauses.append))  # of this module alone
    schema = record("Order", id="long")
    number = registry.register("a", schema)
    registry.failures = [503, 429, 500]
    _, rows, kept = taken(registry, [avro(number, schema, {"id": 1})])
    assert (len(rows), kept, pauses) == (1, [], [0.5, 1, 2])


@pytest.mark.parametrize(
    ("failures", "says"),
    [([401], "401 Unauthorized"), ([404], "404 Not Found"), ([503] * 6, "503 Service Unavailable")],
)
def test_a_registry_that_gives_nothing(
    registry: Registry, monkeypatch: pytest.MonkeyPatch, failures: list[int], says: str
) -> None:
    monkeypatch.setattr(client, "time", SimpleNamespace(sleep=lambda _: None))
    registry.register("a", record("Order", id="long"))
    registry.failures = failures
    with pytest.raises(SetupError, match=says):
        taken(registry, [framed(1, b"\x02")])


def test_a_registry_that_is_away(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client, "time", SimpleNamespace(sleep=lambda _: None))
    with Registry() as gone:
        url = gone.url
    with pytest.raises(
        SetupError, match=r"http://\*\*\*@127.0.0.1:\d+ returned no schema: .*refused"
    ) as caught:
        client.Registry.of({"url": url.replace("//", "//me:s3cret@")}).schema(1)
    assert "s3cret" not in str(caught.value)


@pytest.mark.parametrize("settings", [{"basic.auth.user.info": "me:s3cret"}, {}])
def test_a_registry_with_a_login(settings: Mapping[str, str]) -> None:
    with Registry("me:s3cret") as guarded:
        number = guarded.register("a", record("Order", id="long"))
        url = guarded.url if settings else guarded.url.replace("//", "//me:s3cret@")
        ours = client.Registry.of({"url": url, **settings})
        assert json.loads(ours.schema(number).text)["name"] == "Order"
        assert "s3cret" not in repr(ours)
        with pytest.raises(SetupError, match="401 Unauthorized"):
            client.Registry.of({"url": guarded.url}).schema(number)


@pytest.mark.parametrize(
    ("settings", "says", "todo"),
    [
        ({"url": "ftp://x"}, "'ftp://x' is not a registry URL", "write --registry"),
        ({"url": "https://"}, "'https://' is not a registry URL", "write --registry"),
        ({"url": "file:///etc/passwd"}, "is not a registry URL", "write --registry"),
        (
            {"url": "http://x", "basic.auth.userinfo": "a:b"},
            "no setting 'basic.auth.userinfo'",
            "'basic.auth.user.info'",
        ),
        ({"url": "http://x", "ssl.ca.location": "nowhere.pem"}, "nowhere.pem: cannot be read", ""),
    ],
)
def test_settings_of_a_registry(settings: Mapping[str, str], says: str, todo: str) -> None:
    with pytest.raises(UsageError, match=says) as caught:
        client.Registry.of(settings)
    assert todo in (caught.value.hint or "")


ORDER_PROTO = """
syntax = "proto3";
package shop;
import "place.proto";
import "google/protobuf/timestamp.proto";
import "google/protobuf/struct.proto";
import "google/protobuf/wrappers.proto";
import "google/type/date.proto";
message Other { string a = 1; }
message Order {
  enum State { NEW = 0; PAID = 1; }
  uint64 id = 1;
  State state = 2;
  google.protobuf.Timestamp at = 3;
  optional string note = 4;
  oneof how { string card = 5; int32 cash = 6; }
  map<int32, shop.Place> places = 7;
  repeated sint64 counts = 8;
  google.protobuf.StringValue tag = 9;
  google.protobuf.Struct extra = 10;
  Order before = 11;
  bytes raw = 12;
  message Line { float f = 1; double d = 2; bool b = 3; fixed32 u = 4; }
  Line line = 13;
  google.type.Date day = 14;
}
"""
PLACE_PROTO = 'syntax = "proto3"; package shop; message Place { string town = 1; }'


@pytest.fixture(scope="module")
def order() -> Any:
    """The class of shop.Order."""
    pool = DescriptorPool()
    texts = {"place.proto": Registered("PROTOBUF", PLACE_PROTO)}
    for file in protobuf.files_of(Registered("PROTOBUF", ORDER_PROTO, texts)):
        pool.AddSerializedFile(file.SerializeToString())
    return GetMessageClass(pool.FindMessageTypeByName("shop.Order"))


def base64_of(order: Any, name: str) -> str:
    """The answer of a registry that is asked for descriptors."""
    file = order.DESCRIPTOR.file if name != "place.proto" else order.DESCRIPTOR.file.dependencies[0]
    return base64.b64encode(file.serialized_pb).decode()


@pytest.mark.parametrize("serialized", [True, False])
def test_protobuf(registry: Registry, order: Any, serialized: bool) -> None:
    place, text = (
        (base64_of(order, "place.proto"), base64_of(order, "")) if serialized else (PLACE_PROTO, ORDER_PROTO)
    )
    registry.register("place", place, "PROTOBUF")
    number = registry.register("orders-value", text, "PROTOBUF", place__proto=("place", 1))
    message = order(id=2**64 - 1, state=1, cash=7, counts=[1, -2], raw=b"\xff")
    message.at.FromJsonString("9999-12-31T23:59:59.123456Z")
    message.places[-3].town = "Bonn"
    message.tag.value = "t"
    message.extra["a"] = [1, None]
    message.before.id = 1
    message.line.u = 2**32 - 1
    fine = order(note="", state=9)
    fine.at.FromJsonString("2026-01-31T12:00:00.123456789Z")
    places = b"\x02\x02"  # one step: the second message of the file
    types, rows, kept = taken(
        registry, [framed(number, places + one.SerializeToString()) for one in (message, fine)], "protobuf"
    )
    assert types == {
        "id": "decimal(20, 0)",
        "state": "string",
        "at": "timestamp",
        "at_string": "string",
        "note": "string",
        "card": "string",
        "cash": "int",
        "places": "map<int, struct<town: string>>",
        "counts": "list<long>",
        "tag": "string",
        "extra": "string",
        "before": "string",
        "raw": "binary",
        "line": "struct<f: float, d: double, b: boolean, u: long>",
        "day": "struct<year: int, month: int, day: int>",
    }
    first, second = rows
    assert not kept
    assert first["at"] == datetime(9999, 12, 31, 23, 59, 59, 123456, tzinfo=UTC)
    assert {
        key: first[key] for key in ("id", "state", "note", "card", "cash", "places", "counts", "tag", "raw")
    } == {
        "id": Decimal(2**64 - 1),
        "state": "PAID",
        "note": None,
        "card": None,
        "cash": 7,
        "places": [(-3, {"town": "Bonn"})],
        "counts": [1, -2],
        "tag": "t",
        "raw": b"\xff",
    }
    assert json.loads(first["extra"]) == {"a": [1, None]} and json.loads(first["before"]) == {"id": "1"}
    assert first["line"] == {"f": 0, "d": 0, "b": False, "u": 2**32 - 1}
    assert (second["at_string"], second["at"]) == ("2026-01-31T12:00:00.123456789Z", None)
    assert (second["note"], second["state"], second["line"], second["cash"]) == ("", "9", None, None)


@pytest.mark.parametrize(
    ("payload", "why"),
    [
        (b"", "it is cut off within the places of its message type"),
        (b"\x04\x02", "it is cut off within the places"),
        (b"\x02\x08", "its schema has no message type 4"),
        (b"\x01", "its count of places is below zero"),
        (b"\x02\x02\x08", "no shop.Order"),
        (b"\x02\x02\xf8\x01\x01", "it has fields that shop.Order has not"),
    ],
)
def test_what_is_no_protobuf_is_set_aside(registry: Registry, order: Any, payload: bytes, why: str) -> None:
    registry.register("place", base64_of(order, "place.proto"), "PROTOBUF")
    number = registry.register("o", base64_of(order, ""), "PROTOBUF", place__proto=("place", 1))
    _, _, (kept,) = taken(registry, [framed(number, payload)], "protobuf")
    assert why in kept["reason"]
    assert (kept["raw_bytes"] or kept["raw"].encode()) == framed(number, payload)


@pytest.mark.parametrize(
    ("text", "references", "why"),
    [
        ("message {", {}, "invalid Protobuf schema"),
        ('syntax = "proto3"; import "os.proto"; message A { int32 a = 1; }', {}, "os.proto"),
        ('syntax = "proto3"; message A { int32 a = 1; }', {"../../x.proto": ("x", 1)}, "refers to a file"),
        ('syntax = "proto3"; message A { int32 a = 1; }', {"/x.proto": ("x", 1)}, "refers to a file"),
    ],
)
def test_a_schema_that_does_not_compile_stops_nothing(
    registry: Registry, text: str, references: dict[str, Any], why: str
) -> None:
    registry.register("x", PLACE_PROTO, "PROTOBUF")
    named = [{"name": name, "subject": of, "version": version} for name, (of, version) in references.items()]
    number = registry.add("a", {"schema": text, "schemaType": "PROTOBUF", "references": named})
    _, _, (kept,) = taken(registry, [framed(number, b"\0\x08\x01")], "protobuf")
    assert why in kept["reason"]
