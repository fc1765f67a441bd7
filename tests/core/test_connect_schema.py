"""Values by the schema of Kafka Connect beside a payload: a literal table, and a second implementation."""

from __future__ import annotations

import json
import random
from base64 import b64encode
from decimal import Decimal
from typing import Any

import pytest
from msgspec import Raw

from core.test_envelopes import LSN, change, checked, read, row_key
from driftline.readers.envelopes.connect_schema import RULES, WrongValue, decimal_text, of_schema
from driftline.verify.envelopes import Unreadable, decoded
from driftline.verify.json_texts import parse

CONNECT, DEBEZIUM = "org.apache.kafka.connect.data.", "io.debezium."
POINT = {"x": 1.5, "y": 2.0, "wkb": "AQEAAAAAAAAAAAD4PwAAAAAAAABA", "srid": None}
TWO = {"scale": "2"}

# Name, type, parameters, the value in the message, and what it says, as JSON.
VALUES = [
    (f"{CONNECT}Decimal", "bytes", TWO, "B88=", "19.99"),
    (f"{CONNECT}Decimal", "bytes", TWO, "/w==", "-0.01"),
    (f"{CONNECT}Decimal", "bytes", TWO, "", "0.00"),
    (
        f"{CONNECT}Decimal",
        "bytes",
        {"scale": "0", "connect.decimal.precision": "20"},
        "AP//////////",
        "18446744073709551615",
    ),
    (f"{CONNECT}Decimal", "bytes", {"scale": "-3"}, "AQ==", "1000"),
    (f"{CONNECT}Decimal", "bytes", {"scale": "40"}, "AQ==", "0." + "0" * 39 + "1"),
    (f"{CONNECT}Decimal", "bytes", TWO, 1.1, "1.1"),
    (f"{CONNECT}Decimal", "bytes", TWO, -19.25, "-19.25"),
    (f"{CONNECT}Decimal", "bytes", TWO, 2**70, str(2**70)),
    (f"{CONNECT}Decimal", "bytes", {"scale": "-3"}, 7000, "7000"),
    (f"{CONNECT}Decimal", "bytes", {"scale": "0"}, 0.0, "0.0"),
    (f"{DEBEZIUM}data.VariableScaleDecimal", "struct", None, {"scale": 3, "value": "AQ=="}, "0.001"),
    (f"{DEBEZIUM}data.VariableScaleDecimal", "struct", None, {"scale": 0, "value": "e/8="}, "31743"),
    (f"{CONNECT}Date", "int32", None, 20513, '"2026-03-01"'),
    (f"{DEBEZIUM}time.Date", "int32", None, -1, '"1969-12-31"'),
    (f"{DEBEZIUM}time.Date", "int32", None, 2932897, '"10000-01-01"'),
    (f"{DEBEZIUM}time.Date", "int32", None, -719529, '"-0001-12-31"'),
    (f"{DEBEZIUM}time.Date", "int32", None, -622191234, '"infinity"'),
    (f"{DEBEZIUM}time.Date", "int32", None, -2147472692, '"infinity"'),
    (f"{DEBEZIUM}time.Date", "int32", None, -625821272, '"-infinity"'),
    (f"{DEBEZIUM}time.Date", "int32", None, -2147472691, '"-infinity"'),
    (f"{CONNECT}Time", "int32", None, 43200000, '"12:00:00"'),
    (f"{DEBEZIUM}time.Time", "int32", None, 43200500, '"12:00:00.500"'),
    (f"{DEBEZIUM}time.MicroTime", "int64", None, 86399999999, '"23:59:59.999999"'),
    (f"{DEBEZIUM}time.MicroTime", "int64", None, -3020399000000, '"-838:59:59"'),
    (f"{DEBEZIUM}time.NanoTime", "int64", None, 1, '"00:00:00.000000001"'),
    (f"{CONNECT}Timestamp", "int64", None, 1772366400000, '"2026-03-01T12:00:00"'),
    (f"{DEBEZIUM}time.Timestamp", "int64", None, 1772366400123, '"2026-03-01T12:00:00.123"'),
    (f"{DEBEZIUM}time.MicroTimestamp", "int64", None, -1, '"1969-12-31T23:59:59.999999"'),
    (f"{DEBEZIUM}time.MicroTimestamp", "int64", None, 9223372036825200000, '"infinity"'),
    (f"{DEBEZIUM}time.MicroTimestamp", "int64", None, -9223372036832400000, '"-infinity"'),
    (f"{DEBEZIUM}time.NanoTimestamp", "int64", None, 1772366400123456000, '"2026-03-01T12:00:00.123456"'),
    (f"{DEBEZIUM}time.NanoTimestamp", "int64", None, 1772366400123456789, '"2026-03-01T12:00:00.123456789"'),
    (f"{DEBEZIUM}data.Bits", "bytes", {"length": "3"}, "BQ==", '"101"'),
    (f"{DEBEZIUM}data.Bits", "bytes", {"length": "12"}, "AQA=", '"000000000001"'),
    (f"{DEBEZIUM}data.Bits", "bytes", {"length": "12"}, "AQ==", '"000000000001"'),
    (f"{DEBEZIUM}data.Bits", "bytes", {"length": "5"}, "", '"00000"'),
    (f"{DEBEZIUM}data.Bits", "bytes", {"length": "2147483647"}, "", '""'),
    (f"{DEBEZIUM}data.Bits", "bytes", {"length": "2147483647"}, "gQE=", '"0000000110000001"'),
    # What stands for itself.
    (f"{DEBEZIUM}time.ZonedTimestamp", "string", None, "2026-03-01T12:00:00.5Z", '"2026-03-01T12:00:00.5Z"'),
    (f"{DEBEZIUM}time.ZonedTime", "string", None, "12:00:00Z", '"12:00:00Z"'),
    (f"{DEBEZIUM}time.IsoDate", "string", None, "2026-03-01Z", '"2026-03-01Z"'),
    (f"{DEBEZIUM}time.Year", "int32", None, 2026, "2026"),
    (f"{DEBEZIUM}time.Interval", "string", None, "P1Y2M3DT4H", '"P1Y2M3DT4H"'),
    (f"{DEBEZIUM}time.MicroDuration", "int64", None, 90000000, "90000000"),
    (f"{DEBEZIUM}data.Enum", "string", {"allowed": "a,b"}, "a", '"a"'),
    (f"{DEBEZIUM}data.EnumSet", "string", {"allowed": "a,b"}, "a,b", '"a,b"'),
    (
        f"{DEBEZIUM}data.Uuid",
        "string",
        None,
        "09acf02b-0a42-4a69-8c6f-1f1c7e4cb5a1",
        '"09acf02b-0a42-4a69-8c6f-1f1c7e4cb5a1"',
    ),
    (f"{DEBEZIUM}data.Json", "string", None, '{"a": 1}', '"{\\"a\\": 1}"'),
    (f"{DEBEZIUM}data.Xml", "string", None, "<a/>", '"<a/>"'),
    (f"{DEBEZIUM}data.geometry.Point", "struct", None, POINT, json.dumps(POINT)),
    (None, "bytes", None, "AQ==", '"AQ=="'),
    (None, "int64", None, 2**60, str(2**60)),
    (None, "double", None, 0.1, "0.1"),
    (None, "boolean", None, True, "true"),
    (None, "int8", None, -128, "-128"),
    (None, "int16", None, 32767, "32767"),
    (None, "int32", None, -(2**31), "-2147483648"),
    (None, "int64", None, 2**63 - 1, "9223372036854775807"),
    (None, "float", None, 3.4028235e38, "3.4028235e38"),
    (None, "float", None, 7, "7"),
    (None, "double", None, -1.7976931348623157e308, "-1.7976931348623157e308"),
    (None, "double", None, 2**70, str(2**70)),
    (None, "double", None, "NaN", '"NaN"'),
    (None, "float", None, "-Infinity", '"-Infinity"'),
    (None, "string", None, "", '""'),
    (None, "bytes", None, "", '""'),
]

