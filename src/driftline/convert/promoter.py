"""Puts values of the rest into the columns that the plans have for them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from driftline.convert.converter import Converter
from driftline.convert.defaults import without_defaults
from driftline.convert.rest_records import Chosen, Selection, parts_of, typed_batches
from driftline.convert.types import arrow_type
from driftline.core.changes import Change
from driftline.core.planning.own_columns import REST, TYPE_KEY
from driftline.core.planning.plan import Plan, RecordRoute, Settings, by_name, lean
from driftline.core.schema.types import Path, Schema, Struct, dotted
from driftline.errors import DataError


class Plans(NamedTuple):
    """The plans for the typed values of the rest, and for JSON's beside them.

    They are batches of their own, because no single plan tells JSON objects from typed maps and structs of
    the same field.
    """

    of_typed: Plan
    of_json: Plan

    @property
    def before(self) -> Schema:
        """The schema before the changes."""
        return self.of_typed.before

    @property
    def schema(self) -> Schema:
        """The schema with all columns."""
        return self.of_json.schema

    @property
    def changes(self) -> tuple[Change, ...]:
        """The changes from the schema before to that with all columns."""
        return (*self.of_typed.changes, *self.of_json.changes)

    @property
    def routes(self) -> tuple[RecordRoute, RecordRoute]:
        """The routes that fill the columns."""
        return self.of_typed.route, self.of_json.route


@dataclass(frozen=True, slots=True)
class Promoter:
    """A converter of rows with the columns of ``before`` to rows with those of ``after``.

    ``same``: fills the existing columns; ``of_json``, ``of_typed``: those of the promoted values. ``old``:
    the name of the rest, which stays as it was; ``new``: of the one without the selected values.
    """

    before: Struct
    same: Converter
    of_json: Converter
    of_typed: Converter
    selection: Selection
    old: str
    new: str
    mark: str

    @classmethod
    def of(
        cls, plans: Plans, after: Struct, settings: Settings, selection: Selection, old: str, new: str
    ) -> Promoter:
        """Make the promoter of a table.

        Args:
            plans: the plans for the selected values.
            after: the columns of the plans with their ids, and that of the new rest.
            settings: the table's.
            selection: the values to promote.
            old: the name of the present rest.
            new: the name of the rest without the selected values.
        """
        before = plans.before.struct
        after = without_defaults(after)
        data = Struct(tuple(f for f in after.fields if f.name != old))
        same = Converter(after, by_name(before, after), settings)
        of_typed, of_json = (Converter(data, lean(plan.route), settings) for plan in plans)
        return cls(before, same, of_json, of_typed, selection, old, new, settings.mark)

    def rows(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Convert rows. Raises DataError if the place of a value is taken."""
        rows = self.same.of_arrow(batch, self.before, json=False)
        names = rows.schema.names
        columns = dict(zip(names, rows.columns, strict=True))
        parts = parts_of(batch, self.before, self.old, self.selection, self.mark)
        remaining = [dict(part.remaining) for part in parts]
        before = batch.column([f.name for f in self.before.fields].index(self.old))
        for numbers, values in self._filled(parts):
            for name, array in zip(values.schema.names, values.columns, strict=True):
                if array.null_count == len(array):
                    continue
                if name == self.new:
                    _put_back(remaining, numbers, array, before)
                else:
                    columns[name] = _put(columns[name], numbers, array, name)
        entries = [list(row.items()) or None for row in remaining]
        columns[self.new] = pa.array(entries, arrow_type(REST.type)).cast(columns[self.new].type)
        return pa.RecordBatch.from_arrays([columns[name] for name in names], schema=rows.schema)

    def _filled(self, parts: Sequence[Chosen]) -> Iterator[tuple[list[int], pa.RecordBatch]]:
        """The selected values in the columns of the plan, and the numbers of their rows."""
        numbers = [number for number, part in enumerate(parts) if part.record]
        if numbers:
            yield numbers, self.of_json.of_json([parts[number].record for number in numbers])
        for struct, (numbers, batch) in typed_batches(parts).items():
            yield numbers, self.of_typed.of_arrow(batch, struct, json=False)


def _put_back(
    remaining: Sequence[dict[str, str]], numbers: Sequence[int], entries: pa.Array, before: pa.Array
) -> None:
    """Put the ``entries`` that got no column back into each row's remaining rest.

    Where only parts of a list waited, they go back as they were ``before``.
    """
    for number, row_entries in zip(numbers, entries.to_pylist(), strict=True):
        old = dict(before[number].as_py()) if row_entries else {}
        for path, text in row_entries or ():
            value = path.removesuffix(TYPE_KEY)
            prefixes = (f"{value}.", f"{value}[")
            parts = {} if value in old else {p: t for p, t in old.items() if p.startswith(prefixes)}
            remaining[number].update(parts or {path: text})


def _put(column: pa.Array, numbers: Sequence[int], values: pa.Array, name: str) -> pa.Array:
    """Put values into the rows of these numbers; a row may occur several times."""
    merged: dict[int, Any] = {}
    stored = column.take(pa.array(numbers, pa.int64())).to_pylist()
    for number, before, value in zip(numbers, stored, values.to_pylist(), strict=True):
        merged[number] = _merged(merged.get(number, before), value, column.type, (name,))
    index = np.arange(len(column))
    index[list(merged)] = np.arange(len(column), len(column) + len(merged))
    both = pa.concat_arrays([column, pa.array(list(merged.values()), column.type)])
    return both.take(pa.array(index))


def _merged(before: Any, value: Any, type_: pa.DataType, path: Path) -> Any:
    """Fill the nulls of a column's value from another value."""
    if before is None or value is None:
        return value if before is None else before
    if pa.types.is_struct(type_):
        return {f.name: _merged(before[f.name], value[f.name], f.type, (*path, f.name)) for f in type_}
    if pa.types.is_map(type_):
        a, b = dict(before), dict(value)
        child_path = (*path, "value")
        return [(key, _merged(a.get(key), b.get(key), type_.item_type, child_path)) for key in {**a, **b}]
    if pa.types.is_list(type_):
        child_path = (*path, "element")
        return [_merged(*pair, type_.value_type, child_path) for pair in zip_longest(before, value)]
    if before != value:
        raise DataError(f"{dotted(path)} has {before!r} where the rest has {value!r}: nothing is changed")
    return before
