"""Dates and timestamps by a pattern: what a pattern takes, in Arrow, in SQL's regular expression and in verify's own reading."""

from __future__ import annotations

import re
from datetime import date, datetime, timedelta

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from driftline.convert.kernels import dates_of
from driftline.core.schema.date_pattern import DatePattern, hint_text, parse_hint
from driftline.core.schema.types import DATE, TIMESTAMP_NTZ
from driftline.core.settings.properties import as_properties, from_properties
from driftline.errors import UsageError
from driftline.verify.moments import WrittenDate, written_dates

READ = [
    ("date('dd.MM.yyyy')", "01.03.2026", date(2026, 3, 1)),
    ("date('dd.MM.yyyy')", "1.3.2026", None),
    ("date('dd.MM.yyyy')", "31.04.2026", None),
    ("date('dd.MM.yyyy')", "29.02.2024", date(2024, 2, 29)),
    ("date('dd.MM.yyyy')", "01.01.0000", None),
    ("date('dd.MM.yyyy')", " 01.03.2026", None),
    ("date('dd.MM.yyyy')", "01.03.2026\n", None),
    ("date('dd.MM.yyyy')", "01-03-2026", None),
    ("date('d.M.yyyy')", "1.3.2026", date(2026, 3, 1)),
    ("date('d.M.yyyy')", "01.3.2026", None),
    ("date('uuuuMMdd')", "20260301", date(2026, 3, 1)),
    ("date('dd-MMM-yyyy')", "01-Mar-2026", date(2026, 3, 1)),
    ("date('dd-MMM-yyyy')", "01-MAR-2026", None),
    ("date('d MMMM yyyy')", "1 September 2026", date(2026, 9, 1)),
    ("date('EEE, d MMM yyyy')", "Sun, 1 Mar 2026", date(2026, 3, 1)),
    ("date('EEE, d MMM yyyy')", "Mon, 1 Mar 2026", None),
    ("date('EEEE dd.MM.yyyy')", "Sunday 01.03.2026", date(2026, 3, 1)),
    ("date(\"dd.MM.yyyy '00:00'\")", "01.03.2026 00:00", date(2026, 3, 1)),
    ("date(\"dd.MM.yyyy '00:00'\")", "01.03.2026 10:00", None),
    ("date('yyyy''y''-MM-dd')", "2026y-03-01", date(2026, 3, 1)),
    ("timestamp('MM/dd/yyyy HH:mm')", "03/01/2026 12:30", datetime(2026, 3, 1, 12, 30)),
    ("timestamp('MM/dd/yyyy HH:mm')", "03/01/2026 24:00", None),
    ("timestamp('M/d/yyyy h:mm a')", "3/1/2026 12:30 AM", datetime(2026, 3, 1, 0, 30)),
    ("timestamp('M/d/yyyy h:mm a')", "3/1/2026 12:30 PM", datetime(2026, 3, 1, 12, 30)),
    ("timestamp('M/d/yyyy hh:mm:ss a')", "3/1/2026 01:02:03 PM", datetime(2026, 3, 1, 13, 2, 3)),
    ("timestamp('M/d/yyyy h:mm a')", "3/1/2026 13:05 PM", None),
    ("timestamp('yyyy-MM-dd HH:mm:ss.SSS')", "2026-03-01 01:02:03.450", datetime(2026, 3, 1, 1, 2, 3, 450_000)),
    ("timestamp('yyyy-MM-dd HH:mm:ss.SSS')", "2026-03-01 01:02:03.45", None),
    ("timestamp('d.M.yyyy H:m:s')", "1.3.2026 9:5:7", datetime(2026, 3, 1, 9, 5, 7)),
    ("timestamp('yyyyMMddHHmmssSSSSSS')", "20260301010203000004", datetime(2026, 3, 1, 1, 2, 3, 4)),
    ("timestamp('dd.MM.yyyy HH')", "01.03.2026 17", datetime(2026, 3, 1, 17)),
]  # fmt: skip


def by_verify(hint: str, text: str) -> date | None:
    (pattern,) = written_dates({"driftline.hints.x": hint})["x"]
    return pattern.moment(text)


