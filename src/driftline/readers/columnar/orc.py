"""ORC files: checks for timestamps that Spark would change, and dates of the Julian calendar.

Spark's reader cuts timestamps finer than a microsecond without a word, and does not know those with a local
time zone. Arrow's reader keeps them, but refuses years before 1678 and after 2262, which files do have
(9999-12-31). So Spark reads ORC, and Arrow checks that nothing would be lost.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pyarrow import orc

from driftline.convert.declared import LeafReading, Read, entries_of, leaf_readings
from driftline.convert.kernels import nulls_of
from driftline.core.schema.types import Path
from driftline.errors import DataError, UsageError
from driftline.readers.task import assign_parts
from driftline.runtime.spark_version import julian_shifts
from driftline.write import is_small

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


# Arrow's reader also shifts old dates of Java's hybrid calendar by two days without a word. A second reader
# that differs in values would be worse than one that refuses a file.
def check_timestamps(spark: SparkSession, files: Sequence[str]) -> None:
    """Raise DataError for the first column with a timestamp that Spark would cut, or does not read."""
    sizes, context = [_size(file) for file in files], spark.sparkContext
    if is_small(context, sum(sizes)):
        faults = dict(enumerate(map(timestamp_fault, files)))
    else:
        shares = [[(n, files[n]) for n in share] for share in assign_parts(sizes, context.defaultParallelism)]
        faults = dict(context.parallelize(shares, len(shares)).flatMap(_of_share).collect())
    for number, file in enumerate(files):
        if (fault := faults[number]) is None:
            continue
        column, is_zoned = fault
        if is_zoned:
            raise DataError(
                f"{file}: {column}: timestamps with a local time zone, which Spark does not read from ORC",
                hint="write the file as Parquet",
            )
        raise DataError(
            f"{file}: {column}: timestamps finer than a microsecond, which would be cut",
            hint="write them in microseconds, or the file as Parquet",
        )


def timestamp_fault(path: str) -> tuple[str, bool] | None:
    """The first column of a file with timestamps at fault.

    With it comes True if the fault is their local time zone, which Arrow reads in UTC. Raises UsageError for
    a file whose rows are no records, of which Spark says nothing.
    """
    try:
        file = orc.ORCFile(path)
        schema = file.schema
    except (pa.ArrowException, OSError) as error:
        if "top-level struct" in str(error):
            raise UsageError(f"{path}: its rows are not records", "an ORC file must hold records") from error
        return None  # Spark says what is wrong with the file
    names: list[str] = []
    for f in schema:
        types = list(_timestamp_types(f.type))
        if any(type_.tz is not None for type_ in types):
            return f.name, True
        if types:
            names.append(f.name)
    column = _finer_column(file, names)
    return None if column is None else (column, False)


def _finer_column(file: orc.ORCFile, names: Sequence[str]) -> str | None:
    """The first of these columns with a timestamp finer than a microsecond, as far as Arrow can read them."""
    for stripe in range(file.nstripes if names else 0):
        for name in names:
            try:
                # Arrow takes a dot in a name for a path.
                batch = file.read_stripe(stripe, columns=None if "." in name else [name])
            except (pa.ArrowException, OSError):
                # A fine value next to a far year, in one stripe, goes unnoticed.
                continue  # a year that nanoseconds do not reach
            if any(map(_is_finer, _timestamps(batch.column(batch.schema.get_field_index(name))))):
                return name
    return None


def _of_share(share: Sequence[tuple[int, str]]) -> list[tuple[int, tuple[str, bool] | None]]:
    return [(number, timestamp_fault(path)) for number, path in share]


def _size(path: str) -> int:
    with pa.OSFile(path) as file:
        return int(file.size())


def _timestamp_types(type_: pa.DataType) -> Iterator[pa.TimestampType]:
    """The types of timestamps at any depth."""
    if pa.types.is_timestamp(type_):
        yield type_
    for number in range(type_.num_fields):
        yield from _timestamp_types(type_.field(number).type)


def _timestamps(array: pa.Array) -> Iterator[pa.Array]:
    """The timestamps at any depth."""
    type_ = array.type
    if pa.types.is_timestamp(type_):
        yield array
    elif pa.types.is_map(type_):
        yield from _timestamps(entries_of(array).flatten())
    elif pa.types.is_list(type_) or pa.types.is_large_list(type_):
        yield from _timestamps(array.flatten())
    elif pa.types.is_struct(type_):
        valid = array.filter(array.is_valid())
        for number in range(type_.num_fields):
            yield from _timestamps(valid.field(number))


def _is_finer(array: pa.Array) -> bool:
    numbers = array.drop_null().cast(pa.timestamp("ns", array.type.tz)).cast(pa.int64())
    return bool(np.any(numbers.to_numpy(zero_copy_only=False) % 1000))


_SPARK = b"org.apache.spark."
_CUTOVER = -141_427  # 1582-10-15, in days since 1970
# Days from -4800-03-01 of the Julian calendar to 1970-01-01
_JULIAN_ZERO = 2_440_588 + 32_082
_DAY = 86_400  # seconds
_PER_SECOND = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}
_OFFSET = re.compile(r"(?:GMT|UTC|UT)?([+-])(\d\d?)(?::?(\d\d))?")

Integers = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Zone:
    """A time zone as Java's old classes had it.

    Attributes:
        offset: its offset in seconds before 1900.
        switches: the moments at which the shift changes.
        shifts: seconds that were added where today's classes know local mean time; ``shifts[n]`` counts
            before ``switches[n]``.
    """

    offset: int = 0
    switches: tuple[int, ...] = ()
    shifts: tuple[int, ...] = (0,)

    @classmethod
    def named(cls, name: str) -> Zone:
        """The zone of a name. Raises UsageError for one that Spark does not know."""
        if match := _OFFSET.fullmatch(name):
            sign, hours, minutes = match.groups()
            return cls(int(f"{sign}1") * (int(hours) * 3600 + int(minutes or 0) * 60))
        table = julian_shifts()
        if name not in table:
            raise UsageError(f"unknown time zone {name}", hint="write it again in UTC")
        switches, shifts = table[name]
        offset = table["UTC"][0][0] - switches[0]
        begin = switches.index(_CUTOVER * _DAY - offset)
        return cls(offset, switches[begin + 1 :], shifts[begin:])


def rebased_dates(dates: pa.Array) -> pa.Array:
    """Dates of the old calendar by today's."""
    days = dates.cast(pa.int32()).fill_null(0).to_numpy(zero_copy_only=False)
    if not (days < _CUTOVER).any():
        return dates
    gregorian = _gregorian(days.astype(np.int64)).astype(np.int32)
    return pa.array(gregorian, mask=nulls_of(dates)).cast(dates.type)


