"""Spools Python rows to files for the check, with values in the form of `typed_files`."""

from __future__ import annotations

import math
import pickle
from collections.abc import Iterator, Mapping
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from itertools import islice, starmap
from pathlib import Path
from typing import Any
from uuid import UUID

import numpy as np
import pyarrow as pa

from driftline.errors import DataError
from driftline.verify.files import Read, SourcePlace
from driftline.verify.moments import FarMoment
from driftline.verify.typed_files import by_field, clock_text, values_of
from driftline.verify.values import Single

PICKLED = "pickled"  # the format of these files
_ROWS = 20_000  # per file


def write(data: Any, folder: Path) -> dict[str, str]:
    """Write the records of a table, or dicts, into files of the folder; their paths, with a name for each.

    Raises DataError for a value of a type that is not known, with its row and field.
    """
    records = starmap(_of_row, enumerate(_records(data)))
    names: dict[str, str] = {}
    while batch := list(islice(records, _ROWS)):
        path = folder / f"{len(names):08}"
        path.write_bytes(pickle.dumps(batch))
        names[str(path)] = f"rows from {len(names) * _ROWS}"
    return names


def read(path: str) -> Iterator[Read]:
    """The records of one of these files."""
    records: list[dict[str, Any]] = pickle.loads(Path(path).read_bytes())  # noqa: S301  our own bytes
    for record in records:
        yield Read(SourcePlace(path), record)


def _records(data: Any) -> Iterator[Mapping[str, Any]]:
    if type(data).__module__.partition(".")[0] == "pandas":
        return _of_pandas(data)
    if hasattr(data, "iter_slices") and hasattr(data, "iter_columns"):
        return _of_polars(data)
    return _of_arrow(data) if hasattr(data, "__arrow_c_stream__") else map(_as_written, data)


def _as_written(value: Any) -> Any:
    """A record with its numbers as its line of JSON would have them, which any column of numbers may hold."""
    if type(value) is float and math.isfinite(value):
        return Decimal(repr(value))
    if isinstance(value, Mapping):
        return {key: _as_written(item) for key, item in value.items()}
    return [_as_written(item) for item in value] if type(value) in (list, tuple) else value


def _of_pandas(frame: Any) -> Iterator[dict[str, Any]]:
    names = [_name(name) for name in frame.columns]
    all_series = [frame.iloc[:, number] for number in range(frame.shape[1])]
    index = frame.index
    # As pandas writes Parquet: an index is a column unless it is a plain range without a name.
    if index.nlevels > 1 or index.name is not None or type(index).__name__ != "RangeIndex":
        for level, name in enumerate(index.names):
            taken = name is None or _name(name) in names
            names.append(f"__index_level_{level}__" if taken else _name(name))
            all_series.append(index.get_level_values(level).to_series())
    columns = []
    for series in all_series:
        values = [None if null else value for value, null in zip(series, series.isna(), strict=True)]
        single = str(series.dtype).lower() == "float32"
        columns.append([v if v is None else Single(v) for v in values] if single else values)
    for row in zip(*columns, strict=True):
        yield dict(zip(names, row, strict=True))


def _name(name: Any) -> str:
    """The name of a column as pandas writes it into a file."""
    if isinstance(name, tuple):
        return str(tuple(_name(part) for part in name))
    return name.decode(errors="backslashreplace") if isinstance(name, bytes) else str(name)


def _of_polars(frame: Any) -> Iterator[dict[str, Any]]:
    """Its rows. Arrow has no integers of 128 bits, and of Python's objects nothing but their addresses."""
    for part in frame.iter_slices(_ROWS):
        columns = [
            series.to_list()
            if str(series.dtype) in ("Object", "Int128", "UInt128")
            else [value for chunk in pa.chunked_array(series).chunks for value in values_of(chunk)]
            for series in part.iter_columns()
        ]
        for row in zip(*columns, strict=True):
            yield dict(zip(part.columns, row, strict=True))