@pytest.mark.parametrize(("hint", "text", "moment"), READ)
def test_a_text_is_a_date_where_the_pattern_prints_it_so(hint: str, text: str, moment: date | None) -> None:
    pattern = parse_hint(hint).pattern
    assert pattern is not None
    assert dates_of(pa.array([text, None]), pattern).to_pylist() == [moment, None]
    assert by_verify(hint, text) == moment
    if moment is not None:
        assert re.fullmatch(pattern.regex(), text)


REFUSED = {
    "date('dd.MM.yy')": "has yy, which does not say the century: only yyyy is read",
    "date('dMyyyy')": "is ambiguous: d and M stand side by side, and one has one digit or two",
    "timestamp('yyyy-MM-dd H1')": "is ambiguous: H and 1",
    "date('dd.MM')": "lacks the year (yyyy)",
    "date('')": "lacks the year (yyyy), the month (MM) and the day (dd)",
    "date('dd.MM.dd.yyyy')": "has d twice",
    "date('dd.MM.yyyy HH:mm')": "has a time of day (H): write timestamp instead of date",
    "timestamp('dd.MM.yyyy')": "has no time of day: write date instead of timestamp",
    "timestamp('dd.MM.yyyy hh:mm')": "has hh without a, or a without hh",
    "timestamp('dd.MM.yyyy HH:mm a')": "has hh without a, or a without hh",
    "timestamp('dd.MM.yyyy HH hh a')": "needs one hour, HH or hh",
    "timestamp('dd.MM.yyyy HH:ss')": "skips a part of the time",
    "timestamp('dd.MM.yyyy HH:mm XXX')": "has XXX, which is not read: letters are yyyy,",
    "date('YYYY-MM-dd')": "has YYYY, which is not read: letters are yyyy,",
    "date(\"dd.MM.yyyy 'Uhr\")": "has a quote that is never closed: double it",
    "int('d')": "is not a type: only date and timestamp take a pattern",
    "list<date('dd.MM.yyyy')>": "is not a type",
}  # fmt: skip


@pytest.mark.parametrize("hint", REFUSED)
def test_what_no_pattern_can_be_is_one_sentence(hint: str) -> None:
    with pytest.raises(UsageError) as error:
        as_properties({"hints": {"day": hint}})
    assert error.value.message.startswith("hints.day: ") and REFUSED[hint] in error.value.message
    assert "\n" not in error.value.message


def test_a_hint_with_a_pattern_is_kept_with_the_field() -> None:
    settings = from_properties(as_properties({"hints": {"a.b": 'timestamp("dd/MM/yyyy HH:mm")'}}))
    field = settings.fields.of("a").of("b")
    assert field.hint == TIMESTAMP_NTZ
    assert field.pattern == DatePattern.of("dd/MM/yyyy HH:mm", TIMESTAMP_NTZ)


PATTERNS = [
    "yyyyMMddHHmmssSSSSSS", "d.M.yyyy H:m:s.SSSSSS", "EEEE, MMMM d yyyy 'at' hh:mm:ss.SSSSSS a", "EEE dd MMM yyyy h:mm:ss.SSSSSS a", "SSSSSS ss mm HH dd MM uuuu",
]  # fmt: skip


@given(st.datetimes(), st.sampled_from(PATTERNS))
def test_what_a_pattern_prints_reads_back(moment: datetime, text: str) -> None:
    written = WrittenDate.of(text, is_date=False).text(moment)
    assert dates_of(pa.array([written]), DatePattern.of(text, TIMESTAMP_NTZ)).to_pylist() == [moment]
    assert WrittenDate.of(text, is_date=False).moment(written) == moment


@given(st.dates(max_value=date(9999, 12, 30)))
def test_a_pattern_takes_one_text_for_a_day(day: date) -> None:
    pattern = DatePattern.of("d.M.yyyy", DATE)
    texts = [f"{day.day}.{day.month}.{day.year:04}", f"{day.day:02}.{day.month:02}.{day.year:04}"]
    alike = texts[0] == texts[1]
    assert dates_of(pa.array(texts), pattern).to_pylist() == [day, day if alike else None]
    assert day + timedelta(1) not in dates_of(pa.array(texts), pattern).to_pylist()


def test_a_printed_hint_is_read_as_it_was_meant() -> None:
    for text in ("dd.MM.yyyy", "yyyy'y'-MM-dd", "dd.MM.yyyy 'o''clock'"):
        assert parse_hint(hint_text(DATE, text)).pattern == DatePattern.of(text, DATE)
