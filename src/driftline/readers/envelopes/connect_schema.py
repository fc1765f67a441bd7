"""Decodes the values of a message by its Kafka Connect schema, in the JSON converter's form.

Connect's own types need no decoding in JSON: their values are checked, and stay as they are, bytes in base64
too. Types with a name are numbers or texts that stand for something else: `RULES` has those, as Kafka Connect
and Debezium document them. A name without a rule counts for nothing: `Year`, `Enum`, `EnumSet`, `Uuid`,
`Json`, `Xml`, `Ltree`, `ZonedTime`, `ZonedTimestamp`, `Interval`, `Iso*` are numbers or texts already,
durations are numbers of micro- or nanoseconds, geometries are objects with `wkb` in base64.
"""

from __future__ import annotations

import re
from base64 import b64decode
from collections.abc import Callable, Iterator, Mapping
from datetime import date
from decimal import Decimal, InvalidOperation
from functools import lru_cache, partial
from shlex import quote
from typing import Annotated, Any, Literal, NamedTuple, TypeAlias

from msgspec import DecodeError, Meta, Raw, ValidationError, defstruct, field, json

from driftline.core.planning.shape import FieldShape, RecordShape
from driftline.core.schema.definition import CHANGE
from driftline.core.schema.types import STRING, Path
from driftline.core.settings.fields import spelled_path
from driftline.core.settings.row_key import RowKey
from driftline.core.values import raw_members

Decode: TypeAlias = "Callable[[Raw], Raw]"
# The text of JSON for what a type stands for
Spell: TypeAlias = "Callable[[Any], bytes]"
Parameters: TypeAlias = "Mapping[str, str]"

_list = json.Decoder(list[Raw]).decode
_pairs = json.Decoder(list[tuple[Raw, Raw]]).decode
_whole = json.Decoder(int).decode
_text = json.Decoder(str).decode


class WrongValue(ValueError):
    """A value that is not of the type that the schema gives it; the text says which."""


# Leaves -------------------------------------------------------------------------------------------------


_FEW = 38  # digits, or bytes


def decimal_text(unscaled: bytes, scale: int) -> bytes:
    """The number of a decimal: its digits as a whole number, with so many behind the point.

    >>> [decimal_text(digits, 2) for digits in (bytes([7, 207]), bytes([255]), b"")]
    [b'19.99', b'-0.01', b'0.00']
    >>> decimal_text(bytes([1]), -3)
    b'1000'
    """
    whole = int.from_bytes(unscaled, "big", signed=True)
    if 0 < scale <= _FEW and len(unscaled) <= _FEW:  # as nearly all are
        text = str(abs(whole)).zfill(scale + 1)
        return f"{'-' * (whole < 0)}{text[:-scale]}.{text[-scale:]}".encode()
    sign, digits, _ = Decimal(whole).as_tuple()
    try:
        number = Decimal((sign, digits, -scale))
    except InvalidOperation:
        raise OverflowError(f"a scale of {scale}") from None
    # An exponent would need as many zeros, and may be as large as anyone writes.
    return (f"{number:f}" if abs(scale) < 10_000 else f"{number:E}").encode()


def decimal_spelled(parameters: Parameters) -> Spell:
    """The digits of a decimal, by its parameter ``scale``."""
    return partial(decimal_text, scale=int(parameters.get("scale") or 0))


def _decimal(parameters: Parameters) -> Spell:
    """A decimal, of bytes or of the number that it came as, with no more digits than its scale has."""
    of_bytes, scale = decimal_spelled(parameters), int(parameters.get("scale") or 0)

    def spell(value: bytes | str) -> bytes:
        if isinstance(value, bytes):
            return of_bytes(value)
        _, digits, exponent = Decimal(value).as_tuple()
        zeros = len(digits) - len("".join(map(str, digits)).rstrip("0"))
        if not isinstance(exponent, int) or (any(digits) and -exponent - zeros > scale):
            raise ValueError(value)
        return value.encode()

    return spell


