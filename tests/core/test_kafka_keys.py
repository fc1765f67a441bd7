"""Keys of messages as a field of their records, and null values that delete, without Kafka and Spark."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa
import pytest

from core.test_kafka_json import batch
from driftline.convert import arrow_schema
from driftline.core.schema.text import parse_type
from driftline.core.schema.types import Schema, Struct
from driftline.core.settings.condition_sql import condition_of
from driftline.core.settings.properties import from_properties
from driftline.core.settings.row_key import RowKey
from driftline.core.settings.table import TableSettings
from driftline.observe.expect import expect
from driftline.observe.json_lines import JsonObserver
from driftline.quarantine.pending import _Raw
from driftline.readers.deletes import DeleteFilter
from driftline.readers.json.rows import LineTask
from driftline.readers.kafka.keys import key_text
from driftline.readers.kafka.wire import UnreadableError
from driftline.readers.task import AdmissionTerms
from driftline.sources.kafka import MessageValueTexts


@pytest.mark.parametrize(
    ("key", "text"),
    [
        (b"7", b"7"),
        (b"-12", b"-12"),
        (b"123456789012345678901234567890", b"123456789012345678901234567890"),
        (b'"x"', b'"x"'),
        (b"true", b"true"),
        (b"null", b"null"),
        (None, b"null"),
        (b'{"id": 7}', b'{"id": 7}'),
        (b"[1]", b"[1]"),
        # As Kafka Connect writes a key with its schema.
        (b'{"schema": {"type": "int32"}, "payload": 1.0}', b"1.0"),
        (b'{"schema": {"type": "struct"}, "payload": {"id": 7}}', b'{"id": 7}'),
        (b'{"schema": 1, "payload": 2, "id": 3}', b'{"schema": 1, "payload": 2, "id": 3}'),
        # Any other is text, and stays as it was spelled.
        (b"a7", b'"a7"'),
        (b"", b'""'),
        (b"007", b'"007"'),
        (b"1.10", b'"1.10"'),
        (b"1e5", b'"1e5"'),
        (b"-0", b'"-0"'),
        (b" 7", b'" 7"'),
        (b"NaN", b'"NaN"'),
        (b'{"id": ', b'"{\\"id\\": "'),
        (b'1,"id":2', b'"1,\\"id\\":2"'),
        ("ä".encode(), '"ä"'.encode()),
    ],
)
def test_a_key_is_the_json_value_that_it_spells_or_a_text(key: bytes | None, text: bytes) -> None:
    assert key_text(key) == text


@pytest.mark.parametrize("key", [b"\xff", (7).to_bytes(8, "big")])
def test_a_key_of_bytes_is_none(key: bytes) -> None:
    with pytest.raises(UnreadableError, match="the message's key is no text"):
        key_text(key)


def with_keys(values: list[bytes | None], keys: list[bytes | None]) -> pa.RecordBatch:
    rows = batch(list(range(len(values))), values=values)
    return rows.append_column("key", pa.array(keys, pa.binary()))


def settings(key: str, delete_when: str = "", order_by: str = "") -> TableSettings:
    return from_properties(
        {"driftline.key": key, "driftline.delete-when": delete_when, "driftline.order-by": order_by}
    )


def observed(run: Any, settings: TableSettings) -> tuple[list[bytes], list[bool], list[tuple[int, str]]]:
    """The lines of a run as they are observed, flags of those that delete, and the rejects by offset."""
    terms = AdmissionTerms(expect(Schema(), settings), settings)
    filter_ = DeleteFilter.of(terms)
    assert filter_ is not None
    task = LineTask(JsonObserver(terms.expected, settings), None, terms)
    _, rejects = task.observe([run])
    lines, flags = filter_.lines(run.lines) if run.nulls is None else filter_.messages(run.lines, run.nulls)
    kept = [] if rejects is None else rejects.to_pylist()
    return list(lines), flags.tolist(), [(row["offset"], row["reason"]) for row in kept]


def test_a_null_value_has_the_key_alone_and_deletes() -> None:
    by_key = settings("_key.id", "value is null")
    values = [b'{"id": 1, "value": null}', None, b"{}", b"", b'{"_key": 1}', b"{bad", b"[1]"]
    keys = [f'{{"id": {n}, "x": 0}}'.encode() for n in range(6)] + [b"\xff"]
    (run,) = MessageValueTexts().of(by_key.row_key).runs(with_keys(values, keys))
    lines, flags, rejects = observed(run, by_key)
    assert lines[:3] == [
        b'{"_key":{"id": 0, "x": 0},"id": 1, "value": null}',  # a field `value` is no message's
        b'{"_key":{"id":1}}',
        b'{"_key":{"id": 2, "x": 0}}',
    ]
    assert flags == [False, True, *[False] * 5]
    assert rejects == [
        (3, "an empty value is no record"),
        (4, "it has a field _key of its own, where the table reads the message's key"),
        (5, "invalid JSON: Expecting property name enclosed in double quotes at character 1"),
        (6, "not an object but a list"),
    ]


def test_a_null_value_that_does_not_delete_is_no_record() -> None:
    by_key = settings("_key.id", "value is null and _key.x = 1 or op = 'd'")
    values = [None, None, b'{"op": "d"}', b'{"value": null}']
    keys: list[bytes | None] = [b'{"id": 1, "x": 1}', b'{"id": 2}', b'{"id": 3}', b'{"id": 4, "x": 1}']
    (run,) = MessageValueTexts().of(by_key.row_key).runs(with_keys(values, keys))
    lines, flags, rejects = observed(run, by_key)
    assert (lines[0], lines[2], flags) == (
        b'{"_key":{"id":1}}',
        b'{"_key":{"id":3}}',
        [True, False, True, False],
    )
    assert rejects == [(1, "a null value, for which delete_when is not true")]


@pytest.mark.parametrize(
    ("key", "delete_when"), [("id", "value is null"), ("_key", "op = 'd'"), ("_key", "")]
)
def test_null_values_are_counted_alone_where_they_cannot_delete(key: str, delete_when: str) -> None:
    values = MessageValueTexts().of(settings(key, delete_when).row_key)
    rows = with_keys([None, b"{}"], [b"1", b"2"])
    (run,) = values.runs(rows)
    assert (values.tombstones(rows), run.lines[0], run.nulls) == (1, b"", [])


def test_a_topic_without_its_keys_has_no_null_among_its_records() -> None:
    """A record without a field `value` deletes nothing, where the table's key is a field of the record."""
    by_key = settings("id", "value is null or op = 'd'")
    (run,) = (
        MessageValueTexts()
        .of(by_key.row_key)
        .runs(batch([0, 1], values=[b'{"id": 1}', b'{"id": 2, "op": "d"}']))
    )
    assert observed(run, by_key)[1] == [False, True]


