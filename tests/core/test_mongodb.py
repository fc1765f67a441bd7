"""Documents of MongoDB in Debezium's messages: both dialects of Extended JSON, updates, and any delivery."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest

from core.test_envelopes import change, checked, read, row_key
from core.test_upsert import Event, FilesTable
from driftline.core.planning.planner import plan
from driftline.core.planning.shape import RecordShape
from driftline.core.schema.types import Schema, Struct
from driftline.core.settings.properties import as_properties, from_properties
from driftline.core.settings.surfaces import in_python, in_toml
from driftline.observe.expect import expect
from driftline.observe.json_lines import JsonObserver
from driftline.observe.observation import Observation
from driftline.readers.envelopes.extended_json import extended_note
from driftline.readers.envelopes.unwrap import Unwrapper
from driftline.readers.json.rows import JsonRows, LineTask, Run
from driftline.readers.rejects import Origin, Reject
from driftline.readers.task import AdmissionTerms
from driftline.verify.change_feeds import plain_value
from driftline.verify.json_texts import parse

SOURCE = {"connector": "mongodb", "ts_ms": 1558965508000, "ord": 31}
AT = "00000001558965508000:0000000031"
HEX = "5d505646cf6d4fe581014ab2"

# The value in a message, and what it stands for.
VALUES: list[tuple[Any, Any]] = [
    ({"$oid": HEX}, HEX),
    ({"$numberInt": "-7"}, -7),
    ({"$numberLong": "9007199254740993"}, 9007199254740993),
    ({"$numberDouble": "1.5"}, 1.5),
    ({"$numberDouble": "-0.0"}, -0.0),
    ({"$numberDouble": "NaN"}, "NaN"),
    ({"$numberDouble": "-Infinity"}, "-Infinity"),
    ({"$numberDecimal": "0.50"}, 0.5),
    ({"$numberDecimal": "1E+3"}, 1000.0),
    ({"$numberDecimal": "NaN"}, "NaN"),
    ({"$date": "2026-03-01T12:00:00.5Z"}, "2026-03-01T12:00:00.5Z"),
    ({"$date": {"$numberLong": "1772366400123"}}, "2026-03-01T12:00:00.123Z"),
    ({"$date": {"$numberLong": "-1"}}, "1969-12-31T23:59:59.999Z"),
    ({"$date": 1772366400000}, "2026-03-01T12:00:00Z"),
    ({"$binary": {"base64": "AQI=", "subType": "00"}}, "AQI="),
    (
        {"$binary": {"base64": "CazwKwpCSmmMbx8cfky1oQ==", "subType": "04"}},
        "09acf02b-0a42-4a69-8c6f-1f1c7e4cb5a1",
    ),
    ({"$binary": "AQI=", "$type": "00"}, "AQI="),
    ({"$uuid": "09acf02b-0a42-4a69-8c6f-1f1c7e4cb5a1"}, "09acf02b-0a42-4a69-8c6f-1f1c7e4cb5a1"),
    ({"$timestamp": {"t": 1565545664, "i": 1}}, {"t": 1565545664, "i": 1}),
    ({"$regularExpression": {"pattern": "^a", "options": "i"}}, {"pattern": "^a", "options": "i"}),
    ({"$symbol": "a"}, "a"),
    ({"$code": "f()"}, "f()"),
    ({"$undefined": True}, None),
    ({"$numberDecimal": "0.10000000000000001"}, "0.10000000000000001"),  # as a double it is 0.1
    ({"$numberLong": "-9223372036854775808"}, -(2**63)),
    ({"$date": "2026-03-01T12:00:00.500+0000"}, "2026-03-01T12:00:00.500Z"),
    ({"$date": "2026-03-01T01:30:00.000-0545"}, "2026-03-01T07:15:00Z"),
    ({"$date": "9999-12-31T23:00:00-02:00"}, "10000-01-01T01:00:00Z"),
    ({"$date": {"$numberLong": "253402300800000"}}, "10000-01-01T00:00:00Z"),
    ({"$date": {"$numberLong": "-62135596800001"}}, "0000-12-31T23:59:59.999Z"),
    ({"$regex": "^a", "$options": "i"}, {"pattern": "^a", "options": "i"}),
    ({"$ref": "c", "$id": {"$oid": HEX}}, {"$ref": "c", "$id": HEX}),
    # What stands for itself.
    (7, 7),
    (0.5, 0.5),
    (None, None),
    ("2026", "2026"),
    ({"$minKey": 1}, {"$minKey": 1}),
    ({"a": {"$numberInt": "1"}, "b": [{"$oid": HEX}, []]}, {"a": 1, "b": [HEX, []]}),
]

# Objects that are like those of Extended JSON, and none of them: they stay.
MALFORMED: list[Any] = [
    {"$oid": 5},
    {"$oid": "5d50"},
    {"$oid": HEX, "b": 1},
    {"$uuid": "09acf02b"},
    {"$numberInt": 7},
    {"$numberLong": "7.5"},
    {"$numberLong": "007"},
    {"$numberLong": "1_000"},
    {"$numberLong": "9223372036854775808"},
    {"$numberDouble": "1."},
    {"$numberDecimal": "many"},
    {"$date": {"a": 1}},
    {"$date": {"$numberLong": "1", "zone": "UTC"}},
    {"$date": True},
    {"$date": 1.5},
    {"$date": "noon"},
    {"$date": "2026-02-30T00:00:00Z"},
    {"$binary": "AQI"},
    {"$binary": "AQI", "$type": "00"},
    {"$binary": {"base64": "AQI=", "subType": "00", "more": 1}},
    {"$undefined": 5},
    {"$timestamp": {"t": 1, "i": 1, "more": 1}},
    {"$timestamp": {"t": 1, "i": True}},
    {"$regularExpression": {"pattern": "^a"}},
]
VALUES += [(value, value) for value in MALFORMED]


def keyed(**settings: str) -> Any:
    return row_key("_id", **settings)


@pytest.mark.parametrize(("sent", "expected"), VALUES, ids=str)
def test_values_of_extended_json(sent: Any, expected: Any) -> None:
    message = {"op": "c", "after": json.dumps({"_id": 7, "v": sent}), "source": SOURCE}
    records, _ = read(message, keyed())
    assert records == [{"_id": 7, "v": expected, **change("c", AT)}]
    assert repr(records[0]["v"]) == repr(expected)
    assert checked(message, keyed()) == records
    assert read(message, row_key("_id", envelope="auto"))[0] == records
    assert checked(message, row_key("_id", envelope="auto")) == records


def of_lines(*lines: bytes, **settings: str) -> tuple[list[bytes], list[Any]]:
    """The texts of dumped records as a task observes them, and its rejects."""
    read_by = from_properties(as_properties({"extended_json": "true", **settings}))
    terms = AdmissionTerms(expect(Schema(), read_by), read_by)
    make = JsonRows.of(plan(Schema(), RecordShape(), read_by), Struct(()), terms, Observation())
    task = LineTask(JsonObserver(terms.expected, read_by), make, terms)
    run = Run(lines, "dump", 1, lambda at, why: Reject(Origin("dump", at + 1), lines[at], why))
    accepted, rejects = task.observe([run])
    return list(accepted.lines), [] if rejects is None else rejects.to_pylist()


@pytest.mark.parametrize(("sent", "expected"), VALUES, ids=str)
def test_values_of_a_dump(sent: Any, expected: Any) -> None:
    line = json.dumps({"_id": 7, "v": [sent]})
    for text in (line, line.replace("$", "\\u0024")):
        (plain,), rejects = of_lines(text.encode())
        assert repr(json.loads(plain)) == repr({"_id": 7, "v": [expected]})
        assert not rejects
        record = {name: plain_value(value) for name, value in parse(text.encode()).items()}
        assert record == parse(plain)


def test_record_with_the_names_of_a_value_stays_a_record() -> None:
    (plain,), rejects = of_lines(b'{"$oid": "%s"}' % HEX.encode())
    assert (json.loads(plain), rejects) == ({"$oid": HEX}, [])


def test_text_that_is_no_record_is_rejected_as_it_came() -> None:
    lines = [b'{"a": {"$oid": "x"}', b'[{"$numberInt": "1"}]', b'{"a": NaN, "b": {"$numberInt": "1"}}', b""]
    texts, rejects = of_lines(*lines)
    assert texts == lines
    assert [row["raw"].encode() for row in rejects] == lines[:3]


def test_extended_json_in_an_envelope_is_left_to_it() -> None:
    with_envelope = from_properties(
        as_properties({"key": "id", "envelope": "debezium", "extended_json": "true"})
    )
    assert not with_envelope.extended_json


@pytest.mark.parametrize(
    ("lines", "notes"),
    [
        ([{"a": {"$oid": HEX}, "b": {"c": [{"$numberInt": "1"}, {"$numberDouble": "1.5"}]}}],
         ["2 fields hold MongoDB's Extended JSON: --extended-json reads it as values"]),
        ([{"at": {"$date": {"$numberLong": "1"}}}, {"at": None}],
         ["1 field holds MongoDB's Extended JSON: --extended-json reads it as values"]),
        ([{"a": {"$oid": HEX, "n": 1}}, {"a": {}}, {"$oid": HEX}], []),
    ],
)  # fmt: skip
def test_report_proposes_the_setting_where_all_objects_of_a_field_are_extended_json(
    lines: list[Any], notes: list[str]
) -> None:
    settings = from_properties({})
    observer = JsonObserver(expect(Schema(), settings), settings)
    observer.feed([json.dumps(line).encode() for line in lines], "dump", 1)
    assert list(extended_note(observer.result().shape)) == notes
    assert [in_python(note).partition(": ")[2] for note in notes] == [
        "extended_json=True reads it as values" for _ in notes
    ]
    assert all(in_toml(note).endswith('extended_json = "true" reads it as values') for note in notes)


def test_digits_of_numbers_stay() -> None:
    decimal = "123456789012345678901234567890.1234"
    message = {
        "op": "c",
        "after": f'{{"_id": 1, "a": {{"$numberDecimal": "{decimal}"}}, "b": {decimal}}}',
        "source": SOURCE,
    }
    (text,), _ = Unwrapper(keyed()).records([json.dumps(message).encode()])
    assert f'"a":{decimal},"b":{decimal}'.encode() in text


ROW = {"_id": HEX, "n": 1}
AFTER = json.dumps({"_id": {"$oid": HEX}, "n": {"$numberInt": "1"}})
KEY = {"id": json.dumps({"$oid": HEX})}
GONE = {"_id": HEX, **change("d", AT)}
CHANGES: dict[str, tuple[Event, list[Event]]] = {
    "insert": ({"op": "c", "before": None, "after": AFTER}, [{**ROW, **change("c", AT)}]),
    "snapshot": ({"op": "r", "after": AFTER, "updateDescription": None}, [{**ROW, **change("r", AT)}]),
    "update": (
        {"op": "u", "after": AFTER, "updateDescription": {"updatedFields": '{"n": 5}'}},
        [{**ROW, **change("u", AT)}],
    ),
    "delete": ({"op": "d", "before": None, "after": None, "_key": KEY}, [GONE]),
    "delete with its document": ({"op": "d", "before": AFTER, "after": None}, [{**ROW, **change("d", AT)}]),
    "key: with its schema": ({"op": "d", "_key": {"schema": {"type": "struct"}, "payload": KEY}}, [GONE]),
    "key: text": ({"op": "d", "_key": KEY["id"]}, [GONE]),
    "key: a number": ({"op": "d", "_key": {"id": "1004"}}, [{"_id": 1004, **change("d", AT)}]),
    "key: a quoted text": ({"op": "d", "_key": {"id": '"a7"'}}, [{"_id": "a7", **change("d", AT)}]),
    "key: no Extended JSON": ({"op": "d", "_key": {"id": "a7"}}, [{"_id": "a7", **change("d", AT)}]),
    "an object": ({"op": "c", "after": {"_id": 7}}, [{"_id": 7, **change("c", AT)}]),
}


@pytest.mark.parametrize(("message", "records"), CHANGES.values(), ids=CHANGES)
def test_changes(message: Event, records: list[Event]) -> None:
    message = {**message, "source": SOURCE}
    assert read(message, keyed()) == (records, {})
    assert checked(message, keyed()) == records


def update(updated: Any = None, removed: Any = None, arrays: Any = None, **more: Any) -> Event:
    said = {
        "updatedFields": None if updated is None else json.dumps(updated),
        "removedFields": removed,
        "truncatedArrays": arrays,
    }
    return {"op": "u", "after": None, "updateDescription": said, "source": SOURCE, "_key": KEY, **more}


PATCHES: dict[str, tuple[Event, Event]] = {
    "set": (update({"n": {"$numberLong": "5"}}), {"n": 5}),
    "set inside": (update({"a.b": 1, "a.c.d": "x"}), {"a": {"b": 1, "c": {"d": "x"}}}),
    "a list": (update({"a": [1, {"$oid": HEX}]}), {"a": [1, HEX]}),
    "removed": (update(None, ["n", "a.b"]), {"n": None, "a": {"b": None}}),
    "both": (update({"n": None}, ["m"], []), {"n": None, "m": None}),
}


@pytest.mark.parametrize(("message", "fields"), PATCHES.values(), ids=PATCHES)
def test_updates_of_fields(message: Event, fields: Event) -> None:
    patch = keyed(merge="patch")
    records = [{**fields, "_id": HEX, **change("u", AT)}]
    assert read(message, patch) == (records, {})
    assert checked(message, patch) == records
    why, _ = read(message, keyed())
    assert str(why).startswith("an update without its document in `after`: set the connector's capture.mode")
    assert checked(message, keyed()) == ""


def test_a_whole_document_keeps_nothing_of_a_patched_row() -> None:
    message = {"op": "u", "after": AFTER, "source": SOURCE}
    records = [{**ROW, **change("d", AT)}, {**ROW, **change("u", AT)}]
    assert read(message, keyed(merge="patch")) == (records, {})
    assert checked(message, keyed(merge="patch")) == records


REFUSED: list[tuple[str, Event]] = [
    ("an update of elements of a list", update({"a.0": 1})),
    ("an update of elements of a list", update({"a.1.b": 1})),
    ("an update of elements of a list", update(None, None, [{"field": "a", "size": 1}])),
    ("an update that replaces an object", update({"a": {"b": 1}})),
    ("op 'u' without a document in `after`", update()),
    ("op 'u' without a document in `after`", {"op": "u", "source": SOURCE, "_key": KEY}),
    ("no update of MongoDB's in `updateDescription`", {**update(), "updateDescription": 5}),
    ("no update of MongoDB's in `updateDescription`", {**update(), "updateDescription": {"updatedFields": "x"}}),
    ("no update of MongoDB's in `updateDescription`", {**update(), "updateDescription": {"updatedFields": "[1]"}}),
    ("no update of MongoDB's in `updateDescription`", update({"n": 1}, [1.5])),
    ("no update of MongoDB's in `updateDescription`", update({"n": 1}, "abc")),
    ("no update of MongoDB's in `updateDescription`", {**update(), "updateDescription": {"updatedFields": {"a": 1}}}),
    ("an update of `a.b` and of a field around it", update({"a": 1, "a.b": 2})),
    ("an update of `a` and of a field inside it", update({"a.b.c": 1}, ["a"])),
    ("a delete without its key", update({"n": 1}, _key=None)),
    ("a delete without its key", {"op": "d", "source": SOURCE}),
    ("a delete without its key", {"op": "d", "source": SOURCE, "_key": {"other": 1}}),
    ("no document of MongoDB as text in `after`", {"op": "c", "after": "[1]", "source": SOURCE}),
    ("no document of MongoDB as text in `after`", {"op": "c", "after": "{", "source": SOURCE}),
    ("no document of MongoDB as text in `after`", {"op": "c", "after": 5, "source": SOURCE}),
    ("no position", {"op": "c", "after": AFTER, "source": {"connector": "mongodb"}}),
]  # fmt: skip


@pytest.mark.parametrize(("why", "message"), REFUSED)
def test_messages_that_cannot_be_read(why: str, message: Event) -> None:
    patch = keyed(merge="patch")
    assert str(read(message, patch)[0]).startswith(why)
    assert checked(message, patch) == ""


def test_a_key_of_another_field() -> None:
    message = {"op": "d", "before": AFTER, "source": SOURCE, "_key": KEY}
    assert read(message, row_key("n"))[0] == checked(message, row_key("n")) == [{**ROW, **change("d", AT)}]
    message["before"] = json.dumps({"_id": 1})
    assert "a delete without its key" in str(read(message, row_key("n"))[0])
    assert checked(message, row_key("n")) == ""


class Collection:
    """A collection whose changes are messages, of updates with or without their documents."""

    def __init__(self, chance: random.Random, *, whole: bool) -> None:
        self.chance, self.whole, self.at = chance, whole, 0
        self.documents: dict[int, Event] = {}

    def sent(self, op: str, id_: int, after: Event | None, said: Any = None) -> Event:
        self.at += 1
        text = None if after is None else json.dumps({**after, "_id": {"$numberLong": str(id_)}})
        source = {"connector": "mongodb", "ts_ms": 1000 * (self.at // 5), "ord": self.at % 5 + 1}
        return {
            "op": op,
            "after": text,
            "updateDescription": said,
            "source": source,
            "_key": {"id": str(id_)},
        }

    def step(self) -> Event:
        chance, id_ = self.chance, self.chance.randrange(6)
        document = self.documents.get(id_)
        if document is None:
            document = self.documents[id_] = {"_id": id_, "n": self.at, "a": {"x": self.at}}
            return self.sent("c", id_, document)
        if chance.random() < 0.2:
            del self.documents[id_]
            return self.sent("d", id_, None)
        if chance.random() < 0.2:  # replaced
            document = self.documents[id_] = {"_id": id_, "m": self.at}
            return self.sent("u", id_, document)
        said: Event = {"updatedFields": json.dumps({"n": self.at, "a.y": self.at}), "removedFields": []}
        document["n"] = self.at
        document.setdefault("a", {})["y"] = self.at
        if document.pop("m", None) is not None:
            said["removedFields"] = ["m"]
        return self.sent("u", id_, document if self.whole else None, said)


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("whole", [True, False])
def test_any_delivery_ends_in_what_the_database_has(tmp_path: Path, seed: int, whole: bool) -> None:
    chance, table = random.Random(seed), FilesTable(tmp_path)
    collection = Collection(chance, whole=whole)
    messages = [collection.step() for _ in range(150)]
    sent = messages + chance.sample(messages, 30)
    if seed:
        chance.shuffle(sent)
    merge = {} if whole else {"merge": "patch"}
    settings = from_properties(as_properties({"key": "_id", "envelope": "debezium", **merge}))
    while sent:
        batch, sent = sent[: (size := chance.randrange(1, 40))], sent[size:]
        assert table.ingest(batch, settings)[1] == 0

    def told(row: Event) -> Any:
        inner = row.get("a") or {}
        return row["_id"], row.get("n"), row.get("m"), inner.get("x"), inner.get("y")

    rows = list(map(told, table.rows()))
    assert sorted(rows, key=str) == sorted(map(told, collection.documents.values()), key=str)
