"""MongoDB's Extended JSON: objects that stand for values which JSON does not have.

Both versions and both dialects. An object that is none of theirs, or is malformed, stays an object.
"""

from __future__ import annotations

import re
from base64 import b64decode
from collections.abc import Callable, Iterator, Mapping
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any
from uuid import UUID

from msgspec import Raw, json

from driftline.core.planning.shape import RECORD, FieldShape, RecordShape
from driftline.core.schema.text import counted
from driftline.core.schema.types import DOUBLE
from driftline.core.values import base_of
from driftline.readers.envelopes.connect_schema import moment_text

_NUMBER = re.compile(r"-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][+-]?\d+)?", re.ASCII)
_WHOLE = re.compile(r"-?[1-9]\d{0,18}|0", re.ASCII)
_NOT_FINITE = ("NaN", "Infinity", "-Infinity")
_OBJECT_ID = re.compile("[0-9a-fA-F]{24}")
_UUID = re.compile("[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")
_TEXT = re.compile(".*", re.DOTALL)
_MOMENT = re.compile(r"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d{1,6})?)(?:Z|([+-])(\d\d):?(\d\d))", re.ASCII)
_SUBTYPE = re.compile("[0-9a-fA-F]{1,2}")
_UUIDS = ("04", "4")
_EPOCH = datetime(1970, 1, 1)

decode = json.Decoder(float_hook=lambda text: Raw(text.encode())).decode
"""Decode JSON; fractions keep all their digits."""


def _matched(pattern: re.Pattern[str], value: Any) -> str:
    if not isinstance(value, str) or pattern.fullmatch(value) is None:
        raise ValueError
    return value


def _whole(value: Any) -> int:
    number = int(_matched(_WHOLE, value))
    if not -(2**63) <= number < 2**63:
        raise ValueError
    return number


def _number(value: Any) -> Raw | str:
    """Return a number, digit by digit; the text of one that JSON does not have."""
    return value if value in _NOT_FINITE else Raw(_matched(_NUMBER, value).encode())


def _decimal(value: Any) -> Raw | str:
    """Return a decimal; the text of one that is read as the nearest double, which prints other digits."""
    number = _number(value)
    if isinstance(number, str) or base_of(value) != DOUBLE or Decimal(repr(float(value))) == Decimal(value):
        return number
    return str(value)


def _date(value: Any) -> str:
    """Return a moment in UTC, by its text or by its milliseconds since 1970."""
    if isinstance(value, str):
        return _in_utc(value)
    if isinstance(value, dict):
        (text,) = _members(value, "$numberLong")
        value = _whole(text)
    if type(value) is not int or not -(2**63) <= value < 2**63:
        raise ValueError
    return f"{moment_text(value, 3)}Z"


def _in_utc(text: str) -> str:
    if (moment := _MOMENT.fullmatch(text)) is None:
        raise ValueError
    local, sign, hours, minutes = moment.groups()
    micros = (datetime.fromisoformat(local) - _EPOCH) // timedelta(microseconds=1)
    if sign is None:
        return text
    offset = (int(hours) * 60 + int(minutes)) * 60_000_000
    return f"{moment_text(micros - offset if sign == '+' else micros + offset, 6)}Z"


def _bytes(base64: Any, subtype: Any) -> str:
    """Return bytes in base64; a UUID as its text."""
    raw = b64decode(_matched(_TEXT, base64), validate=True)
    is_uuid = _matched(_SUBTYPE, subtype) in _UUIDS and len(raw) == 16
    return str(UUID(bytes=raw)) if is_uuid else str(base64)


def _timestamp(value: Any) -> dict[str, int]:
    if not all(type(part) is int for part in _members(value, "t", "i")):
        raise ValueError
    return dict(value)


def _expression(pattern: Any, options: Any) -> dict[str, str]:
    return {"pattern": _matched(_TEXT, pattern), "options": _matched(_TEXT, options)}


def _undefined(value: Any) -> None:
    if value is not True:
        raise ValueError


def _members(value: Any, *names: str) -> list[Any]:
    """Return the members of an object that has these and no others."""
    if not isinstance(value, dict) or value.keys() != set(names):
        raise ValueError
    return [value[name] for name in names]


