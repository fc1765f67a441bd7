"""The values of one field that Arrow holds with several depths of lists."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import reduce
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from driftline.convert.lists import assemble, joined, merged, place
from driftline.convert.rest import json_text
from driftline.convert.values import (
    Dims,
    Maps,
    Numbers,
    NumberText,
    dimension,
    first_of,
    in_places,
    variants_of,
)
from driftline.core.planning.contract import Contract
from driftline.core.planning.routes import ColumnRoute, FieldRoute
from driftline.core.schema.types import Primitive, Type
from driftline.core.values.parse import has_value

if TYPE_CHECKING:
    from driftline.convert.arrays import ArrowRecords, ArrowValues


class MixedValues:
    """The values of one field in ``parts`` with lists of their own; leaves are numbered throughout.

    Most values are in one part. A list of mixed depth is in several, each with the elements of its own depth.
    """

    def __init__(self, parts: Sequence[ArrowValues]) -> None:
        self._parts = parts
        self._starts = np.cumsum([0, *(part.count for part in parts)])
        valued = [~part.missing().to_numpy(zero_copy_only=False) for part in parts]
        self._shared: NDArray[np.bool_] = np.sum(valued, axis=0) > 1

    def primitives(self, target: Primitive, column_route: ColumnRoute) -> pa.Array:
        """The leaves of all parts in one column."""
        return pa.concat_arrays([part.primitives(target, column_route) for part in self._parts])

    def records(self, column_route: ColumnRoute) -> tuple[ArrowRecords, Numbers]:
        """The records of all parts, with the numbers of their leaves among all."""
        parts = [part.records(column_route) for part in self._parts]
        records = [part_records for part_records, _ in parts]
        numbers = [
            np.asarray(leaf_numbers, np.int64) + start
            for (_, leaf_numbers), start in zip(parts, self._starts, strict=False)
        ]
        return records[0].followed_by(records[1:]), np.concatenate(numbers)

    def variants(self) -> tuple[pa.Array, NDArray[np.bool_]]:
        """Merge the parts' values: each as a whole if any value is in several parts."""
        if self._shared.any():
            columns = [column for part in self._parts for column in part.lists()]
            array = variants_of(reduce(merged, same) for same in zip(*columns, strict=True))
            owners = [value for value, _ in self.places()]
            return array, array.is_valid().to_numpy(zero_copy_only=False)[owners]
        parts = [part.variants() for part in self._parts]
        return reduce(first_of, [array for array, _ in parts]), np.concatenate([valid for _, valid in parts])

    def maps(self, route: FieldRoute, key: Type, dims: Dims) -> Maps | None:
        """The maps of all parts; None if there are none."""
        parts = zip(self._parts, self._starts, strict=False)
        entries = [entries for part, start in parts for entries in part.entries(key, dims, start)]
        return self._parts[0].maps_of(entries, route)

    def scattered(self, leaves: pa.Array, numbers: Numbers) -> pa.Array:
        """Put the leaves at their places among those of all parts."""
        return in_places(int(self._starts[-1]), leaves, numbers)

    def placed(self, leaves: pa.Array, type_: pa.DataType) -> pa.Array:
        """Place the leaves part by part, and together if any value is in several parts."""
        if self._shared.any():
            return self._placed_together(leaves, type_, dimension(type_))
        placed = [
            part.placed(leaves.slice(start, part.count), type_)
            for part, start in zip(self._parts, self._starts, strict=False)
        ]
        return reduce(first_of, placed)

    def _placed_together(self, leaves: pa.Array, type_: pa.DataType, dim: int) -> pa.Array:
        """Place values joined from all parts that are not deeper than the column."""
        parts = [
            (part.dim, part.shredded(first)) for part, first in zip(self._parts, self._starts, strict=False)
        ]
        fitting = [shredded for part_dim, shredded in parts if part_dim <= dim]
        if not fitting:
            return pa.nulls(len(self._shared), type_)
        shredded, all_shredded = joined(fitting), joined([shredded for _, shredded in parts])
        # Beside deeper elements, which the column does not take, one is wrapped where it stands.
        shredded.dims = [
            dim if value_dim is not None and deepest is not None and deepest > dim else value_dim
            for value_dim, deepest in zip(shredded.dims, all_shredded.dims, strict=True)
        ]
        return assemble(place(shredded, leaves.is_valid().to_pylist(), dim), leaves, type_)

    def missing(self) -> pa.Array:
        """Flag the values that are missing in every part."""
        return reduce(pc.and_, (part.missing() for part in self._parts))

    def places(self) -> Sequence[tuple[int, tuple[int, ...]]]:
        """The owner and list positions of each leaf, part after part."""
        return [place for part in self._parts for place in part.places()]

    def texts(self, stored: NDArray[np.bool_] | None, contract: Contract) -> Iterator[NumberText]:
        """The texts of each part; a value that is in several parts is written from all of them."""
        waiting = set()
        for part, start in zip(self._parts, self._starts, strict=False):
            for text in part.texts(None if stored is None else stored[start : start + part.count], contract):
                if self._shared[text.number]:
                    waiting.add(text.number)
                else:
                    yield text
        if waiting:
            columns = [column for part in self._parts for column in part.json_values()]
            yield from (text for text in texts_of_several(columns, contract) if text.number in waiting)

    def are_all_in(self, leaves: pa.Array) -> bool:
        """True if no leaf is null."""
        return not leaves.null_count

    def lost(self, stored: NDArray[np.bool_]) -> object | None:
        """The lost leaf of the first part that has one; None if no part has."""
        for part, start in zip(self._parts, self._starts, strict=False):
            if (lost := part.lost(stored[start : start + part.count])) is not None:
                return lost
        return None


def texts_of_several(columns: Sequence[list[Any]], contract: Contract) -> Iterator[NumberText]:
    """Texts of lists and maps whose values have several types, and so no single one."""
    for number, value in enumerate(reduce(merged, same) for same in zip(*columns, strict=True)):
        if has_value(value):
            yield NumberText(number, (), json_text(value, contract))