def _variable_scale(_: Parameters) -> Spell:
    return lambda members: decimal_text(members["value"], members["scale"])


# PostgreSQL's, as Debezium counts their days, in a snapshot and in the log. No date is so early.
_INFINITE_DAYS = {
    -622191234: "infinity",
    -2147472692: "infinity",
    -625821272: "-infinity",
    -2147472691: "-infinity",
}


def day_text(days: int) -> str:
    """A date, by the days since 1970.

    >>> day_text(20513), day_text(-1), day_text(2932897), day_text(-719529)
    ('2026-03-01', '1969-12-31', '10000-01-01', '-0001-12-31')
    >>> day_text(-(2**63))
    '-25252734927764585-06-07'
    """
    if days in _INFINITE_DAYS:
        return _INFINITE_DAYS[days]
    if -719_162 <= days <= 2_932_896:
        return date.fromordinal(719_163 + days).isoformat()
    # The calendar repeats itself after 400 years.
    eras, rest = divmod(days + 719_162, 146_097)
    like = date.fromordinal(1 + rest)
    year = like.year + 400 * eras
    return f"{'-' * (year < 0)}{abs(year):04}{like:-%m-%d}"


def time_text(units: int, digits: int) -> str:
    """A time of day, by the units of so many decimal digits since midnight.

    >>> time_text(43200000, 3), time_text(1, 6), time_text(-1500, 3), time_text(90000, 0)
    ('12:00:00', '00:00:00.000001', '-00:00:01.500', '25:00:00')
    """
    seconds, fraction = divmod(abs(units), 10**digits)
    sign = "-" if units < 0 else ""
    clock = f"{sign}{seconds // 3600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}"
    if not fraction:
        return clock
    behind = f"{fraction:0{digits}}"
    while behind.endswith("000"):
        behind = behind[:-3]
    return f"{clock}.{behind}"


# PostgreSQL's, as Debezium writes them.
_INFINITY = {9223372036825200000: "infinity", -9223372036832400000: "-infinity"}


def moment_text(units: int, digits: int) -> str:
    """A date and time without a zone, by the units of so many decimal digits since 1970.

    >>> moment_text(1772366400123, 3), moment_text(-1, 9), moment_text(9223372036825200000, 6)
    ('2026-03-01T12:00:00.123', '1969-12-31T23:59:59.999999999', 'infinity')
    """
    if units in _INFINITY and digits == 6:
        return _INFINITY[units]
    days, units_of_day = divmod(units, 86_400 * 10**digits)
    return f"{day_text(days)}T{time_text(units_of_day, digits)}"


def day_spelled(_: Parameters) -> Spell:
    """The text of a date, by the days since 1970."""
    return lambda days: b'"%b"' % day_text(days).encode()


def time_spelled(digits: int) -> Callable[[Parameters], Spell]:
    """The text of a time of day in units of so many decimal digits."""
    return lambda _: lambda units: b'"%b"' % time_text(units, digits).encode()


def moment_spelled(digits: int, zone: str = "") -> Callable[[Parameters], Spell]:
    """The text of a moment in units of so many decimal digits, with the ``zone`` behind it."""
    return lambda _: lambda units: f'"{moment_text(units, digits)}{zone}"'.encode()


# Bits of a column; one without a limit has the largest number there is as its length
_LONGEST = 100_000


def _bits(parameters: Parameters) -> Spell:
    """Bits as digits, the lowest last. Zeros before the first one are not sent."""
    length = int(parameters.get("length") or 0)

    def spell(raw: bytes) -> bytes:
        width = length if 0 < length <= _LONGEST else 8 * len(raw)
        return b'"%b"' % (f"{int.from_bytes(raw, 'little'):0{width}b}" if width else "").encode()

    return spell


def _bytes(value: Raw) -> bytes:
    return b64decode(_text(value), validate=True)


def _bytes_or_number(value: Raw) -> bytes | str:
    """The bytes or the number that the converter writes, by its `decimal.format`."""
    return bytes(value).decode() if memoryview(value)[0] in b"-0123456789" else _bytes(value)


