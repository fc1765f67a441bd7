"""Checks ORC files for timestamps finer than a microsecond, which Spark's reader cuts without a word, and
for those with a local time zone, which it does not know.

Arrow's reader keeps them, but refuses years before 1678 and after 2262, which files do have (9999-12-31). So
Spark reads ORC, and Arrow checks that nothing would be lost.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
from pyarrow import orc

from driftline.convert.declared import entries_of
from driftline.errors import DataError, UsageError
from driftline.readers.shares import dealt
from driftline.write import is_small

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def check_timestamps(spark: SparkSession, files: Sequence[str]) -> None:
    """Raise DataError for the first column with a timestamp that Spark would cut, or does not read."""
    sizes, context = [_size(file) for file in files], spark.sparkContext
    if is_small(context, sum(sizes)):
        faults = dict(enumerate(map(timestamp_fault, files)))
    else:
        shares = [[(n, files[n]) for n in share] for share in dealt(sizes, context.defaultParallelism)]
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
    """The first column of a file with timestamps at fault, and whether that is their local time
    zone, which Arrow reads in UTC.

    Raises UsageError for a file whose rows are no records, of which Spark says nothing.
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
                batch = file.read_stripe(stripe, columns=None if "." in name else [name])
            except (pa.ArrowException, OSError):
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