# Types that JSON does not have, by all names of the object that stands for a value.
_RULES: Mapping[frozenset[str], Callable[[dict[str, Any]], Any]] = {
    frozenset(names.split()): rule
    for names, rule in {
        "$oid": lambda v: _matched(_OBJECT_ID, v["$oid"]),
        "$uuid": lambda v: _matched(_UUID, v["$uuid"]),
        "$symbol": lambda v: _matched(_TEXT, v["$symbol"]),
        "$code": lambda v: _matched(_TEXT, v["$code"]),
        "$numberInt": lambda v: _whole(v["$numberInt"]),
        "$numberLong": lambda v: _whole(v["$numberLong"]),
        "$numberDouble": lambda v: _number(v["$numberDouble"]),
        "$numberDecimal": lambda v: _decimal(v["$numberDecimal"]),
        "$date": lambda v: _date(v["$date"]),
        "$binary": lambda v: _bytes(*_members(v["$binary"], "base64", "subType")),
        "$binary $type": lambda v: _bytes(v["$binary"], v["$type"]),
        "$undefined": lambda v: _undefined(v["$undefined"]),
        "$timestamp": lambda v: _timestamp(v["$timestamp"]),
        "$regularExpression": lambda v: _expression(*_members(v["$regularExpression"], "pattern", "options")),
        "$regex $options": lambda v: _expression(v["$regex"], v["$options"]),
    }.items()
}
_NAMES = frozenset().union(*_RULES)


def plain(value: Any) -> Any:
    """Return the value that a value of Extended JSON stands for; an object of other names stays one.

    >>> plain({"n": {"$numberLong": "7"}, "at": {"$date": {"$numberLong": "1772366400000"}}})
    {'n': 7, 'at': '2026-03-01T12:00:00Z'}
    """
    if isinstance(value, list):
        return [plain(item) for item in value]
    if not isinstance(value, dict):
        return value
    # No object of Extended JSON has more names, and most documents have.
    rule = _RULES.get(frozenset(value)) if len(value) <= 2 else None
    if rule is not None:
        try:
            return rule(value)
        except (ArithmeticError, TypeError, ValueError):
            pass
    return {name: plain(item) for name, item in value.items()}


def plain_record(text: bytes) -> bytes:
    """Return the text of a record with plain values; any other text as it is.

    >>> plain_record(b'{"_id": {"$oid": "5d505646cf6d4fe581014ab2"}, "n": 1.50}')
    b'{"_id":"5d505646cf6d4fe581014ab2","n":1.50}'
    """
    # An object named `$date` may be data, so a setting alone asks for this, and no guess. A wrapper with
    # another member, or a value of another form, stays an object, as part of it would be lost.
    # Texts of other classes are refused already. An escape may spell the sign, too.
    if type(text) is not bytes or not (b'"$' in text or b'"\\u0024' in text):
        return text
    try:
        record = decode(text)
        # The record itself is no value, whatever its names.
        return json.encode({name: plain(item) for name, item in record.items()})
    except (AttributeError, RecursionError, ValueError):  # msgspec's errors are ValueErrors
        return text  # the observer says what is wrong


def extended_note(shape: RecordShape) -> Iterator[str]:
    """The setting that reads Extended JSON, if all objects of some fields are such."""
    if count := _extended(shape):
        fields = "1 field holds" if count == 1 else f"{counted(count, 'field')} hold"
        yield f"{fields} MongoDB's Extended JSON: --extended-json reads it as values"


def _extended(shape: RecordShape) -> int:
    """Count the fields whose objects have names of Extended JSON alone."""
    count, fields = 0, list(shape.fields.values())
    while fields:
        field: FieldShape = fields.pop()
        for facet, profile in field.facets.items():
            if profile.value is not None:
                fields.append(profile.value)
            if facet.base == RECORD and profile.record is not None:
                inside = profile.record.fields
                is_extended = bool(inside) and inside.keys() <= _NAMES
                count += is_extended
                fields += [] if is_extended else inside.values()
    return count