def _of_arrow(data: Any) -> Iterator[dict[str, Any]]:
    for batch in pa.RecordBatchReader.from_stream(data):
        columns = [by_field(f, values_of(c)) for f, c in zip(batch.schema, batch.columns, strict=True)]
        for row in zip(*columns, strict=True):
            yield dict(zip(batch.schema.names, row, strict=True))


class _UnknownType(Exception):
    """A value of an unknown type. Arguments: the type's name, then the steps to the value, the last first."""


def _of_row(number: int, record: Mapping[str, Any]) -> dict[str, Any]:
    try:
        return _record(record)
    except _UnknownType as error:
        type_, *steps = error.args
        path = ".".join(str(step) for step in reversed(steps))
        raise DataError(
            f"{path}: row {number} has a value of the type {type_}, which verify cannot compare",
            "leave the field out, or verify what it was written from",
        ) from None


def _record(record: Mapping[str, Any]) -> dict[str, Any]:
    out = {}
    for key, value in record.items():
        try:
            # A null stays: an envelope that lacks a member is another message than one that has it as null.
            out[key] = _plain(value)
        except _UnknownType as error:
            raise _UnknownType(*error.args, key) from None
    return out


def _is_null(value: Any) -> bool:
    return value is None or type(value).__name__ in ("NaTType", "NAType")


def _plain(value: Any) -> Any:
    if _is_null(value):
        return None
    if getattr(value, "dtype", None) is not None and value.dtype.kind in "mM":
        return _of_times(value)
    if isinstance(value, np.void) and value.dtype.names:
        return _record({name: value[name] for name in value.dtype.names})
    if type(value).__module__ == "numpy":
        value = Single(value) if value.dtype == "float32" and not value.ndim else value.tolist()
    match value:
        case Mapping():
            return _record(value)
        case list() | tuple() if type(value) in (list, tuple):
            return [_plain(item) for item in value]
        case datetime():
            return _moment(value)
        case time():
            text = value.replace(microsecond=0).isoformat()
            return f"{text}.{value.microsecond:06d}".rstrip("0") if value.microsecond else text
        case timedelta():
            micros = (value.days * 86_400 + value.seconds) * 10**6 + value.microseconds
            return clock_text(micros * 1000 + getattr(value, "nanoseconds", 0))
        case UUID():
            return str(value)
        case bytearray() | memoryview():
            return bytes(value)
        case list() | str() | bytes() | int() | float() | Decimal() | date() | FarMoment():
            return value
    return _of_pandas_scalar(value)


def _of_pandas_scalar(value: Any) -> Any:
    """A period as it prints, an interval by its ends."""
    name = type(value).__name__
    if type(value).__module__.partition(".")[0] == "pandas":
        if name == "Period":
            return str(value)
        if name == "Interval":
            return _record({"left": value.left, "right": value.right, "closed": value.closed})
    raise _UnknownType(name)


def _of_times(value: Any) -> Any:
    """Moments and durations of numpy's."""
    if value.ndim:
        return [_of_times(item) for item in value]
    if np.isnat(value):
        return None
    if isinstance(plain := value.item(), date):
        return _plain(plain)
    nanos = int(value.astype(f"{value.dtype.kind}8[ns]").astype(np.int64))
    if value.dtype.kind == "m":
        return clock_text(nanos)
    return str(value.astype("M8[ns]")) if nanos % 1000 else _plain(value.astype("M8[us]").item())


def _moment(value: datetime) -> Any:
    """An instant in UTC; one of pandas' that is finer than a microsecond as text of nine digits."""
    zoned = value.tzinfo is not None
    value = value.astimezone(UTC) if zoned else value
    # A datetime of Python's own class: a Timestamp of pandas is one too, with nanoseconds.
    plain = datetime(
        value.year, value.month, value.day, value.hour, value.minute, value.second, value.microsecond
    )
    finer = getattr(value, "nanosecond", 0)
    if not finer:
        return plain.replace(tzinfo=UTC) if zoned else plain
    text = f"{plain.replace(microsecond=0).isoformat()}.{plain.microsecond * 1000 + finer:09d}"
    return text + "Z" * zoned