# A type and a value of JSON that it does not have.
WRONG = [
    ("int8", "128"), ("int8", "-129"), ("int16", "32768"), ("int32", '"AQ=="'), ("int32", "2147483648"),
    ("int32", "1.0"), ("int32", "1e3"), ("int32", "true"), ("int32", "[]"), ("int64", "9223372036854775808"),
    ("int64", "-9223372036854775809"), ("int64", '"7"'),
    ("float", "3.5e38"), ("float", '"1.5"'), ("float", "true"), ("double", "1e309"), ("double", "-1e400"),
    ("double", '"nan"'), ("double", "{}"), ("double", "1" + 400 * "0"),
    ("boolean", "1"), ("boolean", '"true"'), ("string", "1"), ("string", "[]"), ("bytes", '"?"'), ("bytes", '"AQ"'), ("bytes", "1"),
    ("struct", "1"), ("struct", "[]"), ("struct", '[["a",1]]'), ("array", "{}"), ("array", '"a"'), ("map", '"a"'), ("map", "1"),
    ("map", "[1]"), ("map", "[[1]]"), ("map", "[[1,2,3]]"), ("map", '["ab"]'),
]  # fmt: skip


def schema_of(name: str | None, type_: str, parameters: Any, **more: Any) -> Any:
    return {"type": type_, "optional": True, "name": name, "parameters": parameters, **more}


