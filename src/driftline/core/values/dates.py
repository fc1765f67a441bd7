"""Dates and timestamps in JSON strings (rule 2.2), and the other types that are text in JSON.

The patterns match whole strings, mean the same in Python and in Java,
and are exact: what they match is a date.
"""

from __future__ import annotations

import re
from collections.abc import Collection

from driftline.core.schema.types import DATE, STRING, TIME, TIMESTAMP, TIMESTAMP_NTZ, UUID, Primitive

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
    """The type of a JSON string (rule 2.2): DATE, TIMESTAMP, TIMESTAMP_NTZ or
    STRING. ``mode``: "on", "off", "instant".

    >>> texts = "2024-02-29", "2023-02-29", "2024-01-01T00:00:00Z", "2024-01-01 00:00:00"
    >>> [str(string_base(text, "on")) for text in texts]
    ['date', 'string', 'timestamp', 'timestamp_ntz']
    """
    if text[4:5] == "-":
        for base, match in _MATCHES[mode]:
            if match(text):
                return base
    return STRING


def declared_string_base(text: str, declared: Collection[Primitive], mode: str) -> Primitive:
    """The type of a JSON string in a field with columns of these types.

    A uuid or a time in canonical form has that type if there is such a column (section 3 of the rules).
    """
    for base, match in _DECLARED_MATCHES:
        if base in declared and match(text):
            return base
    return string_base(text, mode)


def fraction(text: str) -> int:
    """The digits of a timestamp's fraction of a second, rounded up to 0, 3 or 6; trailing zeros do
    not count.

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
    """A pattern of the strings of ``base`` whose `fraction` is at most ``digits``, and that are not `far`
    unless ``beyond``.
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