def _scaled(value: Raw) -> dict[str, Any]:
    members = raw_members(value)
    return {"scale": _whole(members["scale"]), "value": _bytes(members["value"])}


class NamedType(NamedTuple):
    """A type with a name.

    Attributes:
        parsed: takes its number or its bytes out of a value of JSON.
        spelled: makes the text of these, by the parameters of the type.
    """

    parsed: Callable[[Raw], Any]
    spelled: Callable[[Parameters], Spell]


RULES: Mapping[str, NamedType] = {
    "org.apache.kafka.connect.data.Decimal": NamedType(_bytes_or_number, _decimal),  # parameter scale
    "io.debezium.data.VariableScaleDecimal": NamedType(_scaled, _variable_scale),
    "org.apache.kafka.connect.data.Date": NamedType(_whole, day_spelled),
    "io.debezium.time.Date": NamedType(_whole, day_spelled),
    "org.apache.kafka.connect.data.Time": NamedType(_whole, time_spelled(3)),  # milliseconds
    "io.debezium.time.Time": NamedType(_whole, time_spelled(3)),
    "io.debezium.time.MicroTime": NamedType(_whole, time_spelled(6)),
    "io.debezium.time.NanoTime": NamedType(_whole, time_spelled(9)),
    "org.apache.kafka.connect.data.Timestamp": NamedType(_whole, moment_spelled(3)),  # milliseconds
    "io.debezium.time.Timestamp": NamedType(_whole, moment_spelled(3)),
    "io.debezium.time.MicroTimestamp": NamedType(_whole, moment_spelled(6)),
    "io.debezium.time.NanoTimestamp": NamedType(_whole, moment_spelled(9)),
    "io.debezium.data.Bits": NamedType(_bytes, _bits),  # lowest byte first, parameter length
}


# Schemas ------------------------------------------------------------------------------------------------


def _whole_number(bits: int) -> Any:
    return Annotated[int, Meta(ge=-(2 ** (bits - 1)), le=2 ** (bits - 1) - 1)]


_NOT_FINITE = Literal["NaN", "Infinity", "-Infinity"]  # as the converter writes them
_BEYOND_FLOAT = float(2**128 - 2**103)  # what rounds to infinity in 32 bits
# Connect's types as msgspec's, which checks bytes for base64.
_PLAIN: Mapping[Any, Any] = {
    "int8": _whole_number(8) | None,
    "int16": _whole_number(16) | None,
    "int32": _whole_number(32) | None,
    "int64": _whole_number(64) | None,
    "float": Annotated[float, Meta(gt=-_BEYOND_FLOAT, lt=_BEYOND_FLOAT)] | _NOT_FINITE | None,
    "double": float | _NOT_FINITE | None,
    "boolean": bool | None,
    "string": str | None,
    "bytes": bytes | None,
}
_DECODE_PLAIN = {name: json.Decoder(type_).decode for name, type_ in _PLAIN.items()}


def _decoder(schema: Any, path: str, *, checks: bool) -> Decode | None:
    """The decoder of values of a schema; None for one of which they stay as they are, as for no schema.

    Args:
        checks: whether values that stay as they are must be of their type.
    """
    if schema is None:
        return None
    if not isinstance(schema, dict):
        raise WrongValue("a schema that is none of Kafka Connect's")
    rule = RULES.get(schema.get("name") or "")
    if rule is not None:
        return _leaf(rule, schema.get("parameters") or {}, path, schema["name"])
    match schema.get("type"):
        case "struct":
            of_fields = {
                f["field"]: decode
                for f in schema.get("fields") or ()
                if (decode := _decoder(f, f"{path}.{f['field']}" if path else f["field"], checks=checks))
            }
            # Without a check, a struct whose fields all stay as they are is not taken apart at all.
            return partial(_struct, of_fields, path) if of_fields or checks else None
        case "array":
            decode = _decoder(schema.get("items"), f"{path}[]", checks=checks)
            return partial(_array, decode or _as_it_is, path) if decode or checks else None
        case "map":
            of_key = _decoder(schema.get("keys"), f"{path}{{}}", checks=checks)
            decode = _decoder(schema.get("values"), f"{path}{{}}", checks=checks)
            if decode or of_key or checks:
                return partial(_map, of_key or _as_it_is, decode or _as_it_is, path)
            return None
        case str(name) if checks and name in _PLAIN:
            return partial(_plain, name, path)
    return None


