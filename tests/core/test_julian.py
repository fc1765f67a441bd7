"""Days that Spark counted by the Julian calendar: both the readers and `verify` have them as they were meant."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, date, datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import fastavro
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from driftline.errors import UsageError
from driftline.readers.avro.files import avro_readers
from driftline.readers.columnar.orc import Zone, calendar_of, rebased_dates, rebased_moments
from driftline.readers.columnar.parquet import parquet_readers
from driftline.runtime.spark_version import julian_shifts
from driftline.verify.moments import old_date_at
from driftline.verify.typed_files import read_columns

SPARK = "org.apache.spark."
LEGACY = {f"{SPARK}version": "4.1.3", f"{SPARK}legacyDateTime": "", f"{SPARK}legacyINT96": ""}
FIRST = -719_164  # 0001-01-01 of the Julian calendar, in days since 1970
DAYS = pa.array([FIRST, -141_428, -141_427, None], pa.date32())
MEANT = [date(1, 1, 1), date(1582, 10, 4), date(1582, 10, 15), None]
SECONDS = [FIRST * 86_400, -141_428 * 86_400 + 5, None]
MOMENTS = pa.array([s and s * 10**6 for s in SECONDS], pa.timestamp("us", "UTC"))
MEANT_UTC = [datetime(1, 1, 1, tzinfo=UTC), datetime(1582, 10, 4, 0, 0, 5, tzinfo=UTC), None]


@pytest.mark.parametrize(
    ("days", "meant"), [(FIRST, date(1, 1, 1)), (FIRST - 1, "0000-12-31"), (FIRST - 307, "0000-02-29")]
)
def test_days_before_the_year_1_keep_their_names(days: int, meant: date | str) -> None:
    assert str(old_date_at(days)) == str(meant)


def parquet(path: Path, table: pa.Table, footer: Mapping[str, str], **options: Any) -> str:
    pq.write_table(table.replace_schema_metadata(dict(footer)), path, **options)
    return str(path)


def read(path: str, fmt: str = "parquet") -> tuple[list[Any], list[Any]]:
    """The values of the first column, as the reader has them and as `verify` has."""
    (reader,) = (parquet_readers if fmt == "parquet" else avro_readers)([path])
    batches = [rows.batch for part in range(len(reader.sizes)) for rows in reader.rows(part)]
    name = reader.struct.fields[0].name
    return (
        [value for batch in batches for value in batch.column(0).to_pylist()],
        [(record.record or {}).get(name) for record in read_columns(path, fmt)],
    )


@pytest.mark.parametrize(
    ("footer", "old"),
    [
        (LEGACY, True),
        ({f"{SPARK}version": "2.4.8"}, True),
        ({f"{SPARK}sql.parquet.row.metadata": "{}"}, True),  # before 2.4.1
        ({f"{SPARK}version": "3.0.1"}, False),
        ({f"{SPARK}version": "4.1.3", f"{SPARK}sql.parquet.row.metadata": "{}"}, False),
        ({}, False),
    ],
)
def test_the_footer_says_by_which_calendar(tmp_path: Path, footer: dict[str, str], old: bool) -> None:
    file = parquet(tmp_path / "a.parquet", pa.table({"d": DAYS.slice(1)}), footer)
    plain = [date(1582, 10, 14), *MEANT[2:]]
    assert read(file) == ((MEANT[1:] if old else plain,) * 2)


def test_dates_and_moments_at_any_depth(tmp_path: Path) -> None:
    days = pa.StructArray.from_arrays([pa.ListArray.from_arrays([0, 2, 2, 4], DAYS)], ["l"])
    file = parquet(tmp_path / "a.parquet", pa.table({"s": days}), LEGACY)
    assert read(file)[0] == read(file)[1] == [{"l": MEANT[:2]}, {"l": []}, {"l": MEANT[2:]}]
    file = parquet(tmp_path / "b.parquet", pa.table({"t": MOMENTS}), LEGACY)
    assert read(file) == (MEANT_UTC, MEANT_UTC)


def test_timestamps_without_a_zone_were_never_counted_so(tmp_path: Path) -> None:
    local = pa.array([datetime(1500, 2, 28)], pa.timestamp("us"))
    assert read(parquet(tmp_path / "a.parquet", pa.table({"t": local}), LEGACY))[0] == local.to_pylist()


@pytest.mark.parametrize("version", ["3.0.1", "3.1.0"])
def test_old_timestamps_have_a_mark_of_their_own(tmp_path: Path, version: str) -> None:
    """Versions before 3.1 wrote them so without one."""
    naive = pa.table({"t": MOMENTS.slice(1).cast(pa.timestamp("us"))})
    footer = {f"{SPARK}version": version}
    file = parquet(tmp_path / "a.parquet", naive, footer, use_deprecated_int96_timestamps=True)
    values, compared = read(file)
    assert values == compared
    assert (values == MEANT_UTC[1:]) == (version == "3.0.1")


def test_moments_keep_what_a_clock_in_their_zone_showed(tmp_path: Path) -> None:
    """Java's old classes know no local mean time, and today's do: before 1883, 7:52:58 in Los Angeles."""
    eight = timezone(-timedelta(hours=8))
    shown = [datetime(1850, 1, 1, tzinfo=eight), datetime(1950, 1, 1, tzinfo=eight)]
    moments = pa.table({"t": pa.array(shown, pa.timestamp("ms", "UTC"))})
    footer = {**LEGACY, f"{SPARK}timeZone": "America/Los_Angeles"}
    values, compared = read(parquet(tmp_path / "a.parquet", moments, footer))
    assert values == compared == [datetime(1850, 1, 1, 7, 52, 58, tzinfo=UTC), shown[1]]


def test_every_zone_is_as_spark_has_it() -> None:
    for name, (begins, shifts) in julian_shifts().items():
        seconds = [begin + part for begin in begins[1:] for part in (-1, 0)]
        moments = pa.array(seconds, pa.timestamp("s", "UTC"))
        expected = [s + shifts[n // 2 + n % 2] for n, s in enumerate(seconds)]
        assert rebased_moments(moments, Zone.named(name)).cast(pa.int64()).to_pylist() == expected, name


@pytest.mark.slow
def test_every_day_is_the_same_by_both() -> None:
    days = range(FIRST, -141_000)
    assert rebased_dates(pa.array(days, pa.int32()).cast(pa.date32())).to_pylist() == [
        old_date_at(n) for n in days
    ]


def test_a_zone_that_is_not_known_is_an_error() -> None:
    footer = {key.encode(): value.encode() for key, value in {**LEGACY, f"{SPARK}timeZone": "Mars"}.items()}
    with pytest.raises(UsageError, match="unknown time zone Mars"):
        calendar_of(footer)
    assert calendar_of({**footer, b"org.apache.spark.timeZone": b"+05:30"}).zone == Zone(19_800)  # type: ignore[union-attr]


def test_avro(tmp_path: Path) -> None:
    millis = {"type": "long", "logicalType": "timestamp-millis"}
    fields = [
        {"name": "d", "type": ["null", {"type": "int", "logicalType": "date"}]},
        {"name": "t", "type": {"type": "array", "items": millis}},
        {"name": "n", "type": {"type": "long", "logicalType": "local-timestamp-micros"}},
    ]
    days = DAYS.cast(pa.int32()).to_pylist()
    records = [{"d": n, "t": [FIRST * 86_400_000 + 1], "n": -(10**15)} for n in days]
    path = tmp_path / "a.avro"
    with path.open("wb") as file:
        fastavro.writer(file, {"type": "record", "name": "Top", "fields": fields}, records, metadata=LEGACY)
    assert read(str(path), "avro") == (MEANT, MEANT)
    (reader,) = avro_readers([str(path)])
    (rows,) = reader.rows(0)
    first, local = datetime(1, 1, 1, 0, 0, 0, 1_000, UTC), datetime(1938, 4, 24, 22, 13, 20)
    assert [str(f.type) for f in reader.struct.fields] == [
        "date",
        "list<timestamp>",
        "list<string>",
        "timestamp_ntz",
    ]
    assert [column[0].as_py() for column in rows.batch.columns] == [MEANT[0], [first], [None], local]
    assert next(read_columns(str(path), "avro")).record == {"d": MEANT[0], "t": [first], "n": local}
