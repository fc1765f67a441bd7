"""Days and moments that Spark wrote by the Julian calendar, before 1582-10-15, one by one as today's."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date

from driftline.runtime.spark_version import Shifts, julian_shifts
from driftline.verify.moments import FarMoment, date_at

_REFORM = date(1582, 10, 15).toordinal()
_EPOCH = date(1970, 1, 1).toordinal()
_MARKS = "version", "legacyDateTime", "legacyINT96", "timeZone", "sql.parquet.row.metadata"


@dataclass(frozen=True, slots=True)
class OldDays:
    """A file's old calendar.

    ``days``: its dates and timestamps follow it; ``int96``: Parquet's old timestamps do.
    """

    days: bool
    int96: bool
    shifts: Shifts

    def seconds(self, moment: int) -> int:
        """The seconds to add to a moment, in seconds since 1970."""
        begins, shifts = self.shifts
        # Of what is before the table's year 1, no more than hours are a date of Python's.
        return shifts[max(bisect_right(begins, moment) - 1, 0)]


def old_days(metadata: Mapping[str, str]) -> OldDays | None:
    """A file's old calendar, if its metadata name one."""
    version, day_mark, int96_mark, zone, rows = (metadata.get(f"org.apache.spark.{mark}") for mark in _MARKS)
    if version is None and rows is None:
        return None
    major, minor = re.match(r"(\d+)\.(\d+)", version or "2.0").groups()  # type: ignore[union-attr]
    old = OldDays(
        day_mark is not None or int(major) < 3,
        int96_mark is not None or (int(major), int(minor)) < (3, 1),
        _shifts(zone or "UTC"),
    )
    return old if old.days or old.int96 else None


def day(days: int) -> date | FarMoment:
    """The date of a count of days since 1970.

    >>> day(-719164), day(-141428)
    (datetime.date(1, 1, 1), datetime.date(1582, 10, 4))
    """
    ordinal = days + _EPOCH
    if ordinal >= _REFORM:
        return date_at(days)
    # The Julian 0001-01-01 is two days before today's; each fourth year has a day more.
    cycles, of_cycle = divmod(ordinal + 1, 1461)
    years = min(of_cycle // 365, 3)
    of_year = of_cycle - 365 * years
    year = 4 * cycles + years + 1
    leap_day = years == 3 and year % 100 == 0 and year % 400 != 0  # one that there is no more
    before = year - 1
    first = 365 * before + before // 4 - before // 100 + before // 400 + 1 - _EPOCH
    return date_at(first + of_year - (leap_day and of_year >= 60))


def _shifts(zone: str) -> Shifts:
    table = julian_shifts()
    match = re.fullmatch(r"(?:GMT|UTC|UT)?([+-])(\d\d?)(?::?(\d\d))?", zone)
    if match is None:
        return table[zone]
    offset = int(match[1] + "1") * (3600 * int(match[2]) + 60 * int(match[3] or 0))
    begins, shifts = table["UTC"]
    return tuple(begin - offset for begin in begins), shifts