def _expected(schema: Any) -> Any:
    """The type of msgspec's that takes only values that fit a schema.

    Raises ValueError where msgspec cannot have a field of that name.
    """
    if schema is None or (schema.get("name") or "") in RULES:
        return Raw
    match schema.get("type"):
        case "struct":
            fields = [
                (f"field_{number}", _expected(f), field(default=None, name=f["field"]))
                for number, f in enumerate(schema.get("fields") or ())
            ]
            return defstruct("ExpectedRow", fields, gc=False) | None
        case "array":
            return list[_expected(schema.get("items"))] | None  # type: ignore[misc]
        case "map":
            keys, values = _expected(schema.get("keys")), _expected(schema.get("values"))
            return dict[str, values] | list[tuple[keys, values]] | None  # type: ignore[valid-type]
        case name:
            return _PLAIN.get(name, Raw)


def _plain(type_: str, path: str, value: Raw) -> Raw:
    try:
        _DECODE_PLAIN[type_](value)
    except ValidationError:
        raise _wrong(path, value, type_) from None
    except ValueError:
        pass  # not UTF-8: what reads the record refuses it for that
    return value


def _leaf(rule: NamedType, parameters: Parameters, path: str, name: str) -> Decode:
    parsed, spell = rule.parsed, rule.spelled(parameters)

    def checked(value: Raw) -> Raw:
        if _is_null(value):
            return value
        try:
            return Raw(spell(parsed(value)))
        except (ValueError, KeyError, ArithmeticError):
            raise _wrong(path, value, name) from None

    return checked


def _struct(of_fields: Mapping[str, Decode], path: str, value: Raw) -> Raw:
    if _is_null(value):
        return value
    try:
        members = raw_members(value)
    except (ValidationError, DecodeError):
        raise _wrong(path, value, "struct") from None
    for key, decode in of_fields.items():
        if key in members:
            members[key] = decode(members[key])
    return Raw(json.encode(members))


def _array(decode: Decode, path: str, value: Raw) -> Raw:
    if _is_null(value):
        return value
    try:
        items = _list(value)
    except (ValidationError, DecodeError):
        raise _wrong(path, value, "array") from None
    return Raw(json.encode([decode(item) for item in items]))


def _map(of_key: Decode, decode: Decode, path: str, value: Raw) -> Raw:
    """A map, as an object; as pairs where its keys are no texts."""
    if _is_null(value):
        return value
    try:
        if memoryview(value)[0] != ord("["):
            members = raw_members(value)
            return Raw(json.encode({key: decode(item) for key, item in members.items()}))
        pairs = _pairs(value)
    except (ValidationError, DecodeError):
        raise _wrong(path, value, "map") from None
    return Raw(json.encode([[of_key(key), decode(item)] for key, item in pairs]))


def _is_null(value: Raw) -> bool:
    return memoryview(value)[0] == ord("n")


def _wrong(path: str, value: Raw, type_: str) -> WrongValue:
    return WrongValue(f"{f'`{path}`' if path else 'it'} is {_shown(value)}, no {type_}, as its schema has it")


def _shown(value: Raw) -> str:
    text = bytes(value).decode(errors="replace")
    return text if len(text) <= 60 else f"{text[:60]}…"


def _as_it_is(value: Raw) -> Raw:
    return value


@lru_cache(maxsize=256)
def of_schema(schema: bytes) -> Decode:
    """The decoder of values with this schema. Raises WrongValue."""
    return _screened(schema, lambda parsed: parsed)