def as_json(raw: Raw) -> Any:
    return parse(b'{"v":%b}' % bytes(raw))["v"]


@pytest.mark.parametrize(("name", "type_", "parameters", "value", "expected"), VALUES)
def test_values_by_their_schema(
    name: str | None, type_: str, parameters: Any, value: Any, expected: str
) -> None:
    schema = schema_of(name, type_, parameters)
    text, wanted = json.dumps(value).encode(), as_json(Raw(expected.encode()))
    for wrap, wrapped_schema in (
        (lambda inner: inner, schema),
        (lambda inner: b"[%b,null]" % inner, {"type": "array", "items": schema}),
        (lambda inner: b'{"k":%b,"n":null}' % inner, {"type": "map", "keys": {"type": "string"}, "values": schema}),
        (lambda inner: b'[[1,%b]]' % inner, {"type": "map", "keys": {"type": "int32"}, "values": schema}),
        (lambda inner: b'{"f":%b}' % inner, {"type": "struct", "fields": [{**schema, "field": "f"}, {**schema, "field": "absent"}]}),
    ):  # fmt: skip
        decode = of_schema(json.dumps(wrapped_schema).encode())
        assert as_json(decode(Raw(wrap(text)))) == as_json(Raw(wrap(expected.encode())))
        assert as_json(decode(Raw(b"null"))) is None
        assert decoded(parse(b'{"v":%b}' % wrap(text))["v"], wrapped_schema) == as_json(
            Raw(wrap(expected.encode()))
        )
    assert decoded(parse(b'{"v":%b}' % text)["v"], schema) == wanted


def test_numbers_keep_their_digits() -> None:
    """Also those beyond what Python reads as a text."""
    unscaled = 10**20_000 + 1
    value = b64encode(unscaled.to_bytes(8_400, "big", signed=True))
    schema = json.dumps(schema_of(f"{CONNECT}Decimal", "bytes", {"scale": "5"})).encode()
    text = bytes(of_schema(schema)(Raw(b'"%b"' % value)))
    assert text == b"1" + b"0" * 19_995 + b".00001"
    far = json.dumps(schema_of(f"{DEBEZIUM}data.VariableScaleDecimal", "struct", None)).encode()
    assert bytes(of_schema(far)(Raw(b'{"scale": -2000000000, "value": "AQ=="}'))) == b"1E+2000000000"


