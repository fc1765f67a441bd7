"""Types and parses JSON values: numbers, texts and dates (rules 2.1, 2.2), and lines that are no record.

The date patterns match whole strings, mean the same in Python and in Java, and are exact: a string that
matches is a date.
"""

from __future__ import annotations

import json
import math
import re
import struct
from collections.abc import Collection, Iterable
from datetime import UTC, datetime
from decimal import Context, Decimal
from functools import cache
from typing import Any, Final, NoReturn

from msgspec import MsgspecError, Raw
from msgspec import json as msgspec_json

from driftline.core.planning.shape import NUMBER_TEXT
from driftline.core.schema.types import (
    BIG_DECIMAL,
    BIG_INTEGER,
    BOOLEAN,
    DATE,
    DOUBLE,
    FLOAT,
    INT,
    LONG,
    STRING,
    TIME,
    TIMESTAMP,
    TIMESTAMP_NTZ,
    UUID,
    Primitive,
)
from driftline.core.settings.csv import POINT, Signs
from driftline.core.settings.fields import TextReading

_YEAR = "(?:[1-9][0-9]{3}|0[1-9][0-9]{2}|00[1-9][0-9]|000[1-9])"
_NEAR = "(?:2[01][0-9]{2}|19[7-9][0-9])"
_FOURTH = "(?:0[48]|[2468][048]|[13579][26])"
_LEAP = f"(?:[0-9]{{2}}{_FOURTH}|{_FOURTH}00)"
_NEAR_LEAP = f"(?:19(?:7[26]|8[048]|9[26])|20(?:00|{_FOURTH})|21{_FOURTH})"
_DAY = "(?:(?:0[1-9]|1[0-2])-(?:0[1-9]|1[0-9]|2[0-8])|(?:0[13-9]|1[0-2])-(?:29|30)|(?:0[13578]|1[02])-31)"
_CLOCK = "[T ](?:[01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9]"
_FRACTIONS = {0: r"(?:\.0{1,6}|)", 3: r"(?:\.[0-9]{1,3}0{0,3}|)", 6: r"(?:\.[0-9]{1,6}|)"}
_UTC = r"(?:Z|\+00:00)"
# As ISO 8601 has it, and as databases write it: +02:00, +0200, +02.
OFFSET = "(?:Z|[+-](?:(?:0[0-9]|1[0-7])(?::?[0-5][0-9])?|18(?::?00)?))"

DATE_PATTERN = f"(?:{_YEAR}-{_DAY}|{_LEAP}-02-29)"
# The clock begins with T or a blank, as RFC 3339 allows and SQL prints, in every text source.
TIMESTAMP_NTZ_PATTERN = DATE_PATTERN + _CLOCK + _FRACTIONS[6]
TIMESTAMP_PATTERN = TIMESTAMP_NTZ_PATTERN + _UTC
# Another offset can lead out of the years 1 to 9999.
OFFSET_PATTERN = f"(?:{TIMESTAMP_PATTERN}|(?!0001|9999){TIMESTAMP_NTZ_PATTERN}{OFFSET})"
UUID_PATTERN = "[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}"
TIME_PATTERN = r"(?:[01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](?:\.[0-9]{1,6})?"

DATELIKE = (DATE, TIMESTAMP, TIMESTAMP_NTZ)
_PATTERNS = {
    "off": {},
    "on": {DATE: DATE_PATTERN, TIMESTAMP: TIMESTAMP_PATTERN, TIMESTAMP_NTZ: TIMESTAMP_NTZ_PATTERN},
    "instant": {DATE: DATE_PATTERN, TIMESTAMP: OFFSET_PATTERN, TIMESTAMP_NTZ: TIMESTAMP_NTZ_PATTERN},
}
DECLARED = {UUID: UUID_PATTERN, TIME: TIME_PATTERN}
_MATCHES = {
    mode: [(base, re.compile(pattern).fullmatch) for base, pattern in patterns.items()]
    for mode, patterns in _PATTERNS.items()
}
_DECLARED_MATCHES = [(base, re.compile(pattern).fullmatch) for base, pattern in DECLARED.items()]


