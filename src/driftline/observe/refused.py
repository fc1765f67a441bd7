"""Finds the rows of typed columns with a value that a policy refuses, or with any value at a path."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from driftline.convert.declared import entries_of
from driftline.convert.kernels import convert
from driftline.core.planning.plan import Conflict, facet_of
from driftline.core.schema.types import List, Map, Path, Primitive, Struct, Type, peel

Flags: TypeAlias = NDArray[np.bool_]


def first_conflicts(
    batch: pa.RecordBatch, struct: Struct, conflicts: Sequence[Conflict]
) -> NDArray[np.int64]:
    """For each row the number of its first conflict; -1 if it has none."""
    numbers = np.full(batch.num_rows, -1, np.int64)
    rows = _Records(batch.columns, struct, batch.num_rows)
    for number in reversed(range(len(conflicts))):
        numbers[rows.at(conflicts[number].path, conflicts[number])] = number
    return numbers


def having(batch: pa.RecordBatch, struct: Struct, path: Path, conflict: Conflict | None = None) -> Flags:
    """Flag the rows with the conflict at a path of the data; without one, with any value there."""
    return _Records(batch.columns, struct, batch.num_rows).at(path, conflict)


class _Records:
    """Some records: an array for each field of their struct, in which a key may occur several times."""

    def __init__(self, arrays: Sequence[pa.Array], struct: Struct, count: int) -> None:
        self._arrays, self._struct, self._count = arrays, struct, count

    def at(self, path: Path, conflict: Conflict | None) -> Flags:
        """Flag the records with the ``conflict`` at the path; without one, with any value there."""
        key, *inside = path
        fields = [
            (f.type, array)
            for f, array in zip(self._struct.fields, self._arrays, strict=True)
            if f.name == key
        ]
        if not fields and key == "element" and inside:
            return self.at(tuple(inside), conflict)
        missing = conflict is not None and conflict.facet is None
        if not fields:
            return np.full(self._count, missing)
        flags = [_at(array, type_, tuple(inside), conflict) for type_, array in fields]
        # Of the types that a key has, each record has one.
        joined: Flags = (
            np.logical_and.reduce(flags) if missing and not inside else np.logical_or.reduce(flags)
        )
        return joined


def _at(values: pa.Array, type_: Type, path: Path, conflict: Conflict | None) -> Flags:
    """Flag values in lists. Steps of lists count only where the data has a list."""
    if not path or (set(path) == {"element"} and not isinstance(type_, Struct)):
        return _leaf(values, type_, conflict)
    match type_:
        case List(element):
            inside = path[1:] if path[0] == "element" else path
            return _any(values, _at(values.flatten(), element, inside, conflict))
        case Map(_, value) if path[0] == "value":
            entries = entries_of(values)
            return _any(entries, _at(entries.flatten().field(1), value, path[1:], conflict))
        case Struct():
            valid = _valid(values)
            at_records = np.zeros(len(values), np.bool_)
            records = values.filter(pa.array(valid))
            arrays = [records.field(i) for i in range(len(type_.fields))]
            at_records[valid] = _Records(arrays, type_, len(records)).at(path, conflict)
            return at_records
        case _:
            return np.zeros(len(values), np.bool_)


def _leaf(values: pa.Array, type_: Type, conflict: Conflict | None) -> Flags:
    if conflict is not None and conflict.facet is None:
        nulls: Flags = values.is_null(nan_is_null=conflict.nan).to_numpy(zero_copy_only=False)
        return nulls
    dim, leaf_type = peel(type_)
    if isinstance(leaf_type, Primitive) and leaf_type.name == "void":
        return np.zeros(len(values), np.bool_)
    if conflict is not None and facet_of(type_) != conflict.facet:
        return np.zeros(len(values), np.bool_)
    return _any_leaf(values, dim, leaf_type, conflict)


def _any_leaf(values: pa.Array, dim: int, leaf_type: Type, conflict: Conflict | None) -> Flags:
    if dim:
        return _any(values, _any_leaf(values.flatten(), dim - 1, leaf_type, conflict))
    valid = _valid(values)
    if conflict is None or conflict.inexact is None or not isinstance(leaf_type, Primitive):
        return valid
    assert isinstance(conflict.inexact.base, Primitive)
    return valid & ~_valid(convert(values, leaf_type, conflict.inexact.base, conflict.unit))


def _any(lists: pa.Array, flags: Flags) -> Flags:
    """Flag the lists that hold a flagged element."""
    lengths = lists.value_lengths().fill_null(0).to_numpy(zero_copy_only=False)
    any_inside = np.zeros(len(lists), np.bool_)
    any_inside[np.repeat(np.arange(len(lists)), lengths)[flags]] = True
    return any_inside


def _valid(values: pa.Array) -> Flags:
    valid: Flags = values.is_valid().to_numpy(zero_copy_only=False)
    return valid