def test_a_scale_beyond_any_decimal() -> None:
    schema = {
        "type": "struct",
        "fields": [{**schema_of(f"{CONNECT}Decimal", "bytes", {"scale": str(2**63)}), "field": "f"}],
    }
    with pytest.raises(WrongValue, match="`f` is"):
        of_schema(json.dumps(schema).encode())(Raw(b'{"f": "AQ=="}'))
    with pytest.raises(Unreadable):
        decoded(parse(b'{"f":"AQ=="}'), schema)


@pytest.mark.parametrize("name", RULES)
@pytest.mark.parametrize("value", ["true", "[1]", '"?"', "1.5", "{}", str(2**70), '"AQ"'])
def test_a_value_that_is_not_of_its_type(name: str, value: str) -> None:
    """The message waits; the check says the same of it."""
    schema = schema_of(name, "?", {})
    if value == str(2**70) and name.rpartition(".")[2] not in ("VariableScaleDecimal", "Bits"):
        return  # numbers of any size are exact
    with pytest.raises(WrongValue, match=f"`f` is .*, no {name}, as its schema has it"):
        of_schema(json.dumps({"type": "struct", "fields": [{**schema, "field": "f"}]}).encode())(
            Raw(b'{"f": %b}' % value.encode())
        )
    with pytest.raises(Unreadable):
        decoded(parse(b'{"v":%b}' % value.encode())["v"], schema)


@pytest.mark.parametrize(("type_", "value"), WRONG)
def test_plain_value_that_is_not_of_its_type_is_refused(type_: str, value: str) -> None:
    """At any depth; the check says the same of it."""
    schema = {"type": type_}
    for path, text, around in (
        ("`f`", '{"f": %s}', {"type": "struct", "fields": [{**schema, "field": "f"}]}),
        ('`a"b`', '{"a\\"b": %s}', {"type": "struct", "fields": [{**schema, "field": 'a"b'}]}),
        ("`\\[]`", "[null, %s]", {"type": "array", "items": schema}),
        ("`{}`", '{"k": %s}', {"type": "map", "keys": {"type": "string"}, "values": schema}),
        ("`{}`", "[[%s, 1]]", {"type": "map", "keys": schema, "values": {"type": "int32"}}),
        ("it", "%s", schema),
    ):
        whole = (text % value).encode()
        with pytest.raises(WrongValue, match=f"{path} is .*, no {type_}, as its schema has it"):
            of_schema(json.dumps(around).encode())(Raw(whole))
        with pytest.raises(Unreadable):
            decoded(parse(b'{"v":%b}' % whole)["v"], around)


@pytest.mark.parametrize("type_", ["unknown", ["a"], None])
def test_value_of_an_unknown_type_stays_as_it_is(type_: Any) -> None:
    schema, value = {"type": type_, "name": "of no rule"}, {"a": [1, "b"]}
    assert as_json(of_schema(json.dumps(schema).encode())(Raw(json.dumps(value).encode()))) == value
    assert decoded(value, schema) == value


def test_text_that_is_not_utf8_is_not_judged_by_its_schema() -> None:
    """The reader of the record says why it waits."""
    schema = json.dumps({"type": "struct", "fields": [{"type": "string", "field": "f"}]}).encode()
    text = b'{"f":"\xff"}'
    assert bytes(of_schema(schema)(Raw(text))) == text


@pytest.mark.parametrize("schema", ["1", '"a"', '{"type": "struct", "fields": [1]}', '{"type": "array", "items": 5}'])  # fmt: skip
def test_what_is_no_schema(schema: str) -> None:
    with pytest.raises(WrongValue, match="a schema that is none of Kafka Connect's"):
        of_schema(schema.encode())


# Messages -----------------------------------------------------------------------------------------------


def row_schema(*fields: Any) -> Any:
    row = {"type": "struct", "optional": True, "name": "srv.public.t.Value", "fields": list(fields)}
    return {
        "type": "struct",
        "name": "srv.public.t.Envelope",
        "fields": [
            {**row, "field": "before"},
            {**row, "field": "after"},
            {"type": "string", "field": "op"},
        ],
    }