def string_base(text: str, mode: str) -> Primitive:
    """The type of a JSON string (rule 2.2): DATE, TIMESTAMP, TIMESTAMP_NTZ or STRING.

    Args:
        mode: "on", "off", "instant".

    >>> texts = "2024-02-29", "2023-02-29", "2024-01-01T00:00:00Z", "2024-01-01 00:00:00"
    >>> [str(string_base(text, "on")) for text in texts]
    ['date', 'string', 'timestamp', 'timestamp_ntz']
    """
    # All three patterns have a hyphen there, and most texts have not: no pattern is tried on those.
    if text[4:5] == "-":
        for base, match in _MATCHES[mode]:
            if match(text):
                return base
    return STRING


_is_moment = re.compile(f"(?:{DATE_PATTERN}|{TIMESTAMP_NTZ_PATTERN}|{OFFSET_PATTERN})").fullmatch


def moment_of(text: str) -> datetime | None:
    """Return the moment that a text spells, as ``instant`` reads it; in UTC if it has no zone.

    >>> moment_of("2026-01-01").isoformat(), moment_of("2026-01-01T02:00:00+02:00").hour, moment_of("2026")
    ('2026-01-01T00:00:00+00:00', 0, None)
    """
    if text[4:5] != "-" or not _is_moment(text):
        return None
    moment = datetime.fromisoformat(text)
    return moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)


def declared_string_base(text: str, declared: Collection[Primitive], mode: str) -> Primitive:
    """The type of a JSON string in a field with columns of these types.

    A uuid or a time in canonical form has that type if there is such a column (section 3 of the rules).
    """
    for base, match in _DECLARED_MATCHES:
        if base in declared and match(text):
            return base
    return string_base(text, mode)


def fraction(text: str) -> int:
    """The digits of a timestamp's fraction of a second, rounded up to 0, 3 or 6.

    Trailing zeros do not count.

    >>> fraction("2024-01-01T00:00:00.500Z"), fraction("2024-01-01T00:00:00.000"), fraction("2024-01-01")
    (3, 0, 0)
    """
    if text[19:20] != ".":
        return 0
    digits = len(text[20:26].partition("Z")[0].partition("+")[0].partition("-")[0].rstrip("0"))
    return 0 if not digits else 3 if digits <= 3 else 6


def far(text: str) -> bool:
    """True if the year of a date or timestamp is outside 1970..2199.

    With an offset the range is a year narrower at both ends, since the offset may lead into the next year.
    """
    zone = text[19:]
    if ("+" in zone or "-" in zone) and not zone.endswith("+00:00"):
        return not "1971" <= text[:4] <= "2198"
    return not "1970" <= text[:4] <= "2199"


def known_pattern(base: Primitive, digits: int, beyond: bool, mode: str) -> str:
    """A pattern of the strings of ``base`` with at most ``digits`` digits of a second's fraction.

    Strings that are `far` match only if ``beyond`` is set.
    """
    if base in DECLARED:
        return DECLARED[base]
    day = DATE_PATTERN if beyond else f"(?:{_NEAR}-{_DAY}|{_NEAR_LEAP}-02-29)"
    if base == DATE:
        return day
    moment = day + _CLOCK + _FRACTIONS[digits]
    if base == TIMESTAMP_NTZ:
        return moment
    if mode != "instant":
        return moment + _UTC
    return f"(?:{moment}{_UTC}|(?!{'0001|9999' if beyond else '1970|2199'}){moment}{OFFSET})"


def other_patterns(declared: Collection[Primitive], mode: str) -> list[str]:
    """The patterns of all strings that are more than STRING in a field with columns of these types."""
    return [p for base, p in DECLARED.items() if base in declared] + list(_PATTERNS[mode].values())


EXACT = 2**53  # a double holds every integer up to here
_FAR = 10**9  # an exponent beyond every type's
_DIGITS = Context(prec=38)


