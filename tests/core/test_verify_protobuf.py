"""The check's own reading of Protobuf messages, by the source of their schema."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
from google.protobuf import descriptor_pool
from google.protobuf.message_factory import GetMessageClass

from driftline.readers.kafka.protobuf import MAIN, files_of
from driftline.readers.kafka.registry import Registered
from driftline.verify.json_texts import MalformedText
from driftline.verify.protobuf import decoder

SCHEMA = """syntax = "proto3";
package shop;
import "google/protobuf/timestamp.proto";
import "google/protobuf/wrappers.proto";
import "google/protobuf/struct.proto";
message First { int32 id = 1; }
message Order {
  enum State { OPEN = 0; PAID = 1; }
  message Item { string name = 1; Item inside = 2; }
  uint64 id = 1; State state = 2; repeated Item items = 3; map<string, Item> by_name = 4;
  google.protobuf.Timestamp at = 5; google.protobuf.FloatValue f = 6; google.protobuf.Struct any = 7;
  oneof either { string text = 8; bytes raw = 9; }
  optional bool flag = 10;
}"""
ORDER = b"\x02\x02"  # one place, the second type


@pytest.fixture(scope="module")
def order() -> Any:
    pool = descriptor_pool.DescriptorPool()
    for file in files_of(Registered("PROTOBUF", SCHEMA)):
        pool.AddSerializedFile(file.SerializeToString())
    return GetMessageClass(pool.FindFileByName(MAIN).message_types_by_name["Order"])


def test_message_is_read_by_its_schema(order: Any) -> None:
    message = order(id=2**64 - 1, state=1, f={"value": 0.5}, text="x", any={"a": 1.0})
    message.items.add(name="a").inside.name = "b"
    message.by_name["k"].name = "c"
    message.at.FromDatetime(datetime(2026, 1, 2, 3, 4, 5, 6, tzinfo=UTC))
    assert decoder(SCHEMA, {})(ORDER + message.SerializeToString()) == {
        "id": 2**64 - 1,
        "state": "PAID",
        "items": [{"name": "a", "inside": '{"name": "b"}'}],
        "by_name": {"k": {"name": "c"}},
        "at": datetime(2026, 1, 2, 3, 4, 5, 6, tzinfo=UTC),
        "f": 0.5,
        "any": '{"a": 1.0}',
        "text": "x",
    }
    assert decoder(SCHEMA, {})(ORDER) == {"id": 0, "state": "OPEN", "items": [], "by_name": {}}
    assert decoder(SCHEMA, {})(b"\x00\x08\x07") == {"id": 7}


@pytest.mark.parametrize("payload", [b"", b"\x02", b"\x01", b"\x02\x06", b"\x00\x10\x07"])
def test_message_that_its_schema_does_not_describe_is_none(payload: bytes) -> None:
    with pytest.raises(MalformedText):
        decoder(SCHEMA, {})(payload)