ID = schema_of(f"{CONNECT}Decimal", "bytes", {"scale": "0"}, field="id")
PRICE = schema_of(f"{CONNECT}Decimal", "bytes", TWO, field="price")
DAY = schema_of(f"{DEBEZIUM}time.Date", "int32", None, field="day")
NOTE = schema_of(None, "string", None, field="note")
SCHEMA = row_schema(ID, PRICE, DAY, NOTE)
KEY = {"schema": {"type": "struct", "fields": [ID]}, "payload": {"id": "Bw=="}}
AFTER = {"id": "Bw==", "price": "B54=", "day": 20513, "note": "0.10000000000000001"}
ROW = {"id": 7, "price": 19.5, "day": "2026-03-01", "note": "0.10000000000000001"}

MESSAGES = {
    "written": ({"op": "c", "before": None, "after": AFTER, "source": LSN}, [{**ROW, **change("c")}]),
    "its key changes": (
        {"op": "u", "before": {**AFTER, "id": "Bg=="}, "after": AFTER, "source": LSN},
        [{**ROW, "id": 6, **change("d")}, {**ROW, **change("u")}],
    ),
    "deleted": ({"op": "d", "before": AFTER, "after": None, "source": LSN}, [{**ROW, **change("d")}]),
    "deleted by its key": ({"op": "d", "source": LSN}, [{"id": 7, **change("d")}]),
}


@pytest.mark.parametrize(("payload", "records"), MESSAGES.values(), ids=MESSAGES)
@pytest.mark.parametrize("key", [KEY, json.dumps(KEY)], ids=["key", "key as text"])
def test_messages_with_their_schema(payload: Any, records: Any, key: Any) -> None:
    message = {"schema": SCHEMA, "payload": payload}
    for one in ({"_key": key, **message}, {"key": key, "value": message}, {**message, "_key": key}):
        # What begins with a blank is taken apart step by step, where others are read in one pass.
        for text in (json.dumps(one).encode(), b" " + json.dumps(one).encode()):
            assert read(text, row_key()) == (records, {})
            assert checked(text, row_key()) == records


def test_messages_without_a_change_and_their_schema() -> None:
    assert read({"schema": SCHEMA, "payload": None}, row_key()) == ([], {"tombstone": 1})
    heartbeat = {"schema": {"type": "struct", "fields": []}, "payload": {"ts_ms": 1}}
    assert read(heartbeat, row_key()) == ([], {"heartbeat": 1})
    assert checked(heartbeat, row_key()) == []


@pytest.mark.parametrize(
    ("why", "message"),
    {
        "`day` is \"2026-03-01\", no io.debezium.time.Date, as its schema has it": {
            "schema": SCHEMA, "payload": {"op": "c", "after": {"id": "Bw==", "day": "2026-03-01"}, "source": LSN},
        },
        "in the message's key, `id` is 7.5, no org.apache.kafka.connect.data.Decimal, as its schema has it": {
            "_key": {**KEY, "payload": {"id": 7.5}}, "schema": SCHEMA, "payload": {"op": "d", "source": LSN},
        },
        '`note` is 5, no string, as its schema has it': {
            "schema": SCHEMA, "payload": {"op": "u", "before": {**AFTER, "note": 5}, "after": AFTER, "source": LSN},
        },
        "a schema that is none of Kafka Connect's": {
            "schema": 5, "payload": {"op": "c", "after": AFTER, "source": LSN},
        },
    }.items(),
)  # fmt: skip
def test_messages_that_their_schema_does_not_fit(why: str, message: Any) -> None:
    text = json.dumps(message).encode()
    for one in (text, b" " + text, b'{"key":7,"value":' + text + b"}"):
        if b'"_key"' in text and one.startswith(b'{"key"'):
            continue  # the message's own key is then another
        assert read(one, row_key()) == (why, {})
        assert checked(one, row_key()) == ""