def read_text(text: str, reading: TextReading) -> object:
    """Return the number, boolean or date that a text spells, as JSON has it; else the text itself.

    It spells one if the type of the ``reading`` holds the value exactly.

    >>> from driftline.core.settings.csv import COMMA
    >>> [read_text(text, TextReading(LONG)).__class__.__name__ for text in ("12", "007", "12.5")]
    ['Number', 'str', 'str']
    >>> read_text("1.234,5", TextReading(DOUBLE, signs=Signs(COMMA, POINT)))
    '1234.5'
    >>> read_text("true", TextReading(BOOLEAN))
    True
    """
    type_, pattern, signs = reading
    if pattern is not None:
        return pattern.iso(text) or text
    if type_ == BOOLEAN:
        return text == "true" if text in ("true", "false") else text
    number = _without_signs(text, signs)
    return Number(number) if _is_number(number) and _holds_number(type_, number) else text


_is_number = re.compile(r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?").fullmatch


def _without_signs(text: str, signs: Signs) -> str:
    """The number of these signs that the text is, as JSON spells it; empty for a text with another sign."""
    decimal, thousands = signs
    if thousands and thousands in text:
        text = text.replace(thousands, "") if re.fullmatch(signs.groups, text) else ""
    if decimal == POINT:
        return text
    return "" if POINT in text else text.replace(decimal, POINT)


def _holds_number(type_: Primitive, number: str) -> bool:
    """True if a column of the type holds a number of JSON as it is."""
    base = declared_base(number, (type_,))
    if base == type_:
        return True
    if base != LONG:
        return False
    return type_.name == "decimal" or (type_ == DOUBLE and abs(int(number)) <= EXACT)


def mode_of(dates: str, reading: TextReading | None) -> str:
    """Return the mode of dates for texts of a field, from the setting ``dates``.

    In a field that a person has folded into instants, a text with any offset is one.
    """
    return "instant" if dates == "on" and reading is not None and reading.type == TIMESTAMP else dates


def base_of(text: str) -> Primitive:
    """The type of one JSON number as written (rule 2.1); `NUMBER_TEXT` where no number type holds it.

    >>> [str(base_of(n)) for n in ("7", "1e400", "0.10000000000000001", "12345678901234567890.5")]
    ['long', 'number_text', 'double', 'decimal(38, 18)']
    """
    if _whole(text):
        # Up to 18 characters every integer fits, and no text has to be read.
        if len(text) <= 18 or (len(text) <= 20 and -(2**63) <= int(text) < 2**63):
            return LONG
        return BIG_INTEGER if len(text.lstrip("-")) <= 38 else NUMBER_TEXT
    if len(text) <= 16 and "e" not in text and "E" not in text:
        return DOUBLE  # at most 15 digits
    value = float(text)
    if repr(value) == text:
        return DOUBLE
    digits, power = _written(text)
    # 17 digits identify a double, and some writers print all of them: 0.10000000000000001 is 0.1.
    if not digits or _rounds_to(value, digits, power, 17):
        return DOUBLE
    return BIG_DECIMAL if _holds(BIG_DECIMAL, digits, power) else NUMBER_TEXT


def _declared_whole(text: str, natural: Primitive, declared: Collection[Primitive]) -> Primitive | None:
    """The type of a whole number, if a declared column other than a decimal takes it as it is."""
    integer, single, decimals = _narrow(frozenset(declared))
    value = int(text)
    if integer and -(2**31) <= value < 2**31:
        return INT
    if natural != LONG:
        return None
    digits, power = _written(text)
    if single and _is_single(float(value), digits, power, exact=_float(value) == value):
        return FLOAT
    # A long that a wider column takes as it is.
    wider = (DOUBLE in declared and abs(value) <= EXACT) or any(_whole_digits(t) >= 19 for t in decimals)
    return LONG if wider else None


def declared_base(text: str, declared: Collection[Primitive]) -> Primitive:
    """The type of a JSON number in a field with columns of these types (section 3 of the rules).

    That is `base_of` if it is among them; else the narrowest of them that reads back as the written number;
    else `base_of`.

    >>> from driftline.core.schema.types import decimal
    >>> [str(declared_base(n, {decimal(18, 2)})) for n in ("19.99", "20", "0.125")]
    ['decimal(18, 2)', 'decimal(18, 2)', 'double']
    """
    natural = base_of(text)
    if natural in declared:
        return natural
    integer, single, decimals = _narrow(frozenset(declared))
    if not (integer or single or decimals):
        return natural
    digits, power = _written(text)
    if not _whole(text):
        if single and natural == DOUBLE and _is_single(float(text), digits, power):
            return FLOAT
    elif natural != NUMBER_TEXT and (base := _declared_whole(text, natural, declared)) is not None:
        return base
    if natural == NUMBER_TEXT and "e" in text.lower():
        return natural  # Spark cannot tell whether it is exact
    return next((t for t in decimals if not _signed_zero(text) and _holds(t, digits, power)), natural)


def is_single(text: str) -> bool:
    """True if a float column holds the number, which is a long or a double by `base_of`.

    >>> [is_single(n) for n in ("0.1", "16777217", "0.123456789")]
    [True, False, False]
    """
    digits, power = _written(text)
    if not _whole(text):
        return _is_single(float(text), digits, power)
    value = int(text)
    return _is_single(float(value), digits, power, exact=_float(value) == value)


def decimal_of(text: str, t: Primitive) -> Decimal | None:
    """The number as a value of the decimal type ``t``; None if that is not exact.

    >>> from driftline.core.schema.types import decimal
    >>> [decimal_of(n, decimal(9, 2)) for n in ("1e3", "0.125", "-0.0")]
    [Decimal('1000.00'), None, None]
    """
    digits, power = _written(text)
    if _signed_zero(text) or not _holds(t, digits, power):
        return None
    scale = t.args[1]
    unscaled = int(digits) * 10 ** (power + scale) if digits else 0
    return Decimal(-unscaled if text.startswith("-") else unscaled).scaleb(-scale, _DIGITS)


def _is_single(value: float, digits: str, power: int, *, exact: bool | None = None) -> bool:
    """True if a float column holds the number.

    Six digits always are its own, more only if float and double agree.
    """
    if not digits or (_float(value) == value if exact is None else exact):
        return True
    # Else the column widens to double: a float would print other digits than were sent.
    return 1e-37 <= abs(value) <= 3e38 and _rounds_to(_float(value), digits, power, 6)


@cache
def _narrow(declared: frozenset[Primitive]) -> tuple[bool, bool, tuple[Primitive, ...]]:
    """The types split up: whether int and float are among them, and the decimals, fewest digits first."""
    decimals = sorted((t for t in declared if t.name == "decimal"), key=lambda t: t.args)
    return INT in declared, FLOAT in declared, tuple(decimals)


def simple_fractions(declared: Collection[Primitive]) -> tuple[Primitive, str]:
    """The type of a field's simplest fractions, given its columns' types, and a pattern of their texts."""
    _, single, decimals = _narrow(frozenset(declared))
    if DOUBLE in declared or not (single or decimals):
        return DOUBLE, r"-?[0-9]{1,8}\.[0-9]{1,7}\Z"
    if single:
        return FLOAT, r"-?[0-9]{1,3}\.[0-9]{1,3}\Z"
    narrow = decimals[0]
    scale = min(narrow.args[1], 7)
    integer_digits = min(_whole_digits(narrow), 8)
    return (
        narrow,
        rf"(?!-0+\.0+\Z)-?[0-9]{{1,{integer_digits}}}\.[0-9]{{1,{scale}}}\Z"
        if integer_digits and scale
        else r"(?!)",
    )


def _whole(text: str) -> bool:
    return text.isdigit() or ("." not in text and "e" not in text and "E" not in text)


def _written(text: str) -> tuple[str, int]:
    """The significant digits, and the power of ten of the last one; no digits for zero."""
    mantissa, _, power = text.lstrip("-").lower().partition("e")
    integer, _, fraction = mantissa.partition(".")
    digits = integer + fraction
    significant = digits.rstrip("0")
    # Python refuses to read integers of more digits, and beyond any type's range the exact one is no matter.
    exponent = _FAR if len(power) > 4000 else int(power or 0)
    if power.startswith("-") and exponent == _FAR:
        exponent = -_FAR
    return significant.lstrip("0"), exponent - len(fraction) + len(digits) - len(significant)


def _signed_zero(text: str) -> bool:
    """True for a zero with a sign, which only floats have; ``-0`` is a whole number, and as such has none."""
    return text.startswith("-") and not _whole(text) and not _written(text)[0]


def _rounds_to(value: float, digits: str, power: int, most: int) -> bool:
    """True if ``value``, printed with the digits as written (``most`` at most), is the written number.

    Half way between two it may be either, since printers differ.
    """
    if len(digits) > most or not math.isfinite(value) or value == 0:
        return False
    # In integers, without a rounding of its own.
    numerator, denominator = abs(value).as_integer_ratio()
    numerator, denominator = (
        (numerator, denominator * 10**power) if power > 0 else (numerator * 10**-power, denominator)
    )
    return abs(int(digits) * denominator - numerator) * 2 <= denominator


def _float(value: float) -> float:
    """The nearest float32 to the number."""
    try:
        return float(struct.unpack("f", struct.pack("f", value))[0])
    except OverflowError:
        return math.inf


def _holds(t: Primitive, digits: str, power: int) -> bool:
    return not digits or (power >= -t.args[1] and len(digits) + power <= _whole_digits(t))


def _whole_digits(t: Primitive) -> int:
    return t.args[0] - t.args[1]


# Objects and lists inside each other; beyond, neither Python's pickle nor Spark's planner is safe
MAX_DEPTH = 100

NOT_UTF8 = "invalid UTF-8"  # how that reason begins
_ELLIPSIS = "…".encode()
_SHOWN = 4 * 2**10  # bytes that are kept of a text that is too long

# Escapes that are whole characters. What is left of a valid text's backslashes is a lone surrogate.
_ESCAPES = re.compile(
    rb"\\(?:[^u]|u(?:[0-9a-ce-f][0-9a-f]{3}|d[0-7][0-9a-f]{2}|d[89ab][0-9a-f]{2}\\ud[c-f][0-9a-f]{2}))",
    re.IGNORECASE,
)


class Malformed(ValueError):
    """The line is not a record; the message says why. ``why``: the reason, as a `RefusedText` has it."""

    @property
    def why(self) -> Any:
        """The text of the reason, or the refusal."""
        return self.args[0]


class Number(str):
    """A JSON number, as written."""

    __slots__ = ()


class TruncatedText(bytes):
    """The beginning of a text longer than a record may be, with an ellipsis, so that it is no JSON.

    Attributes:
        longest: bytes.
    """

    longest: int


class UnlistedDocument(bytes):
    """A document without a list of records at ``path``, with an ellipsis behind it, so that it is no JSON."""

    path: str

    @classmethod
    def of(cls, document: bytes, path: str) -> UnlistedDocument:
        """Mark a document."""
        marked = cls(document + _ELLIPSIS)
        marked.path = path
        return marked

    @property
    def document(self) -> bytes:
        """The document as it was read."""
        return bytes(self).removesuffix(_ELLIPSIS)


class RefusedText(bytes):
    """A text that is no record for the reason ``why``, with an ellipsis behind it, so that it is no JSON.

    The reason is a text, or the refusal of a table.
    """

    why: object

    @classmethod
    def of(cls, text: bytes, why: object) -> RefusedText:
        """Mark the beginning of a text."""
        marked = cls(text[:_SHOWN] + _ELLIPSIS)
        marked.why = why
        return marked


def cut(text: bytes, longest: int) -> bytes:
    """The text, or a `TruncatedText` of one that is longer than this many bytes.

    >>> cut(b'{"a": 1}', 8), cut(b'{"a": 10}', 8)
    (b'{"a": 1}', b'{"a": 10}\\xe2\\x80\\xa6')
    """
    if len(text) <= longest:
        return text
    beginning = TruncatedText(text[:_SHOWN] + _ELLIPSIS)
    beginning.longest = longest
    return beginning


def has_value(value: object) -> bool:
    """True if there is, at any depth, more than null, ``[]`` and ``{}``.

    >>> has_value({"a": [None, {}]}), has_value([False])
    (False, True)
    """
    if isinstance(value, dict):
        return any(map(has_value, value.values()))
    return any(map(has_value, value)) if isinstance(value, list) else value is not None


def reason(line: bytes) -> str | None:
    """The reason a line is not a record; None if it is one, or blank.

    >>> reason(b'{"a": 1}'), reason(b"[1]")
    (None, 'not an object but a list')
    """
    # A count of brackets is a bound of the depth, without a walk.
    if line.count(b"{") + line.count(b"[") <= MAX_DEPTH:
        try:
            # What this one takes, `parse` takes; it is quicker.
            _quick.decode(line)
            return None
        except (MsgspecError, ValueError):
            pass
    try:
        parse(line)
    except Malformed as error:
        return str(error)
    return None


def parse(line: bytes) -> dict[str, object]:
    """The record of one line, with numbers as `Number`; of duplicate keys the last. Raises Malformed."""
    if isinstance(line, TruncatedText):
        raise Malformed(f"longer than {line.longest} bytes, which the setting max_record_bytes allows")
    if isinstance(line, UnlistedDocument):
        raise Malformed(f"no list at {line.path}, where the setting records looks for records")
    if isinstance(line, RefusedText):
        raise Malformed(line.why)
    try:
        record = _decode(line.decode())
    except UnicodeDecodeError as error:
        raise Malformed(f"{NOT_UTF8}: {error.reason} at byte {error.start}") from None
    except RecursionError:
        raise Malformed(_TOO_DEEP) from None
    except json.JSONDecodeError as error:
        cause = error.msg.removesuffix(" starting at")
        place = f"line {error.lineno}, column {error.colno}" if b"\n" in line else f"character {error.pos}"
        raise Malformed(f"invalid JSON: {cause} at {place}") from None
    if not isinstance(record, dict):
        raise Malformed(f"not an object but a {_NAMES[type(record)]}")
    if line.count(b"{") + line.count(b"[") > MAX_DEPTH and _deeper(record, MAX_DEPTH):
        raise Malformed(_TOO_DEEP)
    if (b"\\ud" in line or b"\\uD" in line) and b"\\" in _ESCAPES.sub(b"", line):
        raise Malformed("invalid Unicode: half of a surrogate pair")
    return record


def parse_values(texts: Iterable[bytes]) -> list[object]:
    """The values of texts from records that `parse` accepts, with numbers as `Number`.

    >>> parse_values([b"1.50", b'["x"]'])
    ['1.50', ['x']]
    """
    values: list[object] = _decode((b"[%b]" % b",".join(texts)).decode())
    return values


raw_members: Final = msgspec_json.Decoder(dict[str, Raw]).decode
"""Split an object's text, by key; of a key that stands twice, the last value. Raises DecodeError, or
RecursionError where it is nested too deeply.

>>> {key: bytes(value) for key, value in raw_members('{"id": 1.50, "tags": ["a"]}').items()}
{'id': b'1.50', 'tags': b'["a"]'}
"""


def _constant(name: str) -> NoReturn:
    raise Malformed(f"invalid JSON: {name} is not a number")


_quick = msgspec_json.Decoder(dict[str, object])
_decode = json.JSONDecoder(parse_int=Number, parse_float=Number, parse_constant=_constant).decode
_TOO_DEEP = f"too deeply nested: more than {MAX_DEPTH} levels"
_NAMES = {list: "list", str: "string", Number: "number", bool: "boolean", type(None): "null"}


def _deeper(value: object, limit: int) -> bool:
    level = [value]
    for _ in range(limit):
        level = [
            child
            for parent in level
            for child in (
                parent.values() if isinstance(parent, dict) else parent if isinstance(parent, list) else ()
            )
            if type(child) is dict or type(child) is list
        ]
        if not level:
            return False
    return True
