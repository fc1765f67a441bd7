"""Messages of other tools than Debezium as records, each read by the check as well: one table for each tool."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest

from core.test_envelopes import checked, deliver, read, row_key
from core.test_upsert import Event, FilesTable, key_of, same_key
from driftline.core.schema.types import Schema
from driftline.core.settings.properties import from_properties
from driftline.core.settings.row_key import ENVELOPES
from driftline.observe.expect import expect
from driftline.observe.json_lines import JsonObserver
from driftline.readers.envelopes.messages import SIGNS, envelope_note
from driftline.readers.envelopes.unwrap import NAMED, Unwrapper

XID, LAST = f"{7125:020}", "9999999999"


def change(op: str, position: str) -> Event:
    return {"_change": {"op": op, "position": position}}


def maxwell(type_: str, data: Any, **more: Any) -> Event:
    transaction = {} if type_.startswith("bootstrap") else {"xid": 7125}
    return {
        "database": "shop",
        "table": "people",
        "type": type_,
        "ts": 1596684883,
        **transaction,
        "data": data,
        **more,
    }


def canal(type_: str, data: Any, **more: Any) -> Event:
    types = {"id": "int(11)", "n": "varchar(9)"}
    return {
        "database": "shop", "table": "people", "type": type_, "es": 1596684883000, "id": 3, "isDdl": False,
        "mysqlType": types, "old": None, "pkNames": ["id"], "sql": "", "ts": 1596684883477, "data": data, **more,
    }  # fmt: skip


def ogg(type_: str, before: Any, after: Any, **more: Any) -> Event:
    return {
        "table": "SHOP.PEOPLE", "op_type": type_, "op_ts": "2026-05-13 15:40:06.000000", "pos": "00000000170000001763",
        "primary_keys": ["id"], "before": before, "after": after, **more,
    }  # fmt: skip


def dms(operation: Any, data: Any, record_type: str = "data", **more: Any) -> Event:
    metadata = {"timestamp": "2026-02-18T23:57:11.97036Z", "record-type": record_type, "operation": operation}
    return {"data": data, "metadata": metadata, **more}


ROW, OLD = {"id": 7, "n": "b"}, {"id": 7, "n": "a"}
TEXTS = {"id": "7", "n": "b"}
ES, POS, TIME = f"{1596684883000:020}", f"{170000001763:040}", "2026-02-18T23:57:11.970360000Z"
UNWRAPPED = {**ROW, "__op": "u", "__deleted": "false", "__lsn": 42}
LSN = f"{42:020}"

# The envelope, a message, its records.
CHANGES: dict[str, tuple[str, Any, list[Event]]] = {
    "maxwell insert": ("maxwell", maxwell("insert", ROW), [{**ROW, **change("c", f"{XID}:{LAST}")}]),
    "maxwell row in its transaction": ("maxwell", maxwell("insert", ROW, xoffset=2), [{**ROW, **change("c", f"{XID}:{2:010}")}]),
    "maxwell place in the log": (
        "maxwell",
        maxwell("insert", ROW, position="master.000006:800911", xoffset=1),
        [{**ROW, **change("c", f"{6:010}:{800911:020}:{1:010}")}],
    ),
    "maxwell update": ("maxwell", maxwell("update", ROW, old={"n": "a"}), [{**ROW, **change("u", f"{XID}:{LAST}")}]),
    "maxwell update of the key": (
        "maxwell",
        maxwell("update", ROW, old={"id": 6}),
        [{"id": 6, "n": "b", **change("d", f"{XID}:{LAST}")}, {**ROW, **change("u", f"{XID}:{LAST}")}],
    ),
    "maxwell delete": ("maxwell", maxwell("delete", ROW), [{**ROW, **change("d", f"{XID}:{LAST}")}]),
    "maxwell bootstrap": (
        "maxwell",
        maxwell("bootstrap-insert", ROW),
        [{**ROW, **change("r", f"{0:020}:{0:010}")}],
    ),
    "maxwell typed values": (
        "maxwell",
        maxwell("insert", {"id": 2**70, "tags": ["a", "b"], "doc": {"x": 1}, "at": "0000-00-00 00:00:00"}),
        [{"id": 2**70, "tags": ["a", "b"], "doc": {"x": 1}, "at": "0000-00-00 00:00:00", **change("c", f"{XID}:{LAST}")}],
    ),
    "canal insert": ("canal", canal("INSERT", [TEXTS]), [{**ROW, **change("c", ES)}]),
    "canal several rows": (
        "canal",
        canal("INSERT", [TEXTS, {"id": "8", "n": None}]),
        [{**ROW, **change("c", ES)}, {"id": 8, "n": None, **change("c", ES)}],
    ),
    "canal update": ("canal", canal("UPDATE", [TEXTS], old=[{"n": "a"}]), [{**ROW, **change("u", ES)}]),
    "canal update without old": ("canal", canal("UPDATE", [TEXTS]), [{**ROW, **change("u", ES)}]),
    "canal update of the key": (
        "canal",
        canal("UPDATE", [TEXTS, {"id": "8", "n": "b"}], old=[{"id": "6"}, {"n": "a"}]),
        [{"id": 6, "n": "b", **change("d", ES)}, {**ROW, **change("u", ES)}, {"id": 8, "n": "b", **change("u", ES)}],
    ),
    "canal key in old, unchanged": ("canal", canal("UPDATE", [TEXTS], old=[{"id": "7"}]), [{**ROW, **change("u", ES)}]),
    "canal delete": ("canal", canal("DELETE", [TEXTS]), [{**ROW, **change("d", ES)}]),
    "canal delete of Flink, whose row is in old": ("canal", canal("DELETE", None, old=[TEXTS]), [{**ROW, **change("d", ES)}]),
    "canal of TiCDC, with an exact order": (
        "canal",
        canal("INSERT", [TEXTS], _tidb={"commitTs": (1596684883000 << 18) + 7}),
        [{**ROW, **change("c", f"{ES}:000007")}],
    ),
    "canal first load": ("canal", canal("INIT", [TEXTS]), [{**ROW, **change("r", ES)}]),
    "canal of Flink": ("canal", {"data": [ROW], "type": "INSERT", "es": 1596684883000}, [{**ROW, **change("c", ES)}]),
    "canal without types": ("canal", canal("INSERT", [TEXTS], mysqlType=None), [{**TEXTS, **change("c", ES)}]),
    "canal a type that is null": ("canal", canal("INSERT", [TEXTS], mysqlType={"id": None}), [{**TEXTS, **change("c", ES)}]),
    "canal values that are no texts": ("canal", canal("INSERT", [{"id": 7, "n": {"a": 1}}]), [{"id": 7, "n": {"a": 1}, **change("c", ES)}]),
    "ogg insert": ("ogg", ogg("I", None, ROW), [{**ROW, **change("c", POS)}]),
    "ogg update": ("ogg", ogg("U", OLD, ROW), [{**ROW, **change("u", POS)}]),
    "ogg update without before": ("ogg", ogg("U", None, ROW), [{**ROW, **change("u", POS)}]),
    "ogg update with a part of before": ("ogg", ogg("U", {"n": "a"}, ROW), [{**ROW, **change("u", POS)}]),
    "ogg update of the key": (
        "ogg",
        ogg("U", {"id": 6, "n": "b"}, ROW),
        [{"id": 6, "n": "b", **change("d", POS)}, {**ROW, **change("u", POS)}],
    ),
    "ogg delete": ("ogg", ogg("D", OLD, None), [{**OLD, **change("d", POS)}]),
    "ogg nothing left out": ("ogg", ogg("I", None, ROW, missing_columns=[]), [{**ROW, **change("c", POS)}]),
    "dms load": ("dms", dms("load", ROW), [{**ROW, **change("r", TIME)}]),
    "dms insert": ("dms", dms("insert", ROW), [{**ROW, **change("c", TIME)}]),
    "dms update": ("dms", dms("update", ROW), [{**ROW, **change("u", TIME)}]),
    "dms update of the key, in columns": (
        "dms",
        dms("update", {**ROW, "BI_id": 6, "BI_n": "a"}),
        [{"id": 6, "n": "a", **change("d", TIME)}, {**ROW, **change("u", TIME)}],
    ),
    "dms update of the key, beside": (
        "dms",
        dms("update", ROW, **{"before-image": {"id": 6}}),
        [{"id": 6, "n": "b", **change("d", TIME)}, {**ROW, **change("u", TIME)}],
    ),
    "dms a column of such a name": ("dms", dms("insert", {**ROW, "BI_x": 1}), [{**ROW, "BI_x": 1, **change("c", TIME)}]),
    "dms delete": ("dms", dms("delete", {"id": 7}), [{"id": 7, **change("d", TIME)}]),
    "dms delete with the values before": ("dms", dms("delete", {"id": None, "BI_id": 7}), [{"id": 7, **change("d", TIME)}]),
    "unwrapped": ("debezium-unwrapped", UNWRAPPED, [{**UNWRAPPED, **change("u", LSN)}]),
    "unwrapped without an operation": (
        "debezium-unwrapped",
        {**ROW, "__lsn": 42},
        [{**ROW, "__lsn": 42, **change("u", LSN)}],
    ),
    "unwrapped delete, by flag": (
        "debezium-unwrapped",
        {"id": 7, "__deleted": "true", "__source_lsn": 42},
        [{"id": 7, "__deleted": "true", "__source_lsn": 42, **change("d", LSN)}],
    ),
    "unwrapped delete, by operation": (
        "debezium-unwrapped",
        {"id": 7, "__op": "d", "__lsn": 42},
        [{"id": 7, "__op": "d", "__lsn": 42, **change("d", LSN)}],
    ),
    "unwrapped delete, key of the message": (
        "debezium-unwrapped",
        {"_key": {"id": 7}, "n": None, "__deleted": True, "__lsn": 42},
        [{"id": 7, **change("d", LSN)}],
    ),
    "unwrapped place in MySQL's log": (
        "debezium-unwrapped",
        {**ROW, "__file": "bin.000003", "__pos": 154, "__source_connector": "mysql"},
        [{**ROW, "__file": "bin.000003", "__pos": 154, "__source_connector": "mysql", **change("u", f"{3:010}:{154:020}:{0:010}")}],
    ),
    "unwrapped time of the source": (
        "debezium-unwrapped",
        {**ROW, "__source_ts_ms": 1700000000000, "__ts_ms": 5},
        [{**ROW, "__source_ts_ms": 1700000000000, "__ts_ms": 5, **change("u", f"time:{1700000000000 * 10**6:020}")}],
    ),
    "unwrapped beside its key": (
        "debezium-unwrapped",
        {"key": {"id": 7}, "value": {**ROW, "__lsn": 42}},
        [{**ROW, "__lsn": 42, **change("u", LSN)}],
    ),
    "beside its key": ("ogg", {"key": 7, "value": ogg("D", {"n": "a"}, None)}, [{"id": 7, **change("d", POS)}]),
    "in a payload": ("dms", {"schema": None, "payload": dms("load", ROW)}, [{**ROW, **change("r", TIME)}]),
}  # fmt: skip


@pytest.mark.parametrize(("envelope", "message", "records"), CHANGES.values(), ids=CHANGES)
def test_records_of_other_tools(envelope: str, message: Event, records: list[Event]) -> None:
    keyed = row_key(envelope=envelope)
    assert read(message, keyed) == (records, {})
    assert checked(message, keyed) == records


def test_a_key_of_several_fields_may_be_the_text_of_an_object() -> None:
    message = {"key": '{"id": 7, "n": "a"}', "value": {"id": 7, "__deleted": "true", "__lsn": 42}}
    keyed = row_key("id, n", envelope="debezium-unwrapped")
    assert read(message, keyed) == ([{"id": 7, "n": "a", **change("d", LSN)}], {})
    assert checked(message, keyed) == [{"id": 7, "n": "a", **change("d", LSN)}]


# Types that Canal tells, a text, the value.
TYPES: list[tuple[str, str, Any]] = [
    ("int(11)", "42", 42),
    ("BIGINT unsigned", "18446744073709551615", 2**64 - 1),
    ("INT(8) unsigned zerofill", "00000042", 42),
    ("smallint", "-0", 0),
    ("tinyint(1)", "1", 1),
    ("bit(8)", "255", 255),
    ("year", "2026", 2026),
    ("decimal(8, 2)", "10.50", 10.5),
    ("double precision unsigned", "1.0E10", 1e10),
    ("float", "3.14", 3.14),
    ("int(11)", "seven", "seven"),
    ("int(11)", "", ""),
    ("decimal(8,2)", "٣", "٣"),
    ("decimal(8,2)", "1.", "1."),
    ("varchar(9)", "42", "42"),
    ("interval", "42", "42"),
    ("datetime(3)", "2026-03-23 14:30:05.123", "2026-03-23 14:30:05.123"),
    ("date", "0000-00-00", "0000-00-00"),
    ("json", '{"a": 1}', '{"a": 1}'),
    ("blob", "\x00ÿ", "\x00ÿ"),
    ("enum('small','it''s')", "2", "it's"),
    ("enum('small','it''s')", "small", "small"),
    ("enum('small','it''s')", "3", "3"),
    ("ENUM('2','1')", "2", "2"),
    ("set('a','b','c')", "5", "a,c"),
    ("set('a','b','c')", "0", ""),
    ("set('a','b','c')", "a,c", "a,c"),
    ("set('a','b','c')", "8", "8"),
]


@pytest.mark.parametrize(("type_text", "text", "value"), TYPES)
def test_values_of_canal_by_their_types(type_text: str, text: str, value: Any) -> None:
    message = canal("INSERT", [{"id": "7", "v": text}], mysqlType={"id": "int", "v": type_text})
    keyed = row_key(envelope="canal")
    records, _ = read(message, keyed)
    assert records == [{"id": 7, "v": value, **change("c", ES)}]
    assert type(records[0]["v"]) is type(value)
    ((record,), told) = checked(message, keyed), records[0]["v"]
    assert str(record["v"]) == str(told) or record["v"] == pytest.approx(told)
    assert isinstance(record["v"], str) == isinstance(told, str)


def test_no_digit_of_a_number_goes() -> None:
    text = "123456789876543212345678987654321.110"
    message = canal("INSERT", [{"id": "7", "v": text}], mysqlType={"id": "int", "v": "FIXED(40,3)"})
    (written,), _ = Unwrapper(row_key(envelope="canal")).records([json.dumps(message).encode()])
    assert f'"v":{text}'.encode() in written


MARKS: dict[str, tuple[str, Any, str]] = {
    "maxwell bootstrap starts": ("maxwell", maxwell("bootstrap-start", {}), "bootstrap mark"),
    "maxwell bootstrap ends": ("maxwell", maxwell("bootstrap-complete", {}), "bootstrap mark"),
    "maxwell table": ("maxwell", {"type": "table-alter", "database": "shop", "table": "people", "old": {}, "def": {}, "ts": 1, "sql": "alter …"}, "schema change"),
    "maxwell database": ("maxwell", {"type": "database-create", "database": "shop", "ts": 1, "sql": "…"}, "schema change"),
    "canal schema change": ("canal", canal("ALTER", None, isDdl=True, sql="alter …"), "schema change"),
    "canal new table": ("canal", canal("CREATE", None, isDdl=True), "schema change"),
    "canal watermark of TiCDC": ("canal", canal("TIDB_WATERMARK", None, _tidb={"watermarkTs": 429918007904436226}), "watermark"),
    "dms control": ("dms", dms("create-table", None, "control"), "schema change"),
    "dms column": ("dms", {"metadata": {"record-type": "control", "operation": "column-type-change"}}, "schema change"),
    "tombstone of a topic": ("maxwell", {"_key": {"id": 7}}, "tombstone"),
    "tombstone of a file": ("ogg", {"key": 7, "value": None}, "tombstone"),
}  # fmt: skip


@pytest.mark.parametrize(("envelope", "message", "kind"), MARKS.values(), ids=MARKS)
@pytest.mark.parametrize("auto", [False, True], ids=["named", "auto"])
def test_messages_that_are_no_change(envelope: str, message: Event, kind: str, auto: bool) -> None:
    keyed = row_key(envelope="auto" if auto else envelope)
    assert read(message, keyed) == ([], {kind: 1})
    assert checked(message, keyed) == []


REFUSED: list[tuple[str, str, Any]] = [
    ("maxwell", "no message of Maxwell's: it has no `type` and `database`", {"id": 7}),
    ("maxwell", "type 'truncate' is none of Maxwell's: insert, update, bootstrap-insert, delete, bootstrap-start, bootstrap-complete, database-create, database-alter, database-drop, table-create, table-alter, table-drop", maxwell("truncate", ROW)),
    ("maxwell", "type 'insert' without an object in `data`", maxwell("insert", None)),
    ("maxwell", "no position: no `position` and no `xid` that says where the change stood", maxwell("insert", ROW, xid=None)),
    ("maxwell", "no position: no `position` and no `xid` that says where the change stood", maxwell("insert", ROW, position="gtid")),
    ("maxwell", "a delete without its key: neither its row nor the message's key has it", maxwell("delete", {"n": "a"})),
    ("maxwell", "type 'table-drop' with other fields than Maxwell's message of that type has", {**maxwell("table-drop", None), "price": 1}),
    ("canal", "no message of Canal's: it has no `type` and `data`", {"type": "INSERT"}),
    ("canal", "no position: no `es`, the time by which changes could be ordered", {"type": "INSERT", "data": [ROW]}),
    ("canal", "type 'QUERY' is none of Canal's: INSERT, UPDATE, INIT, DELETE", canal("QUERY", None)),
    ("canal", "a truncate of the source's table that does not say where it stood", canal("TRUNCATE", None, isDdl=True, es=None)),
    ("canal", "type 'TRUNCATE' with `isDdl` is none of Canal's schema changes", canal("TRUNCATE", [TEXTS], isDdl=True)),
    ("canal", "type 'ALTER' with `isDdl` is none of Canal's schema changes", canal("ALTER", [TEXTS], isDdl=True)),
    ("canal", "type 'INSERT' without a list of objects in `data`", canal("INSERT", None)),
    ("canal", "type 'INSERT' without a list of objects in `data`", canal("INSERT", [])),
    ("canal", "type 'DELETE' without a list of objects in `data`", canal("DELETE", [TEXTS, 5])),
    ("canal", "type 'DELETE' without a list of objects in `old`", canal("DELETE", None)),
    ("canal", "type 'TIDB_WATERMARK' is none of Canal's: INSERT, UPDATE, INIT, DELETE", canal("TIDB_WATERMARK", [TEXTS], _tidb={"watermarkTs": 1})),
    ("canal", "type 'TIDB_WATERMARK' is none of Canal's: INSERT, UPDATE, INIT, DELETE", canal("TIDB_WATERMARK", None)),
    ("canal", "2 rows in `data`, and 1 in `old`", canal("UPDATE", [TEXTS, TEXTS], old=[{"n": "a"}])),
    ("canal", "no position: no `es`, the time by which changes could be ordered", canal("INSERT", [TEXTS], es=None)),
    ("ogg", "no message of GoldenGate's: it has no `op_type` and `table`", {"op_type": "I", "after": ROW}),
    ("ogg", "a truncate of the source's table that does not say where it stood", ogg("T", None, None, pos="file 3")),
    ("ogg", "op_type 'X' is none of GoldenGate's: I, U, D, T", ogg("X", None, ROW)),
    ("ogg", "columns that the source has left out: ['n'], of which nothing is known", ogg("U", None, {"id": 7}, missing_columns=["n"])),
    ("ogg", "op_type 'D' without an object in `before`", ogg("D", None, ROW)),
    ("ogg", "op_type 'I' without an object in `after`", ogg("I", ROW, None)),
    ("ogg", "no position: no number in `pos` that says where the change stood", ogg("I", None, ROW, pos="file 3")),
    ("dms", "no message of DMS's: it has no `metadata` with `record-type` and `operation`", {"data": ROW, "metadata": {}}),
    ("dms", "record-type 'other' is none of DMS's: data, control", dms("insert", ROW, "other")),
    ("dms", "a control record whose operation is 'merge-table', which is not applied", dms("merge-table", None, "control")),
    ("dms", "operation 'merge' is none of DMS's: load, insert, update, delete", dms("merge", ROW)),
    ("dms", "operation ['load'] is no text", dms(["load"], ROW)),
    ("ogg", "no message of GoldenGate's: it has no `op_type` and `table`", {"key": 7, "value": {}}),
    ("canal", "no types of columns in `mysqlType`: Expected `object`, got `bool`", canal("INSERT", [TEXTS], mysqlType=False)),
    ("debezium-unwrapped", "no position: no field that says where the change stood, such as __lsn: name it in add.fields", {**ROW, "__lsn": "٣"}),
    ("debezium-unwrapped", "no position: no field that says where the change stood, such as __lsn: name it in add.fields", {**ROW, "__file": {}, "__pos": 4}),
    ("debezium-unwrapped", "no position: no field that says where the change stood, such as __lsn: name it in add.fields", {**ROW, "__lsn": 1e30}),
    ("debezium-unwrapped", "no position: no field that says where the change stood, such as __lsn: name it in add.fields", {**ROW, "__lsn": 4, "__connector": ["postgresql"]}),
    ("debezium-unwrapped", "no position: no field that says where the change stood, such as __lsn: name it in add.fields", {**ROW, "__file": "bin.٣", "__pos": 4}),
    ("debezium", "no position: none in its `source`, of connector ['mysql'], by which changes could be ordered", {"op": "c", "after": ROW, "source": {"connector": ["mysql"]}}),
    ("dms", "operation 'insert' without an object in `data`", dms("insert", [ROW])),
    ("dms", "no position: no UTC time in `metadata.timestamp` by which changes could be ordered", {"data": ROW, "metadata": {"record-type": "data", "operation": "load"}}),
    ("debezium-unwrapped", "no position: no field that says where the change stood, such as __lsn: name it in add.fields", ROW),
    ("debezium-unwrapped", "no position: no field that says where the change stood, such as __lsn: name it in add.fields", {**ROW, "__file": "bin.000003"}),
    ("debezium-unwrapped", "a value inside another that Debezium has left out as unavailable", {**UNWRAPPED, "n": {"m": "X19kZWJleml1bV91bmF2YWlsYWJsZV92YWx1ZQ=="}}),
    ("debezium-unwrapped", "__op 'x' is none of Debezium's: c, u, r, d, t", {**ROW, "__op": "x", "__lsn": 1}),
    ("debezium-unwrapped", "a truncate of the source's table that does not say where it stood", {"__op": "t", "__lsn": "x"}),
    ("debezium-unwrapped", "__deleted 'yes' is neither true nor false", {**ROW, "__deleted": "yes", "__lsn": 1}),
    ("debezium-unwrapped", "a tombstone, which does not say where it stood: a delete is read of the field __deleted, which Debezium adds with delete.tombstone.handling.mode = rewrite", {"_key": {"id": 7}}),
    ("auto", "not surely in an envelope: name it, such as envelope = debezium, or take the records as they are", {**ROW, "type": "insert"}),
]  # fmt: skip


@pytest.mark.parametrize(("envelope", "why", "message"), REFUSED)
def test_messages_that_cannot_be_read(envelope: str, why: str, message: Event) -> None:
    keyed = row_key(envelope=envelope)
    assert read(message, keyed) == (why, {})
    assert checked(message, keyed) == ""


@pytest.mark.parametrize("envelope", ENVELOPES)
@pytest.mark.parametrize(
    "record", [{"id": 7, "type": "insert"}, {"id": 7, "data": [1]}, {"value": None, "n": 1}, {}], ids=str
)
def test_a_record_without_an_envelope_is_never_left_out(envelope: str, record: Event) -> None:
    keyed = row_key(envelope=envelope)
    why, marks = read(record, keyed)
    assert isinstance(why, str)
    assert not marks
    assert checked(record, keyed) == ""


def test_each_envelope_is_known_by_signs_that_no_other_has() -> None:
    assert list(NAMED) == list(SIGNS) == list(ENVELOPES[:-1])
    surely: dict[str, Event] = {
        "debezium": {"op": "c", "after": ROW, "source": {"connector": "postgresql", "lsn": 42}},
        "debezium-unwrapped": UNWRAPPED,
        "maxwell": maxwell("insert", ROW),
        "canal": canal("INSERT", [TEXTS]),
        "ogg": ogg("I", None, ROW),
        "dms": dms("insert", ROW),
    }
    for name, message in surely.items():
        assert read(message, row_key(envelope="auto")) == read(message, row_key(envelope=name))
        assert checked(message, row_key(envelope="auto")) == checked(message, row_key(envelope=name)) != ""
        for field in SIGNS[name]:
            other = {key: value for key, value in message.items() if key != field.split(".")[0]}
            assert "not surely" in str(read(other, row_key(envelope="auto"))[0]), (name, field)
            assert checked(other, row_key(envelope="auto")) == ""


POSITIONS: list[tuple[str, Any, Any]] = [
    ("maxwell", maxwell("insert", ROW, xid=999), maxwell("insert", ROW, xid=1000, xoffset=0)),
    ("maxwell", maxwell("insert", ROW, xoffset=9), maxwell("insert", ROW, xoffset=10)),
    ("maxwell", maxwell("insert", ROW, xoffset=10), maxwell("insert", ROW, commit=True)),
    ("maxwell", maxwell("insert", ROW, position="m.999999:900"), maxwell("insert", ROW, position="m.1000000:4")),
    ("maxwell", maxwell("bootstrap-insert", ROW), maxwell("insert", ROW, xid=1, xoffset=0)),
    ("maxwell", maxwell("bootstrap-insert", ROW), maxwell("insert", ROW, position="m.000001:4")),
    ("canal", canal("INSERT", [TEXTS], es=999), canal("INSERT", [TEXTS], es=1000)),
    ("canal", canal("INSERT", [TEXTS], es=999, id=94), canal("INSERT", [TEXTS], es=1000, id=14)),  # it started again
    ("canal", canal("INSERT", [TEXTS], _tidb={"commitTs": 9 << 18}), canal("INSERT", [TEXTS], _tidb={"commitTs": (9 << 18) + 1})),
    ("canal", canal("INSERT", [TEXTS], es=9), canal("INSERT", [TEXTS], _tidb={"commitTs": (9 << 18) + 1})),
    ("ogg", ogg("I", None, ROW, pos="00000000000000000000999"), ogg("I", None, ROW, pos="0000000001000")),
    ("dms", dms("load", ROW), {"data": ROW, "metadata": {"timestamp": "2026-02-18T23:57:11.970361Z", "record-type": "data", "operation": "load"}}),
    ("debezium-unwrapped", {**ROW, "__lsn": 99}, {**ROW, "__lsn": 100}),
    ("debezium-unwrapped", {**ROW, "__source_ts_ms": 2}, {**ROW, "__source_ts_us": 2001}),
    ("debezium-unwrapped", {**ROW, "__source_scn": "9999", "__source_commit_scn": "9999"}, {**ROW, "__source_scn": "10000", "__source_commit_scn": "10000"}),
]  # fmt: skip


@pytest.mark.parametrize(("envelope", "earlier", "later"), POSITIONS)
def test_positions_sort_as_numbers(envelope: str, earlier: Event, later: Event) -> None:
    places = []
    for message in (earlier, later):
        records, _ = read(message, row_key(envelope=envelope))
        assert records == checked(message, row_key(envelope=envelope))
        places.append(records[0]["_change"]["position"])
    assert places[0] < places[1]


class Feed:
    """A table whose changes are messages of a tool; ``rows`` is what it has in the end."""

    def __init__(self, chance: random.Random, envelope: str) -> None:
        self.chance, self.envelope, self.at = chance, envelope, 0
        self.rows: dict[Any, Event] = {}

    def message(self, op: str, row: Event, before: Event | None = None) -> Event:
        self.at += 1
        old = {name: value for name, value in (before or {}).items() if row.get(name) != value}
        match self.envelope:
            case "maxwell":
                type_ = {"c": "insert", "u": "update", "d": "delete"}[op]
                return maxwell(type_, row, xid=self.at * 7, **({"old": old} if op == "u" else {}))
            case "canal":
                type_ = {"c": "INSERT", "u": "UPDATE", "d": "DELETE"}[op]
                types = {"id": "int", "n": "bigint", "a": "text"}
                row, old = ({k: v if v is None else str(v) for k, v in one.items()} for one in (row, old))
                return canal(type_, [row], es=self.at, mysqlType=types, old=[old] if op == "u" else None)
            case "ogg":
                return ogg(
                    {"c": "I"}.get(op, op.upper()),
                    row if op == "d" else before,
                    None if op == "d" else row,
                    pos=f"{self.at:020}",
                )
            case "dms":
                kind = {"c": "insert", "u": "update", "d": "delete"}[op]
                message = dms(kind, {**row, **{f"BI_{name}": value for name, value in old.items()}})
                message["metadata"]["timestamp"] = f"2026-02-18T23:{self.at // 60:02}:{self.at % 60:02}Z"
                return message
        assert self.envelope == "debezium-unwrapped"
        return {**row, "__op": op, "__deleted": str(op == "d").lower(), "__source_lsn": self.at}

    def step(self) -> list[Event]:
        """One change, as messages."""
        id_, row = (
            self.chance.randrange(8),
            {"n": self.at, "a": self.chance.choice(["x", "2026-01-01", None])},
        )
        old = self.rows.get(id_)
        if old is None:
            self.rows[id_] = {"id": id_, **row}
            return [self.message("c", self.rows[id_])]
        if self.chance.random() < 0.3:
            return [self.message("d", self.rows.pop(id_))]
        new = self.chance.randrange(8, 12)
        if self.envelope != "debezium-unwrapped" and new not in self.rows and self.chance.random() < 0.3:
            del self.rows[id_]
            id_ = new
        self.rows[id_] = {"id": id_, **row}
        return [self.message("u", self.rows[id_], old)]


@pytest.mark.parametrize("envelope", ENVELOPES[1:-1])
@pytest.mark.parametrize("seed", range(2))
def test_any_delivery_of_a_history_ends_in_what_the_database_has(
    tmp_path: Path, seed: int, envelope: str
) -> None:
    """Twice, in any order, in any batches."""
    chance, table = random.Random(seed), FilesTable(tmp_path)
    feed = Feed(chance, envelope)
    messages = [message for _ in range(120) for message in feed.step()]
    sent = messages + chance.sample(messages, 30)
    chance.shuffle(sent)
    deliver(table, sent, envelope, chance)
    rows = table.rows()
    held = {key_of(row): row["n"] for row in rows}
    assert len(held) == len(rows)
    assert held == {same_key(id_): row["n"] for id_, row in feed.rows.items()}


def noted(records: list[Event]) -> list[str]:
    """The note on records that are ingested without an envelope."""
    settings = from_properties({})
    observer = JsonObserver(expect(Schema(), settings), settings)
    observer.feed([json.dumps(record).encode() for record in records], "f", 1)
    return envelope_note(observer.result().shape)


def test_messages_that_are_ingested_as_records_are_noted_where_they_are_surely_of_a_tool() -> None:
    surely: dict[str, list[Event]] = {
        "debezium": [
            {"op": op, "before": None, "after": ROW, "source": {"connector": "mysql"}} for op in "cu"
        ],
        "debezium-unwrapped": [UNWRAPPED],
        "maxwell": [maxwell("insert", ROW), maxwell("update", {str(n): n for n in range(9)}, old=OLD)],
        "canal": [canal("INSERT", [TEXTS])],
        "ogg": [ogg("I", None, ROW), ogg("D", ROW, None)],
        "dms": [dms("insert", ROW)],
    }
    for name, messages in surely.items():
        (note,) = noted(messages)
        assert (
            note == f"the records are changes of a database: --envelope {name}, with a --key, makes them rows"
        )
        for field in SIGNS[name]:
            changed = [{**message, field.partition(".")[0]: {"x": [1]}} for message in messages]
            if "." in field or SIGNS[name][field] != "object":
                assert not any(f"--envelope {name}," in note for note in noted(changed))
    assert noted([ROW]) == noted([{**ROW, "type": "insert", "data": {}}]) == []


@pytest.mark.parametrize(("day", "expected"), [(1, "1970-01-02"), ("x", None)])
def test_unwrapped_rows_with_their_schema(day: Any, expected: str | None) -> None:
    schema = {
        "type": "struct",
        "fields": [{"field": "day", "type": "int32", "name": "io.debezium.time.Date"}],
    }
    row = {"id": 7, "day": day, "__op": "c", "__lsn": 42}
    keyed, message = row_key(envelope="debezium-unwrapped"), {"schema": schema, "payload": row}
    records, _ = read(message, keyed)
    if expected is None:
        assert "no io.debezium.time.Date" in str(records)
        assert checked(message, keyed) == ""
    else:
        assert records == checked(message, keyed)
        assert [one["day"] for one in records] == [expected]
