"""The entries of maps in Arrow, and the concatenation of columns of several groups of rows."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from driftline.convert.declared import entries_of
from driftline.convert.kernels import nulls_of
from driftline.core.schema.types import Map, Type

Columns = Sequence[tuple[Type, pa.Array]]  # of one field's values, for each of their types


class MapEntries(NamedTuple):
    """The entries of leaves that are maps: their number for each, their keys, a column for each type of their
    values, and the leaves.
    """

    lengths: NDArray[Any]
    keys: pa.Array
    values: Columns
    numbers: NDArray[np.int64]

    @classmethod
    def of(cls, columns: Columns, first: int) -> MapEntries:
        """The entries of columns of the same maps, each with its own type of values."""
        maps = columns[0][1]
        lengths = maps.value_lengths().drop_null().to_numpy(zero_copy_only=False)
        values = [(type_, lists.flatten().field(1)) for type_, lists in columns]
        return cls(lengths, maps.flatten().field(0), values, np.flatnonzero(~nulls_of(maps)) + first)


def entries_in(leaves: Columns, key: Type, first: int) -> list[MapEntries]:
    """The entries of the leaves that are maps with keys of this type, those of the same maps together.

    ``first``: the number of the first leaf.
    """
    by_maps: list[list[tuple[Type, pa.Array]]] = []
    for inner, array in leaves:
        if isinstance(inner, Map) and inner.key == key:
            column = inner.value, entries_of(array)
            lengths = column[1].value_lengths()
            alike = next((some for some in by_maps if some[0][1].value_lengths().equals(lengths)), None)
            if alike is None:
                by_maps.append([column])
            else:
                alike.append(column)
    return [MapEntries.of(columns, first) for columns in by_maps]


def together(groups: Sequence[MapEntries]) -> Columns:
    """The values of all entries: a column for each type of each group."""
    types = [type_ for entries in groups for type_, _ in entries.values]
    columns = [(len(entries.keys), [array for _, array in entries.values]) for entries in groups]
    return list(zip(types, one_after_another(columns), strict=True))


def one_after_another(groups: Sequence[tuple[int, Sequence[pa.Array]]]) -> list[pa.Array]:
    """Concatenate groups of rows: their columns become columns of all rows, null in the other groups."""
    starts = list(accumulate((count for count, _ in groups), initial=0))
    total = starts[-1]
    return [
        _among(array, before, total)
        for before, (_, arrays) in zip(starts, groups, strict=False)
        for array in arrays
    ]


def _among(array: pa.Array, before: int, total: int) -> pa.Array:
    """Embed the array among ``total`` values, with this many nulls before it."""
    if len(array) == total:
        return array
    after = total - before - len(array)
    return pa.concat_arrays([pa.nulls(before, array.type), array, pa.nulls(after, array.type)])
