"""Rows that have, together, all that a plan has to know of many rows.

A shape is a union: a row whose types, and marks of them, other rows have adds nothing to it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import reduce
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from driftline.convert.records import RowRecords
from driftline.convert.typed_rows import Flags, TypedRows, flags_of, owners_in, owning
from driftline.core.schema.types import (
    STRING,
    TIMESTAMP,
    TIMESTAMP_NTZ,
    List,
    Path,
    Primitive,
    Struct,
    Type,
    peel,
)
from driftline.core.values import DATELIKE, far, fraction, string_base

_SECOND, _MILLISECOND = 1_000_000, 1_000  # microseconds


_ORDERED = frozenset(["int", "long", "decimal", *(type_.name for type_ in DATELIKE)])


@dataclass(slots=True)
class Witnesses:
    """Chooses rows that have, together, whatever the rows have for a plan: each type, and each mark of one.

    Attributes:
        known: the marks of earlier rows, by path and type.
    """

    known: dict[tuple[Path, str], _Marks] = field(default_factory=dict)

    def choose(self, typed: TypedRows) -> NDArray[np.int64]:
        """The numbers of rows: those in doubt, and of the others those that bring something new."""
        sure = np.flatnonzero(~typed.doubtful)
        rows: set[int] = set(np.flatnonzero(typed.doubtful).tolist())
        if len(sure):
            plain = typed.having(~typed.doubtful) if rows else typed
            self._record(plain.struct, plain.arrays, _Owners(sure, rows), ())
        return np.array(sorted(rows), np.int64)

    def _record(self, struct: Struct, arrays: Sequence[pa.Array], owners: _Owners, path: Path) -> Flags:
        """Look at the fields of structs; returns which of these have a value."""
        valued = np.zeros(len(owners.numbers), np.bool_)
        for f, array in zip(struct.fields, arrays, strict=True):
            valued |= self._values(f.type, array, owners, (*path, f.name))
        return valued

    def _values(self, type_: Type, array: pa.Array, owners: _Owners, path: Path) -> Flags:
        """Look at the values of one column; returns which have one inside."""
        valid = flags_of(array.is_valid())
        marks = self.known.setdefault((path, _outline(type_)), _Marks())
        match type_:
            case Struct():
                arrays = array.flatten()
                valued = self._record(type_, arrays, owners, path)
                empty = ~reduce(np.logical_or, [flags_of(member.is_valid()) for member in arrays])
                marks.first("empty", valid & empty, owners)
                marks.first("idle", valid & ~valued & ~empty, owners)
            case List(element):
                places = owners_in(array)
                valued_elements = self._values(
                    element, array.flatten(), owners.of(places), (*path, "element")
                )
                valued = owning(valued_elements, places, len(array))
                marks.first("idle", valid & ~valued, owners)
            case Primitive():
                valued = valid
                if valid.any():
                    marks.first("some", valid, owners)
                    marks.scalars(type_, array, owners)
            case _:
                valued = valid
        return valued


@dataclass(frozen=True, slots=True)
class _Owners:
    """The rows that values are in.

    Attributes:
        numbers: the row of each value.
        chosen: the rows that are chosen so far.
    """

    numbers: NDArray[np.int64]
    chosen: set[int]

    def of(self, places: NDArray[np.int64]) -> _Owners:
        """The rows of the values inside of these."""
        return _Owners(self.numbers[places], self.chosen)

    def choose(self, place: int) -> None:
        """Choose the row of a value."""
        self.chosen.add(int(self.numbers[place]))


@dataclass(slots=True)
class _Marks:
    """The marks of the values at a path that have been seen; ``bounds``: their least and their greatest."""

    names: set[Any] = field(default_factory=set)
    bounds: dict[str, Any] = field(default_factory=dict)

    def first(self, name: Any, flags: Flags, owners: _Owners) -> None:
        """Choose the first flagged value, if none has been seen."""
        if name not in self.names and flags.any():
            self.names.add(name)
            owners.choose(int(np.argmax(flags)))

    def scalars(self, type_: Primitive, array: pa.Array, owners: _Owners) -> None:
        """Choose values that have each mark of their type."""
        if type_ == STRING:
            self._texts(array, owners)
        if type_.name in _ORDERED:
            self._bounds(array, owners)
        if type_ in (TIMESTAMP, TIMESTAMP_NTZ):
            micros = array.cast(pa.int64()).fill_null(0).to_numpy(zero_copy_only=False)
            for unit in (_SECOND, _MILLISECOND):
                self.first(unit, micros % unit != 0, owners)

    def _bounds(self, array: pa.Array, owners: _Owners) -> None:
        # As numbers: the moments of an extreme year are none of Python's.
        if pa.types.is_temporal(array.type):
            array = array.cast(pa.int32() if pa.types.is_date32(array.type) else pa.int64())
        bounds = pc.min_max(array)
        least, greatest = bounds["min"].as_py(), bounds["max"].as_py()
        if "min" not in self.bounds or least < self.bounds["min"]:
            self.bounds["min"] = least
            owners.choose(pc.index(array, bounds["min"]).as_py())
        if "max" not in self.bounds or greatest > self.bounds["max"]:
            self.bounds["max"] = greatest
            owners.choose(pc.index(array, bounds["max"]).as_py())

    def _texts(self, array: pa.Array, owners: _Owners) -> None:
        """Choose a text of each kind; only those with a hyphen behind the fourth character can be dates."""
        hyphen = pc.equal(pc.utf8_slice_codeunits(array, 4, 5), "-")
        self.first("plain", flags_of(pc.invert(hyphen)), owners)
        places = np.flatnonzero(flags_of(hyphen)).tolist()
        for place, text in zip(places, array.filter(hyphen).to_pylist() if places else (), strict=True):
            kind = string_base(text, "on"), string_base(text, "instant"), fraction(text), far(text)
            if kind not in self.names:
                self.names.add(kind)
                owners.choose(place)


def _outline(type_: Type) -> str:
    """A text that tells the columns of one field apart."""
    dim, base = peel(type_)
    return f"{dim} {base if isinstance(base, Primitive) else type(base).__name__}"


def needed_rows(records: RowRecords, rows: pa.RecordBatch, witnesses: Witnesses) -> pa.RecordBatch:
    """The rows whose records are all that a plan has to know of the rows."""
    chosen = witnesses.choose(TypedRows.of(records, rows))
    return rows if len(chosen) == rows.num_rows else rows.take(pa.array(chosen))
