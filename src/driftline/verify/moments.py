"""Parses dates and timestamps strictly (2.2), by patterns too, and counts them ("Epoch")."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from functools import lru_cache
from itertools import groupby
from typing import Literal

from driftline.runtime.spark_version import Shifts, julian_shifts


@dataclass(frozen=True, slots=True)
class FarMoment:
    """A date or timestamp before the year 1 or after 9999, where Python's own types end.

    Attributes:
        count: of a ``date`` the days since 1970, else the microseconds: of an ``instant``, or of a timestamp
            ``without zone``.
    """

    kind: Literal["date", "instant", "without zone"]
    count: int

    def __str__(self) -> str:
        if self.kind == "date":
            return _day_text(self.count)
        days, of_day = divmod(self.count, _DAY_MICROS)
        return f"{_day_text(days)}T{clock_text(of_day, 6)}{'Z' * (self.kind == 'instant')}"


Moment = date | datetime | FarMoment

_DAY = r"([0-9]{4})-([0-9]{2})-([0-9]{2})"
_TIME = r"[T ]([0-9]{2}):([0-9]{2}):([0-9]{2})(?:\.([0-9]{1,6}))?"
_MOMENT = re.compile(rf"{_DAY}(?:{_TIME}(Z|[+-][0-9]{{2}}(?::?[0-9]{{2}})?)?)?")
_FAR_MOMENT = re.compile(rf"(-?[0-9]{{4,7}})-([0-9]{{2}})-([0-9]{{2}})(?:{_TIME}(Z)?)?")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_EPOCH_DAY, _LAST_DAY = date(1970, 1, 1).toordinal(), date.max.toordinal()
_DAY_MICROS = 86_400_000_000
PER_UNIT = {"s": 1_000_000, "ms": 1_000, "us": 1}


@lru_cache(4096)
def moment(text: str, offsets: bool = False) -> Moment | None:
    """The date, instant (aware) or zoneless timestamp (naive) that the text is, strictly (2.2); None if none.

    >>> moment("2024-02-30"), moment("2024-02-03T00:00:00"), moment("2024-02-03T00:00Z")
    (None, datetime.datetime(2024, 2, 3, 0, 0), None)
    """
    match = _MOMENT.fullmatch(text)
    if match is None:
        return None
    year, month, day, hour, minute, second, fraction, zone = match.groups()
    try:
        if hour is None:
            return date(int(year), int(month), int(day))
        micros = int((fraction or "").ljust(6, "0"))
        parsed = datetime(int(year), int(month), int(day), int(hour), int(minute), int(second), micros)
        if zone is None:
            return parsed
        if zone not in ("Z", "+00:00"):
            return datetime.fromisoformat(f"{parsed.isoformat()}{zone}").astimezone(UTC) if offsets else None
        return parsed.replace(tzinfo=UTC)
    except (ValueError, OverflowError):
        return None


def date_at(days: int) -> date | FarMoment:
    """The date so many days after 1970-01-01.

    >>> date_at(0), date_at(-719163)
    (datetime.date(1970, 1, 1), FarMoment(kind='date', count=-719163))
    """
    ordinal = days + _EPOCH_DAY
    return date.fromordinal(ordinal) if 1 <= ordinal <= _LAST_DAY else FarMoment("date", days)


def timestamp_at(count: int, *, zoned: bool) -> datetime | FarMoment:
    """The timestamp so many microseconds after 1970: an instant in UTC, or one without a zone."""
    try:
        instant = _EPOCH + timedelta(microseconds=count)
    except OverflowError:
        return FarMoment("instant" if zoned else "without zone", count)
    return instant if zoned else instant.replace(tzinfo=None)


def far_moment(text: str) -> FarMoment | None:
    """The date or timestamp beyond Python's years that the text is; None if it is none.

    >>> far_moment("10000-01-01"), far_moment("2026-01-01")
    (FarMoment(kind='date', count=2932897), None)
    """
    match = _FAR_MOMENT.fullmatch(text)
    if match is None:
        return None
    year, month, day, hour, minute, second, fraction, zone = match.groups()
    if 1 <= int(year) <= 9999:
        return None
    try:  # the calendar repeats after 400 years
        era, of_era = divmod(int(year), 400)
        days = date(of_era + 400, int(month), int(day)).toordinal() - _EPOCH_DAY + (era - 1) * 146_097
        if hour is None:
            return FarMoment("date", days)
        clock = time(int(hour), int(minute), int(second), int((fraction or "").ljust(6, "0")))
    except ValueError:
        return None
    of_day = timedelta(
        hours=clock.hour, minutes=clock.minute, seconds=clock.second, microseconds=clock.microsecond
    )
    count = days * _DAY_MICROS + of_day // timedelta(microseconds=1)
    return FarMoment("instant" if zone else "without zone", count)


def zone_of(m: Moment) -> bool | None:
    """True for an instant, False for a timestamp without a zone, None for a date."""
    if isinstance(m, FarMoment):
        return None if m.kind == "date" else m.kind == "instant"
    return m.tzinfo is not None if isinstance(m, datetime) else None


def micros(m: Moment) -> int:
    """Microseconds since 1970; a date is its midnight, a zoneless timestamp is taken as UTC."""
    if isinstance(m, FarMoment):
        return m.count * _DAY_MICROS if m.kind == "date" else m.count
    instant = m if isinstance(m, datetime) else datetime(m.year, m.month, m.day)
    return (instant.replace(tzinfo=instant.tzinfo or UTC) - _EPOCH) // timedelta(microseconds=1)


def epoch(m: Moment, unit: str | None) -> int | Decimal:
    """The moment in the unit (default ms); a Decimal if it has finer digits than the unit.

    >>> epoch(date(1970, 1, 2), None), epoch(datetime(1970, 1, 1, 0, 0, 0, 500), "ms")
    (86400000, Decimal('0.5'))
    """
    if unit == "ns":
        return micros(m) * 1000
    units, remainder = divmod(micros(m), PER_UNIT[unit or "ms"])
    return units if not remainder else units + Decimal(remainder) / PER_UNIT[unit or "ms"]


def day_text(days: int) -> str:
    """The date so many days after 1970-01-01, in the Gregorian calendar of any year.

    PostgreSQL has two that are infinite, each counted in two ways.
    """
    if days in (-622191234, -2147472692):
        return "infinity"
    if days in (-625821272, -2147472691):
        return "-infinity"
    return _day_text(days)


def _day_text(days: int) -> str:
    # Eras of 400 years that begin on the first of March: leap days come last.
    era, day = divmod(days + 719_468, 146_097)
    year = (day - day // 1_460 + day // 36_524 - day // 146_096) // 365
    day -= 365 * year + year // 4 - year // 100
    month = (5 * day + 2) // 153
    day -= (153 * month + 2) // 5 - 1
    month += 3 if month < 10 else -9
    year += era * 400 + (month <= 2)
    return f"{year:0{4 if year >= 0 else 5}}-{month:02}-{day:02}"


def clock_text(units: int, digits: int) -> str:
    """The time of day after so many units of as many decimal digits."""
    seconds, behind = divmod(abs(units), 10**digits)
    hours, seconds = divmod(seconds, 3600)
    text = f"{'-' * (units < 0)}{hours:02}:{seconds // 60:02}:{seconds % 60:02}"
    fraction = f"{behind:0{digits}}" if behind else ""
    while fraction[-3:] == "000":
        fraction = fraction[:-3]
    return f"{text}.{fraction}" if fraction else text


def moment_text(units: int, digits: int) -> str:
    """The moment after so many units since 1970; PostgreSQL has two that are infinite."""
    if digits == 6 and units in (9223372036825200000, -9223372036832400000):
        return "infinity" if units > 0 else "-infinity"
    days, of_day = divmod(units, 86_400 * 10**digits)
    return f"{day_text(days)}T{clock_text(of_day, digits)}"


_REFORM = date(1582, 10, 15).toordinal()
_CALENDAR_MARKS = "version", "legacyDateTime", "legacyINT96", "timeZone", "sql.parquet.row.metadata"


@dataclass(frozen=True, slots=True)
class OldDays:
    """A file's old calendar.

    Attributes:
        days: its dates and timestamps follow it.
        int96: Parquet's old timestamps do.
    """

    days: bool
    int96: bool
    shifts: Shifts

    def today(self, units: int, second: int) -> int:
        """A moment by today's calendar; ``second``: units of one."""
        begins, shifts = self.shifts
        # Of what is before the table's year 1, no more than hours are a date of Python's.
        return units + shifts[max(bisect_right(begins, units // second) - 1, 0)] * second


def old_days(metadata: Mapping[str, str]) -> OldDays | None:
    """A file's old calendar, if its metadata name one."""
    version, day_mark, int96_mark, zone, rows = (
        metadata.get(f"org.apache.spark.{mark}") for mark in _CALENDAR_MARKS
    )
    if version is None and rows is None:
        return None
    major, minor = re.match(r"(\d+)\.(\d+)", version or "2.0").groups()  # type: ignore[union-attr]
    old = OldDays(
        day_mark is not None or int(major) < 3,
        int96_mark is not None or (int(major), int(minor)) < (3, 1),
        _shifts(zone or "UTC"),
    )
    return old if old.days or old.int96 else None


def old_date_at(days: int) -> date | FarMoment:
    """The date so many days after 1970-01-01, by the old calendar until its reform.

    >>> old_date_at(-719164), old_date_at(-141428)
    (datetime.date(1, 1, 1), datetime.date(1582, 10, 4))
    """
    ordinal = days + _EPOCH_DAY
    if ordinal >= _REFORM:
        return date_at(days)
    # The Julian 0001-01-01 is two days before today's; each fourth year has a day more.
    cycles, of_cycle = divmod(ordinal + 1, 1461)
    years = min(of_cycle // 365, 3)
    of_year = of_cycle - 365 * years
    year = 4 * cycles + years + 1
    leap_day = years == 3 and year % 100 == 0 and year % 400 != 0  # one that there is no more
    before = year - 1
    first = 365 * before + before // 4 - before // 100 + before // 400 + 1 - _EPOCH_DAY
    return date_at(first + of_year - (leap_day and of_year >= 60))


def _shifts(zone: str) -> Shifts:
    table = julian_shifts()
    match = re.fullmatch(r"(?:GMT|UTC|UT)?([+-])(\d\d?)(?::?(\d\d))?", zone)
    if match is None:
        return table[zone]
    offset = int(match[1] + "1") * (3600 * int(match[2]) + 60 * int(match[3] or 0))
    begins, shifts = table["UTC"]
    return tuple(begin - offset for begin in begins), shifts


_HINT = re.compile(r"(\w+)\s*\(\s*(?:\"([^\"]*)\"|'((?:[^']|'')*)')\s*\)")
_AN_INSTANT = re.compile(r"\btimestamp(?:tz|_ltz)?\b(?!\s*\()")  # not of a pattern, which has no zone
_PREFIXES = ("driftline.hints.", "driftline.hinted.", "driftline.resolved.")
# Directives of strptime, and those of strftime where a run prints otherwise.
_PARSED = {
    "y": "%Y", "u": "%Y", "M": "%m", "MMM": "%b", "MMMM": "%B", "d": "%d", "E": "%a", "EEEE": "%A", "H": "%H", "h": "%I", "a": "%p", "m": "%M", "s": "%S", "S": "%f",
}  # fmt: skip


@dataclass(frozen=True)
class WrittenDate:
    """A pattern: its runs of letters, and its literal texts."""

    runs: tuple[tuple[str, bool], ...]
    is_date: bool

    @classmethod
    def of(cls, text: str, *, is_date: bool) -> WrittenDate:
        """Read a pattern.

        >>> WrittenDate.of("d.MM.yyyy", is_date=True).runs
        (('d', True), ('.', False), ('MM', True), ('.', False), ('yyyy', True))
        """
        runs: list[tuple[str, bool]] = []
        # Each second part stood between quotes, and is literal text.
        for number, part in enumerate(text.replace("''", "\0").split("'")):
            for letter, run in groupby(part.replace("\0", "'")):
                is_letter = number % 2 == 0 and letter.isascii() and letter.isalpha()
                runs.append(("".join(run), is_letter))
        return cls(tuple(runs), is_date)

    def moment(self, text: str) -> date | None:
        """The date or moment that the pattern prints as this text; None if there is none.

        >>> pattern = WrittenDate.of("d.MM.yyyy", is_date=True)
        >>> pattern.moment("1.03.2026"), pattern.moment("01.03.2026"), pattern.moment("x")
        (datetime.date(2026, 3, 1), None, None)
        """
        directives = (
            _directive(run) if is_letter else run.replace("%", "%%") for run, is_letter in self.runs
        )
        try:
            moment = datetime.strptime(text, "".join(directives))
        except ValueError:
            return None
        # `strptime` takes `1.3.2026` for `dd.MM.yyyy` too; only what the pattern itself prints is such a
        # date.
        if self.text(moment) != text:
            return None
        return moment.date() if self.is_date else moment

    def text(self, moment: datetime) -> str:
        """The moment as the pattern prints it."""
        return "".join(_printed_date(run, moment) if is_letter else run for run, is_letter in self.runs)


def written_dates(properties: Mapping[str, str]) -> dict[str, tuple[WrittenDate, ...]]:
    """The patterns by which fields have been read, by path, in a table's properties.

    >>> list(written_dates({"driftline.hints.a.`b`": "date('d.M.yyyy')", "driftline.hints.n": "double"}))
    ['a.b']
    """
    patterns: dict[str, tuple[WrittenDate, ...]] = {}
    for key, value in properties.items():
        path = next((key.removeprefix(prefix) for prefix in _PREFIXES if key.startswith(prefix)), "")
        if path and (patterns_of_field := tuple(_in_hint(value))):
            name = path.replace("`", "")
            patterns[name] = tuple(dict.fromkeys((*patterns.get(name, ()), *patterns_of_field)))
    return patterns


def takes_offsets(properties: Mapping[str, str]) -> bool:
    """True if texts with other offsets than UTC may have become instants: by a setting, or by a resolve.

    >>> takes_offsets({"driftline.resolved.at": "timestamptz; timestamp('dd.MM.yyyy HH:mm')"})
    True
    >>> takes_offsets({"driftline.resolved.at": "timestamp_ntz", "driftline.dates": "on"})
    False
    """
    resolved = (value for key, value in properties.items() if key.startswith("driftline.resolved."))
    return properties.get("driftline.dates") == "instant" or any(map(_AN_INSTANT.search, resolved))


def _in_hint(value: str) -> Iterable[WrittenDate]:
    for word, double, single in _HINT.findall(value):
        yield WrittenDate.of(double or single.replace("''", "'"), is_date=word.lower() == "date")


def _directive(run: str) -> str:
    return _PARSED.get(run, "") or _PARSED[run[0]]


def _printed_date(run: str, moment: datetime) -> str:
    """A part of a moment as the letters print it."""
    directive = _directive(run)
    if run[0] == "S":
        return f"{moment.microsecond:06}"[: len(run)]
    if run[0] in "yu":
        # `strftime` may write years before 1000 without zeros, by the C library.
        return f"{moment.year:04}"
    text = moment.strftime(directive)
    return str(int(text)) if len(run) == 1 and text.isdigit() else text
