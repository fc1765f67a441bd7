"""Messages in envelopes as records, without Spark: one by one, and as histories against a dictionary."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from core.test_kafka_keys import with_keys
from core.test_upsert import Event, FilesTable, Key, key_of, same_key
from driftline.core.schema.types import Schema
from driftline.core.settings.properties import as_properties, from_properties
from driftline.core.settings.row_key import RowKey
from driftline.core.values import RefusedText
from driftline.errors import DataError, UsageError
from driftline.observe.expect import expect
from driftline.observe.json_lines import JsonObserver
from driftline.readers.envelopes.debezium import (
    ChangeSource,
    Placeholder,
    position,
    read_debezium,
    usual_records,
)
from driftline.readers.envelopes.messages import MARKED, REFUSED_VALUES, EnvelopeTerms
from driftline.readers.envelopes.unwrap import Unwrapper
from driftline.readers.json.rows import LineTask
from driftline.readers.task import AdmissionTerms
from driftline.sources.kafka import MessageValueTexts
from driftline.verify.envelopes import Unreadable, records_in
from driftline.verify.files import Read, SourcePlace
from driftline.verify.json_texts import parse

LSN = {"connector": "postgresql", "lsn": 42}
AT = "0" * 18 + "42"


def row_key(key: str = "id", **more: str) -> RowKey:
    made = RowKey.of({"key": key, "envelope": "debezium", **more})
    assert made is not None
    return made


def change(op: str, position: str | None = AT) -> Event:
    return {"_change": {"op": op, **({} if position is None else {"position": position})}}


def read(message: Any, keyed: RowKey) -> tuple[list[Event] | str, dict[str, int]]:
    """The records of a message or the reason it has none; the marks."""
    unwrapper = Unwrapper(keyed)
    texts, places = unwrapper.records(
        [message if isinstance(message, bytes) else json.dumps(message).encode()]
    )
    assert set(places) <= {0}
    refused = [text.why for text in texts if isinstance(text, RefusedText)]
    return refused[0] if refused else [json.loads(text) for text in texts], dict(unwrapper.control_messages)


def checked(message: Any, keyed: RowKey) -> list[Event] | str:
    """The records that the independent check reads of a message."""
    parsed = parse(message if isinstance(message, bytes) else json.dumps(message).encode())
    try:
        reads = list(records_in(keyed, Read(SourcePlace("f"), parsed)))
    except Unreadable:
        return ""
    return "" if any(one.reason for one in reads) else [one.record or {} for one in reads]


ROW, OLD = {"id": 7, "n": 1}, {"id": 7, "n": 0}
CHANGES = {
    "insert": ({"op": "c", "before": None, "after": ROW, "source": LSN}, [{**ROW, **change("c")}]),
    "update": ({"op": "u", "before": OLD, "after": ROW, "source": LSN}, [{**ROW, **change("u")}]),
    "snapshot": ({"op": "r", "after": ROW, "source": LSN}, [{**ROW, **change("r")}]),
    "delete": ({"op": "d", "before": OLD, "after": None, "source": LSN}, [{**OLD, **change("d")}]),
    "in a payload": ({"payload": {"op": "c", "after": ROW, "source": LSN}}, [{**ROW, **change("c")}]),
    "schema is null": (
        {"schema": None, "payload": {"op": "c", "after": ROW, "source": LSN}},
        [{**ROW, **change("c")}],
    ),
    "beside its key": (
        {"key": {"id": 7}, "value": {"op": "c", "after": ROW, "source": LSN}},
        [{**ROW, **change("c")}],
    ),
    "its key changes": (
        {"op": "u", "before": {"id": 6, "n": 1}, "after": ROW, "source": LSN},
        [{"id": 6, "n": 1, **change("d")}, {**ROW, **change("u")}],
    ),
    "before of other fields": ({"op": "u", "before": {"n": 0}, "after": ROW, "source": LSN}, [{**ROW, **change("u")}]),
    "an empty row": ({"op": "u", "after": {}, "source": LSN}, [change("u")]),
    "no connector named": ({"op": "c", "after": ROW, "source": {"lsn": 42}}, [{**ROW, **change("c")}]),
    # The key of the message, in each of its forms.
    "key: struct": ({"_key": {"id": 7}, "op": "d", "before": None, "source": LSN}, [{"id": 7, **change("d")}]),
    "key: one value": ({"_key": 7, "op": "d", "before": None, "source": LSN}, [{"id": 7, **change("d")}]),
    "key: text": ({"key": "a7", "value": {"op": "d", "source": LSN}}, [{"id": "a7", **change("d")}]),
    "key: text of an object": (
        {"key": '{"id": 7}', "value": {"op": "d", "source": LSN}},
        [{"id": 7, **change("d")}],
    ),
    "key: with its schema": (
        {"key": {"schema": {}, "payload": {"id": 7}}, "value": {"payload": {"op": "d", "source": LSN}}},
        [{"id": 7, **change("d")}],
    ),
    "before without the key": (
        {"_key": {"id": 7}, "op": "d", "before": {"n": 1}, "source": LSN},
        [{"id": 7, **change("d")}],
    ),
}  # fmt: skip


@pytest.mark.parametrize(("message", "records"), CHANGES.values(), ids=CHANGES)
def test_records_of_debezium(message: Event, records: list[Event]) -> None:
    assert read(message, row_key()) == (records, {})
    assert checked(message, row_key()) == records


MARKS = {
    "heartbeat": {"ts_ms": 1},
    "transaction mark": {"status": "BEGIN", "id": "571:53195829", "event_count": None, "ts_ms": 1},
    "schema change": {"source": {"connector": "mysql"}, "ddl": "create table t (id int)", "tableChanges": []},
    "log message": {"op": "m", "ts_ms": 1, "message": {"prefix": "p", "content": "aGk="}, "source": LSN},
    "tombstone": {"_key": {"id": 7}},
}


LEFT_OUT = "__debezium_unavailable_value"
ROWS = [
    ROW, OLD, {}, None, {"id": 8}, {"id": 7, "_change": 1}, {"id": 7, "n": 'a "b"'}, {"id": 7, "n": LEFT_OUT},
    {"n": {"m": LEFT_OUT}},
]  # fmt: skip
SOURCES = [
    LSN, {"lsn": 7}, {**LSN, "snapshot": "last"}, {"connector": "mongodb", "ts_ms": 7}, None, {"connector": "x"}, 1,
]  # fmt: skip
BEFORE = [
    {},
    {"before": None},
    {"before": OLD, "payload": 1},
    {"before": {"id": 8}, "_key": 7},
    {"before": 1},
]
AROUND = [
    lambda plain: plain, lambda plain: {"key": 1, "value": plain, "offset": 3},
    lambda plain: {"key": 1, "value": {"payload": plain}}, lambda plain: {"key": 1, "value": plain, "other": 1},
]  # fmt: skip
SPELLED = [
    bytes, lambda line: line.replace(b": ", b" :\t"), lambda line: b" " + line, lambda line: line[:-1],
    lambda line: line.replace(b"_change", b"\\u005fchange"), lambda line: line.replace(b"null", b'"\xff"'),
]  # fmt: skip


@pytest.mark.parametrize("around_first", AROUND[:2])
@pytest.mark.parametrize("unavailable", [MARKED, REFUSED_VALUES])
def test_messages_that_are_read_together_give_the_records_of_each_by_itself(
    around_first: Callable[[Event], Event], unavailable: str
) -> None:
    choices = product(["c", "u", "r", "d", ["c"]], ROWS, SOURCES, BEFORE, AROUND, SPELLED)
    lines = [json.dumps(around_first(CHANGES["insert"][0])).encode()] + [
        spelled(json.dumps(around({"op": op, "after": after, "source": source, **before})).encode())
        for op, after, source, before, around, spelled in choices
    ]
    terms = EnvelopeTerms((("id",),), by_position=True, unavailable=unavailable, reconciles=True)
    incomplete = set(Placeholder.of(terms.placeholder_text).places_in(lines))

    together = usual_records(lines, terms, incomplete)

    assert sum(record is not None for record in together) > 300
    for line, record in zip(lines, together, strict=True):
        assert record is None or [record] == read_debezium(line, terms)


def test_usual_messages_are_read_together() -> None:
    sent = [
        {"op": op, "before": None, "after": {**ROW, "t": text}, "source": LSN}
        for op in "cur"
        for text in ("", '"')
    ]
    dumped = [{"key": 1, "value": message} for message in sent]

    for messages in (sent, dumped):
        lines = [json.dumps(message).encode() for message in messages]
        assert None not in usual_records(lines, EnvelopeTerms((("id",),), by_position=True), ())


@pytest.mark.parametrize(("kind", "message"), MARKS.items(), ids=MARKS)
def test_messages_that_are_no_change(kind: str, message: Event) -> None:
    assert read(message, row_key()) == ([], {kind: 1})
    assert checked(message, row_key()) == []


@pytest.mark.parametrize("message", [{"key": 1, "value": None}, {"schema": None, "payload": None}])
def test_tombstones_of_files(message: Event) -> None:
    assert read(message, row_key()) == ([], {"tombstone": 1})
    assert checked(message, row_key()) == []


REFUSED = {
    "op 'x' is none of Debezium's: c, u, r, d, t, m": {"op": "x", "after": ROW, "source": LSN},
    "op 7 is none of Debezium's: c, u, r, d, t, m": {"op": 7, "after": ROW, "source": LSN},
    "no message of Debezium's: it has no op": {"id": 7, "n": 1},
    "no object in `value`": {"key": 7, "value": 5},
    "no object in `payload`": {"payload": [1]},
    "op 'u' without an object in `after`": {"op": "u", "before": ROW, "source": LSN},
    "a delete without its key: neither `before` nor the message's key has it": {"op": "d", "source": LSN},
    "a truncate of the source's table that does not say where it stood": {"op": "t", "source": {"lsn": "x"}},
    "it has a field _change of its own, where the table keeps what its envelope says": {
        "op": "c", "after": {"id": 7, "_change": 1}, "source": LSN,
    },
    "no position: no `source` that says where the change stood": {"op": "c", "after": ROW},
    "no position: none in its `source`, of connector 'vitess', by which changes could be ordered": {
        "op": "c", "after": ROW, "source": {"connector": "vitess", "vgtid": "[]"},
    },
    "no position: none in its `source`, of connector 'postgresql', by which changes could be ordered": {
        "op": "c", "after": ROW, "source": {"connector": "postgresql", "lsn": None},
    },
}  # fmt: skip


@pytest.mark.parametrize(
    "record",
    [
        {"id": 7, "status": "paid"},
        {"id": 7, "status": "BEGIN", "price": 1},
        {"value": None, "price": 1},
        {"payload": None, "price": 1},
        {"ddl": "text", "source": "web", "price": 1},
        {"ts_ms": 1, "price": 1},
        {},
    ],
    ids=str,
)
def test_a_record_without_an_envelope_is_never_left_out(record: Event) -> None:
    why, marks = read(record, row_key())
    assert str(why).startswith("no message of Debezium's: ") and not marks
    assert checked(record, row_key()) == ""


@pytest.mark.parametrize(("why", "message"), REFUSED.items(), ids=REFUSED)
def test_messages_that_cannot_be_read(why: str, message: Event) -> None:
    assert read(message, row_key()) == (why, {})
    assert checked(message, row_key()) == ""


def test_what_is_no_object_is_judged_as_ever() -> None:
    unwrapper = Unwrapper(row_key())
    lines = [
        b"[1]",
        b'{"op": "c"',
        b"",
        b'"text"',
        b'{"op":"c","after":{"id":1,"_ch\\u0061nge":2},"source":{"lsn":1}}',
    ]
    texts, places = unwrapper.records(lines)
    assert (texts[:4], places) == (lines[:4], [0, 1, 2, 3, 4])
    assert isinstance(texts[4], RefusedText)


def test_an_order_of_ones_own_needs_no_position() -> None:
    message = {"op": "u", "after": ROW, "source": {"connector": "vitess"}}
    assert read(message, row_key(order_by="n")) == ([{**ROW, **change("u", None)}], {})
    assert checked(message, row_key(order_by="n")) == [{**ROW, **change("u", None)}]


POSITIONS = [
    ({"connector": "mysql", "file": "mysql-bin.000009", "pos": 900, "row": 0}, {"connector": "mysql", "file": "mysql-bin.000010", "pos": 4, "row": 0}),
    ({"connector": "mysql", "file": "binlog.999999", "pos": 900}, {"connector": "mysql", "file": "binlog.1000000", "pos": 4}),
    ({"connector": "mariadb", "file": "b.000001", "pos": 99, "row": 3}, {"connector": "mariadb", "file": "b.000001", "pos": 100, "row": 1}),
    ({"connector": "mysql", "file": "b.000001", "pos": 99, "row": 9}, {"connector": "mysql", "file": "b.000001", "pos": 99, "row": 10}),
    ({"connector": "postgresql", "lsn": 99}, {"connector": "postgresql", "lsn": 100}),
    ({"connector": "postgresql", "lsn": 2**63}, {"connector": "postgresql", "lsn": 2**63 + 1}),
    ({"connector": "sqlserver", "commit_lsn": "00000027:00000758:0005", "change_lsn": None}, {"connector": "sqlserver", "commit_lsn": "00000027:00000758:0005", "change_lsn": "00000027:00000758:0003", "event_serial_no": 1}),
    ({"connector": "sqlserver", "commit_lsn": "0000003a:00000d20:0002", "change_lsn": "0000003a:00000d20:0001", "event_serial_no": 1}, {"connector": "sqlserver", "commit_lsn": "0000003a:00000d20:0002", "change_lsn": "0000003a:00000d20:0001", "event_serial_no": 2}),
    ({"connector": "sqlserver", "commit_lsn": "0000003a:0000ffff:0001", "change_lsn": "0000003a:0000ffff:0001"}, {"connector": "sqlserver", "commit_lsn": "0000003b:00000001:0001", "change_lsn": "0000003b:00000001:0001"}),
    ({"connector": "db2", "commit_lsn": "00000000:00000000:00000000002ab5d5", "change_lsn": "00000000:00000000:000000000002ab5d"}, {"connector": "db2", "commit_lsn": "00000000:00000000:00000000002ab5d6", "change_lsn": "00000000:00000000:000000000002ab5d"}),
    ({"connector": "oracle", "scn": "9999", "commit_scn": None}, {"connector": "oracle", "scn": "10000", "commit_scn": "10001", "rs_id": " 0x000001.00000002.0010 ", "ssn": 1}),
    ({"connector": "oracle", "scn": "10000", "commit_scn": "10001", "rs_id": " 0x000001.00000002.0010 ", "ssn": 9}, {"connector": "oracle", "scn": "10000", "commit_scn": "10001", "rs_id": " 0x000001.00000002.0010 ", "ssn": 10}),
    ({"connector": "mongodb", "ts_ms": 1558965508000, "ord": 9}, {"connector": "mongodb", "ts_ms": 1558965508000, "ord": 10}),
]  # fmt: skip


@pytest.mark.parametrize(("earlier", "later"), POSITIONS)
def test_positions_sort_as_numbers(earlier: Event, later: Event) -> None:
    before, after = position(ChangeSource(**earlier)), position(ChangeSource(**later))
    assert before is not None
    assert after is not None
    assert before < after
    for source, place in ((earlier, before), (later, after)):
        (record,) = checked({"op": "c", "after": ROW, "source": source}, row_key())
        assert record["_change"]["position"] == place


def test_messages_of_a_topic_have_their_keys_and_keep_their_places() -> None:
    keyed = row_key()
    values = [
        json.dumps(value).encode() if value else None
        for value in (
            {"op": "c", "after": {"id": 1}, "source": LSN},
            None,
            {"op": "u", "before": {"id": 2}, "after": {"id": 3}, "source": LSN},
            {"op": "d", "before": None, "source": LSN},
            {"op": "y", "source": LSN},
            {"ts_ms": 1},
        )
    ]
    keys = [b'{"id": 1}', b'{"id": 1}', b'{"id": 3}', b'{"id": 4}', b"5", None]
    settings = from_properties(as_properties({"key": "id", "envelope": "debezium"}))
    terms = AdmissionTerms(expect(Schema(), settings), settings)
    task = LineTask(JsonObserver(terms.expected, settings), None, terms)
    (run,) = MessageValueTexts().of(keyed).runs(with_keys(values, keys))
    _, rejects = task.observe([run])
    assert rejects is not None
    (reject,) = rejects.to_pylist()
    assert (reject["offset"], reject["key"], json.loads(reject["raw"])["op"]) == (4, "5", "y")
    assert reject["reason"].startswith("op 'y' is none")
    seen = task.observed()
    assert (seen.tally.records, seen.tally.control_messages) == (4, {"tombstone": 1, "heartbeat": 1})
    assert seen.shape.fields.keys() == {"id", "_change"}


def test_settings_of_an_envelope() -> None:
    with pytest.raises(UsageError, match="envelope needs a key"):
        from_properties(as_properties({"envelope": "debezium"}))
    settings = from_properties(
        as_properties({"key": "id", "envelope": "debezium", "delete_when": "gone = true"})
    )
    assert settings.row_key is not None
    assert settings.row_key.order_by == (("_change", "position"),)
    assert settings.row_key.reads_messages
    assert not settings.hive
    with pytest.raises(
        UsageError, match=r"_change\.unavailable is excluded, and rows keep their values by it"
    ):
        from_properties(
            as_properties({"key": "id", "envelope": "debezium", "exclude._change.unavailable": "true"})
        )


# Histories ----------------------------------------------------------------------------------------------

VALUES = [1, 2.5, "text", True, {"a": 1}, [1, 2], None, "2026-01-01", 2**70]


class Database:
    """A table whose changes are messages of a connector; ``rows`` is what it has in the end."""

    def __init__(self, chance: random.Random, connector: str) -> None:
        self.chance, self.connector = chance, connector
        self.rows: dict[Key, Event] = {}
        self.at = 0

    def source(self) -> Event:
        self.at += 1
        if self.connector == "mysql":
            return {
                "connector": "mysql",
                "file": f"bin.{self.at // 7 + 999998:06}",
                "pos": self.at % 7 * 99,
                "row": 0,
            }
        if self.connector == "oracle":
            return {"connector": "oracle", "scn": str(self.at), "commit_scn": str(self.at + 5)}
        return {"connector": "postgresql", "lsn": self.at * 5}

    def row(self, id_: Any) -> Event:
        names = self.chance.sample("abcd", self.chance.randrange(4))
        return {"id": id_, **{name: self.chance.choice(VALUES) for name in names}, "n": self.at}

    def step(self) -> list[Event]:
        """One change, as messages."""
        chance = self.chance
        id_ = chance.choice([*range(8), *map(str, range(3)), 2.5])
        key, source = same_key(id_), self.source()
        old = self.rows.get(key)
        shown = old if self.connector != "postgresql" else None
        if old is None:
            row = self.rows[key] = self.row(id_)
            return [
                {
                    "op": chance.choice("cr"),
                    "before": None,
                    "after": row,
                    "source": source,
                    "_key": {"id": id_},
                }
            ]
        if chance.random() < 0.3:
            del self.rows[key]
            gone = {"op": "d", "before": shown, "after": None, "source": source, "_key": {"id": id_}}
            return [gone, {"_key": {"id": id_}}]
        new = chance.choice(range(8, 12))
        if shown is not None and chance.random() < 0.2 and same_key(new) not in self.rows:
            del self.rows[key]
            row = self.rows[same_key(new)] = self.row(new)
            return [{"op": "u", "before": old, "after": row, "source": source, "_key": {"id": new}}]
        row = self.rows[key] = self.row(id_)
        return [{"op": "u", "before": shown, "after": row, "source": source, "_key": {"id": id_}}]


def deliver(table: FilesTable, sent: list[Event], envelope: str, chance: random.Random) -> None:
    """Ingest messages in batches of any size; each of them is read."""
    settings = from_properties(as_properties({"key": "id", "envelope": envelope}))
    while sent:
        batch, sent = sent[: (size := chance.randrange(1, 60))], sent[size:]
        _, malformed = table.ingest(batch, settings)
        assert malformed == 0


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("connector", ["mysql", "postgresql", "oracle"])
def test_any_delivery_of_a_history_ends_in_what_the_database_has(
    tmp_path: Path, seed: int, connector: str
) -> None:
    """Twice, in any order, in any batches."""
    chance, table = random.Random(seed), FilesTable(tmp_path)
    database = Database(chance, connector)
    messages = [message for _ in range(150) for message in database.step()]
    sent = messages + chance.sample(messages, 40)
    if seed:
        chance.shuffle(sent)
    deliver(table, sent, "debezium", chance)
    rows = table.rows()
    held = {key_of(row): row["n"] for row in rows}
    assert len(held) == len(rows)
    assert held == {key: row["n"] for key, row in database.rows.items()}
    for row in rows:
        expected = database.rows[key_of(row)]
        for name in "abcd":
            filled = [v for column, v in row.items() if column.partition("_")[0] == name and v is not None]
            assert bool(filled) == (expected.get(name) not in (None, []))


def test_an_envelope_stays(tmp_path: Path) -> None:
    from driftline.core.settings.row_key import check_kept, check_stays

    now = {"driftline.key": "id", "driftline.envelope": "debezium"}
    check_kept("t", now, {"driftline.key": "id"})
    with pytest.raises(UsageError, match="t has envelope = 'debezium', and a batch does not change that"):
        check_kept("t", now, {"driftline.envelope": ""})
    with pytest.raises(DataError, match="t has no envelope, which is set when a table is made"):
        check_stays("t", RowKey.of({"key": "id"}), row_key())
