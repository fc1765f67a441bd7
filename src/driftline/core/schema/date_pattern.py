"""Date and timestamp patterns that a person declares, in the letters of Spark's patterns.

A text is one only if the pattern would print it so again: `dd` takes two digits, `d` no zero in front.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from itertools import pairwise

from driftline.core.schema.text import TYPES, parse_type
from driftline.core.schema.types import DATE, TIMESTAMP_NTZ, Primitive, Type

MONTHS = (
    "January", "February", "March", "April", "May", "June", "July", "August", "September", "October", "November", "December",
)  # fmt: skip
WEEKDAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
SHORT = 3  # letters of a short name
_HINT = re.compile(r"\s*(\w+)\s*\(\s*(?:\"([^\"]*)\"|'((?:[^']|'')*)')\s*\)\s*", re.DOTALL)
_STEP = re.compile(r"'((?:[^']|'')*)'|([A-Za-z])\2*|[^A-Za-z']", re.DOTALL)


def _names(names: Collection[str], letters: int | None = None) -> str:
    return f"(?:{'|'.join(name[:letters] for name in names)})"


# What each run of letters takes; the first letter tells of which part of a moment.
# Arrow and Spark read by one regular expression: Spark's own parser goes by its policy and time zone.
_TAKES = {
    **dict.fromkeys(("yyyy", "uuuu"), "[0-9]{4}"),
    "MM": "[0-9]{2}",
    "M": "[1-9][0-9]?",
    "MMM": _names(MONTHS, SHORT),
    "MMMM": _names(MONTHS),
    "dd": "[0-9]{2}",
    "d": "[1-9][0-9]?",
    **dict.fromkeys(("E", "EE", "EEE"), _names(WEEKDAYS, SHORT)),
    "EEEE": _names(WEEKDAYS),
    "HH": "[0-9]{2}",
    "H": "(?:[0-9]|[12][0-9])",
    "hh": "(?:0[1-9]|1[0-2])",
    "h": "(?:[1-9]|1[0-2])",
    "a": "(?:AM|PM)",
    "mm": "[0-9]{2}",
    "m": "(?:[0-9]|[1-5][0-9])",
    "ss": "[0-9]{2}",
    "s": "(?:[0-9]|[1-5][0-9])",
    **{"S" * digits: f"[0-9]{{{digits}}}" for digits in range(1, 7)},
}
_VARYING = ("d", "M", "H", "h", "m", "s")  # runs of one digit or two
_DAY = {"y": "the year (yyyy)", "M": "the month (MM)", "d": "the day (dd)"}
_CLOCK = ("H", "h", "a", "m", "s", "S")
# No zones: an instant would lose the offset that the text had. No yy: only Spark means 2000 to 2099 by it.
_LETTERS = "yyyy, MM, M, MMM, MMMM, dd, d, EEE, EEEE, HH, H, hh, h, a, mm, m, ss, s, S to SSSSSS"


@dataclass(frozen=True)
class DatePattern:
    """A pattern of texts.

    Attributes:
        steps: runs of letters as they are, and literal text behind a quote.

    >>> pattern = DatePattern.of("d.M.yyyy 'um' HH:mm", TIMESTAMP_NTZ)
    >>> pattern.parts
    ('d', 'M', 'yyyy', 'HH', 'mm')
    >>> bool(re.fullmatch(pattern.regex(), "1.3.2026 um 09:30")), re.fullmatch(pattern.regex(), "01.3.2026")
    (True, None)
    """

    type: Primitive
    text: str
    steps: tuple[str, ...]

    @classmethod
    def of(cls, text: str, type_: Primitive) -> DatePattern:
        """Read a pattern for texts of ``type_``.

        Raises:
            ValueError: there is no such pattern, or texts of it could be read in two ways.
        """
        pattern = cls(type_, text, tuple(_steps(text)))
        for fault in (_unknown(pattern), _incomplete(pattern), _ambiguous(pattern)):
            if fault:
                raise ValueError(f"the pattern {text!r} {fault}")
        return pattern

    @cached_property
    def parts(self) -> tuple[str, ...]:
        """The runs of letters."""
        return tuple(step for step in self.steps if step[0] != "'")

    def part(self, letters: str) -> str:
        """The run of one of these letters; empty if there is none."""
        return next((part for part in self.parts if part[0] in letters), "")

    def regex(self, *, named: bool = False) -> str:
        """A regular expression of a whole text, for Python, Java and RE2, with a group for each part.

        Args:
            named: groups are named by the first letter of their part.
        """
        return "".join(
            re.escape(step[1:])
            if step[0] == "'"
            else f"(?P<{step[0]}>{_TAKES[step]})"
            if named
            else f"({_TAKES[step]})"
            for step in self.steps
        )

    def iso(self, text: str) -> str:
        """Return the date or timestamp that the pattern prints as the text, as ISO 8601; empty if none.

        >>> DatePattern.of("d.M.yyyy h:mm a", TIMESTAMP_NTZ).iso("1.3.2026 12:05 AM")
        '2026-03-01T00:05:00'
        """
        match = re.fullmatch(self.regex(named=True), text)
        if match is None:
            return ""
        parts = match.groupdict()
        month = parts["M"]
        if len(self.part("M")) >= SHORT:
            month = str([name[: len(month)] for name in MONTHS].index(month) + 1)
        hour = int(parts.get("H") or parts.get("h") or 0)
        if "a" in parts:
            hour = hour % 12 + 12 * (parts["a"] == "PM")
        try:
            moment = datetime(
                int(parts.get("y") or parts["u"]),
                int(month),
                int(parts["d"]),
                hour,
                int(parts.get("m", 0)),
                int(parts.get("s", 0)),
                int(parts.get("S", "").ljust(6, "0")),
            )
        except ValueError:
            return ""
        weekday = parts.get("E")
        if weekday and not WEEKDAYS[moment.weekday()].startswith(weekday):
            return ""
        return (moment.date() if self.type == DATE else moment).isoformat()


@dataclass(frozen=True, slots=True)
class Hint:
    """A type that a person declares for a field.

    Attributes:
        pattern: the pattern of its texts, if they are dates or timestamps in another form than ISO 8601.
    """

    type: Type
    pattern: DatePattern | None = None


def parse_hint(text: str) -> Hint:
    """Read a type, or a date or timestamp with a pattern. Raises ValueError.

    Texts of a pattern have no zone, so ``timestamp`` with one is what ISO texts without a zone are.

    >>> str(parse_hint("decimal(10,2)").type), str(parse_hint('timestamp("dd/MM/yyyy HH:mm")').type)
    ('decimal(10, 2)', 'timestamp_ntz')
    >>> parse_hint("date('dd.MM.yyyy')").pattern.parts
    ('dd', 'MM', 'yyyy')
    """
    match = _HINT.fullmatch(text)
    if match is None:
        return Hint(parse_type(text))
    word, pattern = match[1].lower(), match[2] if match[3] is None else match[3].replace("''", "'")
    named = TYPES.get(word)
    if named is None or named.name not in ("date", "timestamp", "timestamp_ntz"):
        raise ValueError(f"{text!r} is not a type: only date and timestamp take a pattern")
    type_ = DATE if named == DATE else TIMESTAMP_NTZ
    return Hint(type_, DatePattern.of(pattern, type_))


def hint_text(type_: Primitive, pattern: str) -> str:
    """The hint of a pattern, as `parse_hint` reads it.

    >>> hint_text(DATE, "dd.MM.yyyy")
    "date('dd.MM.yyyy')"
    """
    name = "date" if type_ == DATE else "timestamp"
    return f"{name}('{pattern.replace(chr(39), chr(39) * 2)}')"


def _steps(text: str) -> Iterator[str]:
    """The runs of letters of a pattern, and its literal texts behind a quote each. Raises ValueError."""
    position = 0
    while position < len(text):
        match = _STEP.match(text, position)
        if match is None:
            raise ValueError(f"the pattern {text!r} has a quote that is never closed: double it")
        position = match.end()
        if match[1] is not None:
            yield "'" + (match[1].replace("''", "'") or "'")
        else:
            yield match[0] if match[2] else f"'{match[0]}"


def _unknown(pattern: DatePattern) -> str:
    if unknown := next((part for part in pattern.parts if part not in _TAKES), ""):
        if unknown == "yy":
            return "has yy, which does not say the century: only yyyy is read"
        return f"has {unknown}, which is not read: letters are {_LETTERS}; other text stands in single quotes"
    return ""


def _incomplete(pattern: DatePattern) -> str:
    letters = ["y" if part[0] == "u" else part[0] for part in pattern.parts]
    if repeated := next((letter for letter in letters if letters.count(letter) > 1), ""):
        return f"has {repeated} twice"
    if missing := [part for letter, part in _DAY.items() if letter not in letters]:
        return f"lacks {' and '.join([', '.join(missing[:-1])] * (len(missing) > 1) + missing[-1:])}"
    clock = [letter for letter in _CLOCK if letter in letters]
    if pattern.type == DATE:
        return f"has a time of day ({clock[0]}): write timestamp instead of date" if clock else ""
    return _wrong_clock(clock) if clock else "has no time of day: write date instead of timestamp"


def _wrong_clock(clock: Sequence[str]) -> str:
    if ("H" in clock) == ("h" in clock):
        return "needs one hour, HH or hh"
    if ("h" in clock) != ("a" in clock):
        return "has hh without a, or a without hh: a says AM or PM"
    finer = [letter for letter in ("m", "s", "S") if letter in clock]
    return (
        ""
        if finer == ["m", "s", "S"][: len(finer)]
        else "skips a part of the time: minutes come before seconds"
    )


def _ambiguous(pattern: DatePattern) -> str:
    for step, following in pairwise(pattern.steps):
        # "111" by `dM` would be 1 November or 11 January.
        is_varying = step in _VARYING and _begins_with_digit(following)
        if is_varying or (following in _VARYING and _ends_with_digit(step)):
            return f"is ambiguous: {step.lstrip(chr(39))} and {following.lstrip(chr(39))} stand side by side, and one has one digit or two"
    return ""


def _begins_with_digit(step: str) -> bool:
    return step[1:2].isdigit() if step[0] == "'" else "[" in _TAKES[step]


def _ends_with_digit(step: str) -> bool:
    return step[-1].isdigit() if step[0] == "'" else "[" in _TAKES[step]
