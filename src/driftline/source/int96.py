"""Parquet's old timestamps, INT96: nanoseconds in any year, for which Arrow has no type.

Arrow reads them in nanoseconds, which wrap around beyond the years 1678 to 2262 without a word, or in
microseconds, without what is finer. Read both ways, they tell which of the two is exact.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from driftline.convert.declared import entries_of
from driftline.errors import DataError

if TYPE_CHECKING:
    import pyarrow.parquet as pq

_TEXT = pa.string()
_NANOS, _MICROS = pa.timestamp("ns", "UTC"), pa.timestamp("us", "UTC")


class OldTimestamps:
    """Which columns of a file have old timestamps. ``schema``: the file's,
    where these are instants in nanoseconds, and the words of an ENUM are text.
    """

    def __init__(self, file: pq.ParquetFile) -> None:
        leaves = [file.schema.column(i) for i in range(len(file.schema))]
        columns = _by_column(
            _with_leaves(file.schema_arrow), [leaf.physical_type == "INT96" for leaf in leaves]
        )
        self._old = {number: flags for number, (_, flags) in enumerate(columns) if any(flags)}
        schema = pa.schema([f.with_type(_replaced(f.type, iter(flags), _NANOS)) for f, flags in columns])
        # Arrow has the words of an ENUM as bytes.
        words = _by_column(schema, [leaf.converted_type == "ENUM" for leaf in leaves])
        self.schema = pa.schema([f.with_type(_replaced(f.type, iter(flags), _TEXT)) for f, flags in words])

    @property
    def columns(self) -> Sequence[int]:
        """The numbers of the columns that have some."""
        return list(self._old)

    def exact(self, number: int, micros: pa.Array, nanos: pa.Array) -> pa.Array:
        """A column that was read both ways as that of the two which is exact.

        Raises DataError where neither is.
        """
        old = self._old[number]
        pairs = list(zip(_old_values(micros, iter(old)), _old_values(nanos, iter(old)), strict=True))
        if all((fine // 1000 == wide).all() for wide, fine in pairs):
            return nanos.cast(_replaced(nanos.type, iter(old), _NANOS))
        if any((fine != wide * 1000).any() for wide, fine in pairs):  # both wrap around
            raise DataError(
                f"{self.schema.names[number]}: INT96 has a day that no timestamp reaches, or timestamps finer than "
                "a microsecond beside some beyond the years 1678 to 2262: no reading of all is exact",
                "write the file with timestamps in microseconds",
            )
        return micros.cast(_replaced(micros.type, iter(old), _MICROS))


def _by_column(fields: Iterable[pa.Field], flags: Iterable[bool]) -> list[tuple[pa.Field, list[bool]]]:
    """The columns, each with the flags of its leaves."""
    of_leaves = iter(flags)
    return [(f, list(islice(of_leaves, _leaves(f.type)))) for f in fields]


def _with_leaves(fields: Iterable[pa.Field]) -> list[pa.Field]:
    """The fields without groups that nothing is in, which Arrow's reader leaves out."""
    return [
        f.with_type(pa.struct(_with_leaves(f.type))) if pa.types.is_struct(f.type) else f
        for f in fields
        if _leaves(f.type)
    ]


def _is_list(type_: pa.DataType) -> bool:
    return bool(
        pa.types.is_list(type_) or pa.types.is_large_list(type_) or pa.types.is_fixed_size_list(type_)
    )


def _leaves(type_: pa.DataType) -> int:
    if pa.types.is_struct(type_):
        return sum(_leaves(f.type) for f in type_)
    if pa.types.is_map(type_):
        return _leaves(type_.key_type) + _leaves(type_.item_type)
    return _leaves(type_.value_type) if _is_list(type_) else 1


def _replaced(type_: pa.DataType, old: Iterator[bool], instead: pa.DataType) -> pa.DataType:
    """The type with ``instead`` for each of its leaves, in order, that is an ``old`` timestamp."""

    def inner(field: pa.Field) -> pa.Field:
        return field.with_type(_replaced(field.type, old, instead))

    if pa.types.is_struct(type_):
        return pa.struct([inner(f) for f in type_])
    if pa.types.is_map(type_):
        return pa.map_(inner(type_.key_field), inner(type_.item_field))
    if pa.types.is_large_list(type_):
        return pa.large_list(inner(type_.value_field))
    if _is_list(type_):
        return pa.list_(inner(type_.value_field), getattr(type_, "list_size", -1))
    return instead if next(old) else type_


def _old_values(array: pa.Array, old: Iterator[bool]) -> list[NDArray[np.int64]]:
    """The numbers of each leaf that is an ``old`` timestamp."""
    type_ = array.type
    if pa.types.is_struct(type_):
        valid = array.filter(array.is_valid())
        return [leaf for i in range(type_.num_fields) for leaf in _old_values(valid.field(i), old)]
    if pa.types.is_map(type_):
        return _old_values(entries_of(array).flatten(), old)
    if _is_list(type_):
        return _old_values(array.flatten(), old)
    return [array.drop_null().cast(pa.int64()).to_numpy(zero_copy_only=False)] if next(old) else []