def quarantined(rows: list[dict[str, Any]]) -> pa.RecordBatch:
    names = ("raw", "source", "line", "topic", "partition", "offset", "key")
    return pa.RecordBatch.from_pylist([{name: row.get(name) for name in names} for row in rows])


def test_a_replay_has_the_keys_again() -> None:
    by_key = settings("_key", "value is null")
    topic = {"topic": "t", "partition": 0}
    rows = [
        {"raw": '{"n": 1}', **topic, "offset": 3, "key": b"7"},
        {"raw": None, **topic, "offset": 4, "key": b"8"},
        {"raw": '{"n": 2, "_key": 9}', "source": "a.jsonl", "line": 1, "key": None},
        {"raw": '{"n": null, "_key": 9}', "source": "a.jsonl", "line": 2, "key": None},
    ]
    of_topic, of_file = _Raw(keys=True, nulls=True).runs(quarantined(rows))
    assert observed(of_topic, by_key)[:2] == ([b'{"_key":7,"n": 1}', b'{"_key":8}'], [False, True])
    assert observed(of_file, by_key)[:2] == ([b'{"n": 2, "_key": 9}', b'{"_key":9}'], [False, True])
    origin = of_topic.reject(1, "no").origin
    assert (origin.offset, origin.key) == (4, b"8")


def test_a_record_of_a_file_with_its_messages_key_alone_deletes() -> None:
    row_key = settings("_key.id", "value is null or op = 'd'")
    filter_ = DeleteFilter.of(AdmissionTerms(expect(Schema(), row_key), row_key))
    records = [
        {"_key": {"id": 1}}, {"_key": {"id": 2}, "n": 1}, {"_key": {"id": 3}, "n": None, "op": None},
        {"_key": {"id": 4}, "n": 1, "op": "d"}, {"_key": {"id": 5}, "value": None, "n": 1},
    ]  # fmt: skip
    assert filter_ is not None
    expected = [True, False, True, True, False]
    assert filter_.lines([json.dumps(record).encode() for record in records])[1].tolist() == expected
    struct = parse_type("struct<_key: struct<id: long>, n: long, op: string>")
    assert isinstance(struct, Struct)
    columns = pa.RecordBatch.from_pylist(records, arrow_schema(struct))
    assert filter_.rows(columns, struct)[1].to_pylist() == expected


def test_a_null_value_is_refused_again_where_it_deletes_no_more() -> None:
    rows = quarantined([{"raw": None, "topic": "t", "partition": 0, "offset": 4, "key": b"8"}])
    for raw in (_Raw(), _Raw(keys=True)):
        (run,) = raw.runs(rows)
        assert observed(run, settings("_key", "op = 'd'"))[2] == [
            (4, "a null value, for which delete_when is not true")
        ]


@pytest.mark.parametrize(
    ("condition", "of_null", "of_record"),
    [
        ("value is null", True, False),
        ("value is not null", False, True),
        ("value is null or op = 'd'", True, None),
        ("value is null and op = 'd'", None, False),
        ("value = 'x'", None, None),
        ("a.value is null", True, True),
    ],
)
def test_a_condition_of_a_message(condition: str, of_null: bool | None, of_record: bool | None) -> None:
    """Of a record without fields."""
    row_key = RowKey((("_key",),), delete_when=condition_of(condition))
    terms = AdmissionTerms(expect(Schema()), TableSettings(row_key=row_key))
    filter_ = DeleteFilter.of(terms)
    assert filter_ is not None
    found = [filter_.of_message(null=null).lines([b"{}"])[1].tolist() for null in (True, False)]
    assert found == [[bool(of_null)], [bool(of_record)]]