@pytest.mark.parametrize(
    "value",
    [
        {"payload": {"op": "c", "after": AFTER, "source": LSN}, "schema": SCHEMA, "more": 1},
        {"payload": {"payload": {"op": "c", "after": AFTER, "source": LSN}, "schema": SCHEMA}},
        {"payload": {"op": "c", "after": AFTER, "source": [LSN]}, "schema": SCHEMA},
        {"payload": {"op": None, "after": AFTER, "source": LSN}, "schema": SCHEMA},
        {"payload": [], "schema": SCHEMA},
        {"op": "c", "after": {"id": 7}, "source": LSN, "payload": {"op": "d"}},
    ],
)
def test_message_of_an_unusual_form_is_read_at_once_as_it_is_taken_apart(value: Any) -> None:
    for one in (value, {"key": {"id": 7}, "value": value}):
        text = json.dumps(one).encode()
        assert read(text, row_key()) == read(b" " + text, row_key())


def test_both_implementations_agree() -> None:
    chance = random.Random(5)
    names = [name for name in RULES if "Decimal" not in name]
    for _ in range(3_000):
        name, size = chance.choice(names), chance.choice((20, 31, 40, 55, 63))
        if name.endswith("Bits"):
            value: Any = b64encode(chance.randbytes(chance.randrange(4))).decode()
        else:
            value = chance.randrange(-(2**size), 2**size)
            value %= 2**31 if name.endswith("Date") else 2**63
        schema = schema_of(name, "?", {"length": str(chance.randrange(40))})
        mine = as_json(of_schema(json.dumps(schema).encode())(Raw(json.dumps(value).encode())))
        assert mine == decoded(value, schema), (name, value)
    for _ in range(1_000):
        raw = chance.randbytes(chance.randrange(20))
        scale = chance.randrange(-40, 40)
        schema = schema_of(f"{CONNECT}Decimal", "bytes", {"scale": str(scale)})
        text = b64encode(raw).decode()
        mine = as_json(of_schema(json.dumps(schema).encode())(Raw(json.dumps(text).encode())))
        assert Decimal(mine) == Decimal(decoded(text, schema))
        # With its sign in many more bytes, a number takes the way of large ones.
        many = int.from_bytes(raw, "big", signed=True).to_bytes(60, "big", signed=True)
        assert decimal_text(raw, scale) == decimal_text(many, scale)


def test_both_implementations_agree_on_what_fits() -> None:
    chance = random.Random(8)
    answers = set()
    for _ in range(3_000):
        schema, value = _some_schema(chance, 3), _some_value(chance, 3)
        text = json.dumps(value).encode()
        try:
            mine: Any = as_json(of_schema(json.dumps(schema).encode())(Raw(text)))
        except WrongValue:
            with pytest.raises(Unreadable):
                decoded(parse(b'{"v":%b}' % text)["v"], schema)
            answers.add("refused")
        else:
            assert mine == decoded(parse(b'{"v":%b}' % text)["v"], schema), (schema, value)
            answers.add(schema["type"])
    assert {"refused", "struct", "array", "map", "int8", "float", "bytes"} <= answers


def _some_schema(chance: random.Random, depth: int) -> Any:
    names = ["int8", "int16", "int32", "int64", "float", "double", "boolean", "string", "bytes"]
    type_ = chance.choice(["struct", "array", "map"] if depth and chance.random() < 0.6 else names)
    inner = [_some_schema(chance, depth - 1) for _ in range(2)] if type_ not in names else []
    match type_:
        case "struct":
            return {"type": type_, "fields": [{**f, "field": n} for f, n in zip(inner, "ab", strict=True)]}
        case "array":
            return {"type": type_, "items": inner[0]}
        case "map":
            return {"type": type_, "keys": inner[0], "values": inner[1]}
    return {"type": type_}


def _some_value(chance: random.Random, depth: int) -> Any:
    inner = [_some_value(chance, depth - 1) for _ in range(2)] if depth else []
    leaves = [None, 1, -129, 2**40, 2**64, 0.5, 1e39, True, "AQ==", "NaN", "a", []]
    return chance.choice(
        [dict(zip("ab", inner, strict=False)), inner, [inner], *leaves[: 12 if depth < 3 else 4]]
    )