def rebased_moments(moments: pa.Array, zone: Zone) -> pa.Array:
    """Timestamps of the old calendar by today's, which show the same date and time in the ``zone``."""
    second = _PER_SECOND[moments.type.unit]
    units = moments.cast(pa.int64()).fill_null(0).to_numpy(zero_copy_only=False)
    last = max(zone.switches, default=_CUTOVER * _DAY - zone.offset)
    if not (units < last * second).any():
        return moments
    # By the clock of the writer's zone: the calendars differ in days, which begin at its midnight.
    days, of_day = np.divmod(units + zone.offset * second, _DAY * second)
    shifts = np.array(zone.shifts, np.int64)[np.searchsorted(zone.switches, units // second, "right")]
    units = _gregorian(days) * _DAY * second + of_day + (shifts - zone.offset) * second
    return pa.array(units, mask=nulls_of(moments)).cast(moments.type)


def _gregorian(days: Integers) -> Integers:
    """The days of the same year, month and day; 29 February is 1 March where there is none."""
    cycles = 4 * (days + _JULIAN_ZERO) + 3  # of years that begin in March
    years, of_year = cycles // 1461, cycles % 1461 // 4
    months = (5 * of_year + 2) // 153
    of_month = of_year - (153 * months + 2) // 5
    since_1970: Any = (years - 4800 - 1970) * 12 + months + 2
    first = since_1970.astype("datetime64[M]").astype("datetime64[D]").astype(np.int64)
    return np.where(days < _CUTOVER, first + of_month, days)


@dataclass(frozen=True, slots=True)
class JulianCalendar:
    """The use of the old calendar in a file.

    Attributes:
        dates: dates and timestamps are by it.
        int96: Parquet's old timestamps are.
        zone: that of the writer.
    """

    dates: bool
    int96: bool
    zone: Zone

    def leaves(self, type_: pa.DataType, path: Path) -> Iterator[LeafReading]:
        """The readings of a type, as those of `leaf_readings`, by today's calendar."""
        rebase = self._rebase(type_)
        for of_type, read, overflow in leaf_readings(type_, path):
            yield LeafReading(of_type, partial(_after, rebase, read) if rebase else read, overflow)

    def _rebase(self, type_: pa.DataType) -> Read | None:
        if self.dates and pa.types.is_date32(type_):
            return rebased_dates
        if pa.types.is_timestamp(type_) and type_.tz is not None:
            # Spark writes nanoseconds in no other way.
            by_old = self.int96 if type_.unit == "ns" else self.dates
            return partial(rebased_moments, zone=self.zone) if by_old else None
        return None


def calendar_of(footer: Mapping[bytes, bytes] | None) -> JulianCalendar | None:
    """The old calendar, if a file's metadata name it as the writer's.

    Raises UsageError for an unknown time zone.
    """
    footer = footer or {}
    version = footer.get(_SPARK + b"version")
    if version is None and _SPARK + b"sql.parquet.row.metadata" not in footer:
        return None
    # Versions before 2.4.1 did not name themselves.
    numbers = tuple(int(n) for n in re.findall(rb"\d+", version or b"2")[:2])
    dates = numbers < (3, 0) or _SPARK + b"legacyDateTime" in footer
    int96 = numbers < (3, 1) or _SPARK + b"legacyINT96" in footer
    if not (dates or int96):
        return None
    zone = footer.get(_SPARK + b"timeZone", b"UTC").decode()
    return JulianCalendar(dates, int96, Zone.named(zone))


def _after(first: Read, then: Read, values: pa.Array) -> pa.Array:
    return then(first(values))
