"""Keys by which rows are divided and sorted: columns, and transforms of their values."""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from driftline.core.schema.definition import IDENTITY, TIMES, VOID, Transform
from driftline.core.schema.types import Path, Primitive
from driftline.write.murmur import hashes, unscaled

if TYPE_CHECKING:
    from numpy.typing import NDArray

# How numpy names what a transform counts.
_UNITS = {"year": "Y", "month": "M", "day": "D", "hour": "h"}
_CALENDAR = {"year": pc.year, "month": pc.month, "day": pc.day, "hour": pc.hour}


@dataclass(frozen=True, slots=True)
class Key:
    """A column at ``path``, and what becomes of its values.

    ``calendar``: parts of a date are those of the calendar, as DuckLake has them; else they are counted from
    1970. ``descending`` and ``nulls_first`` are of a sort key.
    """

    path: Path
    type: Primitive
    transform: Transform = IDENTITY
    calendar: bool = False
    descending: bool = False
    nulls_first: bool = True

    @property
    def parts(self) -> bool:
        """True if rows can be partitioned by it: all formats mean the same by it, for every value."""
        return self.transform == VOID or self.type.name in _TAKES.get(self.transform.name, ())

    @property
    def sorts(self) -> bool:
        """True if rows can be sorted by it."""
        return self.parts or (self.transform == IDENTITY and self.type.name in _FLOATS)

    def values(self, rows: pa.RecordBatch | pa.Table) -> pa.Array:
        """The key of each row: dates as days, instants as microseconds since 1970."""
        if self.transform == VOID:
            return pa.nulls(len(rows), pa.int32())
        column = rows.column(self.path[0])
        for name in self.path[1:]:
            column = pc.struct_field(column, name)  # null where the struct is
        column = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
        name, n = self.transform.name, self.transform.n or 1
        if name == "bucket":
            return _numbers(hashes(column, self.type) % n, column)
        if name == "truncate":
            return _truncated(column, n)
        if name in TIMES:
            return (
                _CALENDAR[name](column).cast(pa.int32()) if self.calendar else _counted(column, _UNITS[name])
            )
        if self.type.name in _FLOATS:
            return _ordered(column)
        plain = {"date": pa.int32(), "timestamp": pa.int64(), "timestamp_ntz": pa.int64()}
        return column.cast(plain.get(self.type.name, column.type))


_FLOATS = ("float", "double")  # formats differ about zeros and NaNs as keys
_MOMENTS = ("timestamp", "timestamp_ntz")
_CUT = ("int", "long", "decimal", "string", "binary")
_PLAIN = (*_CUT, "date", *_MOMENTS)
_TAKES = {
    "identity": (*_PLAIN, "boolean"),
    "bucket": _PLAIN,
    "truncate": _CUT,
    **dict.fromkeys(("year", "month", "day"), ("date", *_MOMENTS)),
    "hour": _MOMENTS,
}


def _numbers(values: NDArray[np.int64], column: pa.Array) -> pa.Array:
    """Integers of a column, null where it is null."""
    return pa.array(values, pa.int64(), mask=column.is_null().to_numpy(zero_copy_only=False))


def _counted(column: pa.Array, unit: str) -> pa.Array:
    """Whole years, months, days or hours since 1970."""
    if pa.types.is_date(column.type):
        moments = column.cast(pa.int32()).fill_null(0).to_numpy().astype("datetime64[D]")
    else:
        moments = column.cast(pa.int64()).fill_null(0).to_numpy().view("datetime64[us]")
    return _numbers(moments.astype(f"datetime64[{unit}]").astype(np.int64), column)


def _ordered(column: pa.Array) -> pa.Array:
    """Integers in the order of floats, of which NaN is the last."""
    values = column.cast(pa.float64()).fill_null(0).to_numpy()
    bits = np.where(np.isnan(values), np.float64(np.nan), values).view(np.int64)
    return _numbers(np.where(bits < 0, bits ^ np.int64(2**63 - 1), bits), column)


def _truncated(column: pa.Array, width: int) -> pa.Array:
    if pa.types.is_string(column.type):
        return pc.utf8_slice_codeunits(column, 0, width)
    if pa.types.is_binary(column.type):
        return pc.binary_slice(column, 0, width)
    if pa.types.is_decimal(column.type):
        integers = (None if value is None else unscaled(value) for value in column.to_pylist())
        cut = [None if value is None else Decimal(value - value % width) for value in integers]
        return pa.array(cut, pa.decimal128(38, 0)).view(pa.decimal128(38, column.type.scale))
    values = column.fill_null(0).to_numpy()
    return _numbers((values - np.mod(values, values.dtype.type(width))).astype(np.int64), column)