@lru_cache(maxsize=256)
def of_field(schema: bytes, name: str) -> Decode:
    """The decoder of the values that one field of a struct has. Raises WrongValue."""
    return _screened(
        schema,
        lambda parsed: next((f for f in parsed.get("fields") or () if f.get("field") == name), None),
    )


def _screened(schema: bytes, part: Callable[[Any], Any]) -> Decode:
    """The decoder of a part of a schema.

    msgspec checks a value as a whole, in one call. Only one that it refuses is checked field by field, which
    is slower, and names the field.
    """
    try:
        parsed = part(json.decode(schema))
        every = _decoder(parsed, "", checks=True)
        named = _decoder(parsed, "", checks=False) or _as_it_is
    except (AttributeError, KeyError, TypeError, ValueError, RecursionError):
        raise WrongValue("a schema that is none of Kafka Connect's") from None
    if every is None:
        return _as_it_is
    try:
        screen = json.Decoder(_expected(parsed)).decode
    except (TypeError, ValueError, RecursionError):
        return every

    def decode(value: Raw) -> Raw:
        try:
            screen(value)
        except ValueError:
            return every(value)
        return named(value)

    return decode


_ENVELOPES = ("debezium", "debezium-unwrapped", "auto")
_DATED = re.compile(r"(?:^|[_-])(?:date|day|born|birth|birthday|dob)(?:$|[_-])|date$", re.IGNORECASE)
_BASE64 = re.compile(r"(?:[A-Za-z0-9+/]{4}){0,5}(?:[A-Za-z0-9+/]{3}=|[A-Za-z0-9+/]{2}==)")
_SCHEMA = "or have the connector send schemas"


class Encoding(NamedTuple):
    """An encoding: its name, a test for a field's values, and the advice that declares it."""

    name: str
    looks: Callable[[str, str], bool]
    remedy: str


def _between(low: float, high: float) -> Callable[[str, str], bool]:
    return lambda _, value: value.isdecimal() and low <= int(value) < high


# Of the years 2000 to 2040.
ENCODINGS = (
    Encoding("a decimal in base64", lambda _, value: _BASE64.fullmatch(value) is not None, "set decimal.handling.mode = string in the connector"),
    Encoding("days since 1970", lambda name, value: bool(_DATED.search(name)) and _between(1, 40_000)(name, value), "set time.precision.mode = isostring in the connector"),
    Encoding("milliseconds since 1970", _between(946e9, 2209e9), "make the table with --hint {hint}"),
    Encoding("microseconds since 1970", _between(946e12, 2209e12), "make the table with --hint {hint} --set {unit}"),
)  # fmt: skip


def encoded_notes(shape: RecordShape, row_key: RowKey, known: Callable[[Path], bool]) -> Iterator[str]:
    """A note for each field that looks encoded.

    Args:
        known: true for a path that is left alone.
    """
    if row_key.envelope not in _ENVELOPES:
        return
    for name, of_field in shape.fields.items():
        if name == CHANGE or (name,) in row_key.key or known((name,)):
            continue
        if (encoding := _encoding(name, of_field)) is not None:
            path = spelled_path((name,))
            remedy = encoding.remedy.format(
                hint=quote(f"{path}=timestamp"), unit=quote(f"epoch_units.{path}=us")
            )
            yield f"{path} looks like {encoding.name}: {remedy}, {_SCHEMA}"


def _encoding(name: str, field: FieldShape) -> Encoding | None:
    """The encoding that a field's values look like, by the first of them."""
    if len(field.facets) != 1:
        return None
    ((facet, profile),) = field.facets.items()
    if facet.dim or profile.sample is None:
        return None
    value = str(profile.sample)
    if facet.base == STRING:
        value = value.strip('"')
        return ENCODINGS[0] if ENCODINGS[0].looks(name, value) else None
    return next((one for one in ENCODINGS[1:] if one.looks(name, value)), None)
