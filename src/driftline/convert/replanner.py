"""Rows of a table with the columns of a replan in place of those that its fields had."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from itertools import islice
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from driftline.convert.converter import Converter, Lost, without_defaults
from driftline.convert.declared import entries_of
from driftline.convert.leaves import same_lists
from driftline.convert.records import RowRecords, is_spelled_whole
from driftline.convert.typed_rows import TypedRows, differing
from driftline.convert.types import arrow_type
from driftline.core.changes import AddColumn, without_columns
from driftline.core.columns.replanning import ReplannedField
from driftline.core.columns.siblings import Fields
from driftline.core.planning.conversions import fits
from driftline.core.planning.own_columns import REST, is_type_key, keys_of, rest_column, steps, type_key
from driftline.core.planning.plan import Plan, RecordRoute, by_name, lean
from driftline.core.schema.naming import Names, data_key, mark, marked_key
from driftline.core.schema.types import (
    Field,
    List,
    Map,
    Path,
    Primitive,
    Schema,
    Struct,
    Type,
    children,
    peel,
    with_child,
)
from driftline.core.settings.table import TableSettings
from driftline.core.values import Number, parse

_FLOATING = ("float", "double")


class Misplaced(Exception):
    """Lists or maps of the new columns are not those of the old ones around them."""


@dataclass(frozen=True, slots=True)
class ColumnSwap:
    """The columns that go, and those that come, by what they are called until the others are gone.

    Attributes:
        fields: the fields that get other columns.
        added: the new columns, under names that are free.
        names: what each will be called, and its doc, by its path until then.
        gone: the ids of the columns that go.
        rest: the names of the old rest and of the new one; None if the table has, and gets, none.
    """

    fields: Sequence[ReplannedField]
    added: Sequence[AddColumn]
    names: Mapping[Path, tuple[str, str | None]]
    gone: frozenset[int]
    rest: tuple[str | None, str] | None

    @classmethod
    def of(cls, now: Schema, planned: Plan, fields: Sequence[ReplannedField], prefix: str) -> ColumnSwap:
        """Give the columns of a plan names that are free.

        Args:
            now: the table's schema.
            planned: the plan of all records.
            fields: those to get the columns of the plan.
            prefix: of the mark in docs of evolved columns.
        """
        added: list[AddColumn] = []
        names: dict[Path, tuple[str, str | None]] = {}
        taken: dict[Path, Names] = {}

        def add(parent: Path, column: Field, key: str) -> str:
            """Add a column, marked with its key, as its name may not be the key's yet."""
            free = taken.setdefault(parent, Names.of(_struct_at(now, parent))).take(column.name)
            lines = () if marked_key(column.doc, prefix) is not None else (mark(key, prefix),)
            doc = "\n".join(filter(None, (*lines, column.doc)))
            added.append(AddColumn(parent, replace(column, name=free, doc=doc)))
            names[*parent, free] = column.name, column.doc
            return free

        for field in fields:
            for planned_column in field.then:
                column = planned.schema.find(planned_column.path)
                assert column is not None
                add(planned_column.path[:-1], column, field.path[-1])
        gone_columns = [now.find(column.path) for field in fields for column in field.now]
        gone = {column.id for column in gone_columns if column is not None}
        rest_names: tuple[str | None, str] | None = None
        if (new_rest := rest_column(planned.schema.struct)) is not None:
            old_rest = rest_column(now.struct)
            free = taken.setdefault((), Names.of(now.struct)).take(new_rest.name)
            added.append(AddColumn((), replace(REST, name=free, doc=new_rest.doc)))
            names[(free,)] = new_rest.name, new_rest.doc
            rest_names = None if old_rest is None else old_rest.name, free
            gone |= set() if old_rest is None else {old_rest.id}
        return cls(fields, added, names, frozenset(gone), rest_names)

    def after(self, between: Schema) -> Schema:
        """The schema once the new columns are alone, and have their names."""
        renamed = {}
        for path, name_and_doc in self.names.items():
            column = between.find(path)
            assert column is not None
            renamed[column.id] = name_and_doc
        struct = _swapped(between.struct, self.gone, renamed)
        assert isinstance(struct, Struct)
        return replace(between, struct=struct)

    def sources(self, now: Schema, between: Schema, waiting: Collection[Path]) -> dict[int, tuple[int, ...]]:
        """The columns of now that have the values of each column, by id, as far as these are all it has.

        Args:
            now: the table's schema.
            between: that with the new columns.
            waiting: the fields of which values wait in the rest.
        """
        # Those that go, too: `undo` brings them back, with the values that the rows still have.
        by_id: dict[int, tuple[int, ...]] = {f.id: (f.id,) for _, f in now.walk()}
        paths = iter(self.names)
        for field in self.fields:
            before = [now.find(column.path) for column in field.now]
            for path in islice(paths, len(field.then)):
                column = between.find(path)
                assert column is not None
                if field.path not in waiting:
                    by_id[column.id] = tuple(
                        b.id for b in before if b is not None and _takes(column.type, b.type)
                    )
        return by_id


def _takes(type_: Type, before: Type) -> bool:
    """True if a column has the plain values of one of before."""
    (dim, base), (dim_before, base_before) = peel(type_), peel(before)
    is_plain = isinstance(base, Primitive) and isinstance(base_before, Primitive)
    return is_plain and dim_before <= dim and fits(base_before, base)  # type: ignore[arg-type]


def _struct_at(schema: Schema, path: Path) -> Struct:
    column = schema.find(path)
    type_ = schema.struct if column is None else column.type
    assert isinstance(type_, Struct)
    return type_


def _swapped(type_: Type, gone: frozenset[int], renamed: Mapping[int, tuple[str, str | None]]) -> Type:
    if isinstance(type_, Struct):
        fields = []
        for f in type_.fields:
            if f.id not in gone:
                name, doc = renamed.get(f.id, (f.name, f.doc))
                fields.append(replace(f, name=name, doc=doc, type=_swapped(f.type, gone, renamed)))
        return Struct(tuple(fields))
    for child in children(type_):
        if child.name != "key":  # which has no columns inside
            swapped = replace(child, type=_swapped(child.type, gone, renamed))
            type_ = with_child(type_, child.name, swapped)
    return type_


@dataclass(frozen=True, slots=True)
class Replanner:
    """Makes rows with the new columns of a swap, beside the old ones, of rows that have the old ones.

    Attributes:
        before: the columns of the rows.
        between: those of the new ones.
        new: the names in the plan of the new columns, by id.
        around: the ids of columns that new ones are in.
        same: fills the columns that stay.
        anew: fills those of the plan.
        mark: begins docs of evolved columns.
    """

    swap: ColumnSwap
    before: Struct
    between: Struct
    new: Mapping[int, str]
    around: frozenset[int]
    same: Converter
    anew: Converter
    mark: str

    @classmethod
    def of(cls, swap: ColumnSwap, planned: Plan, between: Schema, settings: TableSettings) -> Replanner:
        """Make the replanner of a table that has the columns of a swap, old and new."""
        after = without_defaults(between.struct)
        new: dict[int, str] = {}
        around: set[int] = set()
        for path, (name, _) in swap.names.items():
            column = between.find(path)
            assert column is not None
            new[column.id] = name
            parents = (between.find(path[:end]) for end in range(1, len(path)))
            around |= {parent.id for parent in parents if parent is not None}
        keys = {field.path[0] for field in swap.fields}
        route = RecordRoute(tuple(f for f in planned.route.fields if f.key in keys))
        struct = planned.schema.struct
        rest_field = rest_column(struct)
        columns = tuple(f for f in struct.fields if data_key(f, settings.mark) in keys or f == rest_field)
        before = without_columns(after, new.keys())
        same = Converter(after, by_name(before, after), settings)
        anew = Converter(without_defaults(Struct(columns)), lean(route), settings)
        return cls(swap, before, after, new, frozenset(around), same, anew, settings.mark)

    def rows(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Rows with the old columns and the new ones. Raises Misplaced."""
        base = self.same.of_arrow(batch, self.before, json=False)
        filled = self._anew(batch)
        columns = self._filled(self.between, base.columns, self.anew.struct, filled.columns)
        if self.swap.rest is not None:
            old, new = self.swap.rest
            names = [f.name for f in self.between.fields]
            before = base.column(names.index(old)).to_pylist() if old is not None else [None] * len(base)
            place = names.index(new)
            columns[place] = self._rest(before, columns[place].to_pylist()).cast(columns[place].type)
        return pa.RecordBatch.from_arrays(columns, schema=base.schema)

    def faults(self, batch: pa.RecordBatch) -> set[Path]:
        """The fields whose values the new columns would not hold as the old ones do."""
        doubtful = {f.path for f in self.swap.fields if self._is_unspelled(batch, f)}
        try:
            rows = self.rows(batch)
        except (Misplaced, Lost):
            return {field.path for field in self.swap.fields}
        records = replace(self._records, struct=self.between, left_out=self.swap.gone | self._others)
        differs = differing(self._typed(self._records, batch), self._typed(records, rows))
        if not differs.any():
            return doubtful
        batch, rows = batch.filter(pa.array(differs)), rows.filter(pa.array(differs))
        lines_before = [reading.lines(batch) for reading in self._records.readings()]
        lines_after = [reading.lines(rows) for reading in records.readings()]
        for old_lines, new_lines in zip(
            zip(*lines_before, strict=True), zip(*lines_after, strict=True), strict=True
        ):
            # A number that may have been a moment must not become the moment's text: each reading stays one.
            if set(old_lines) <= set(new_lines):
                continue
            old, new = [*map(parse, old_lines)], [*map(parse, new_lines)]
            for field in self.swap.fields:
                key = field.path[0]
                members = [_valued(line.get(key)) for line in new]
                if not all(_valued(line.get(key)) in members for line in old):
                    doubtful.add(field.path)
        return doubtful

    def _anew(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """The columns of the plan, made of whole columns, or row by row where need be. Raises Lost."""
        typed = self._typed(self._records, batch)
        sure = ~(typed.doubtful | typed.hollow) & bool(typed.arrays)
        filled = []
        try:
            if sure.any():
                plain = typed.having(sure)
                filled.append(self.anew.of_arrow(plain.batch, plain.struct, json=True))
        except Lost:  # of a value whose type depends on the others of its field
            sure = np.zeros_like(sure)
        if not filled or not sure.all():
            filled.append(self._of_lines(batch.filter(pa.array(~sure))))
        if len(filled) == 1:
            return filled[0]
        order = np.argsort(np.concatenate((np.flatnonzero(sure), np.flatnonzero(~sure))))
        return pa.Table.from_batches(filled).combine_chunks().to_batches()[0].take(pa.array(order))

    def _of_lines(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        # What may be a moment is one: it goes to the same columns as the number.
        lines = replace(self._records, moments=True).lines(batch, in_order=True)  # as the maps around have it
        records = [
            {key: member for key, member in parse(line).items() if key in self._keys} for line in lines
        ]  # the rest may have other keys
        return self.anew.of_json(records)

    @staticmethod
    def _typed(records: RowRecords, batch: pa.RecordBatch) -> TypedRows:
        return TypedRows.of(records, batch, spelled=True)

    @property
    def _records(self) -> RowRecords:
        return RowRecords(self.before, self.mark, self.anew.settings.fields, left_out=self._others)

    @property
    def _others(self) -> frozenset[int]:
        """The ids of the columns of other fields, which need not be read; the rest is."""
        rest_field, fields = rest_column(self.before), self.before.fields
        others = (f for f in fields if data_key(f, self.mark) not in self._keys)
        return frozenset(f.id for f in others if f != rest_field)

    @property
    def _keys(self) -> set[str]:
        return {field.path[0] for field in self.swap.fields}

    def _is_unspelled(self, batch: pa.RecordBatch, field: ReplannedField) -> bool:
        """True if a column of the field has what no JSON spells, such as bytes or a NaN."""
        if not all(is_spelled_whole(column.type) for column in field.now):
            return True
        names = [f.name for f in self.before.fields]
        places = {names.index(column.path[0]) for column in field.now}
        return any(_no_number(batch.column(place), self.before.fields[place].type) for place in places)

    def _filled(
        self, struct: Struct, arrays: Sequence[pa.Array], planned: Struct, filled: Sequence[pa.Array]
    ) -> list[pa.Array]:
        """The columns of a struct, the new ones and those around them filled from the plan's."""
        by_name = {f.name: (f.type, array) for f, array in zip(planned.fields, filled, strict=True)}
        columns = []
        for f, array in zip(struct.fields, arrays, strict=True):
            if f.id in self.new:
                columns.append(by_name[self.new[f.id]][1].cast(arrow_type(f.type)))
            elif f.id in self.around:
                columns.append(self._inside(f.type, array, *by_name[f.name]))
            else:
                columns.append(array)
        return columns

    def _inside(self, type_: Type, array: pa.Array, planned: Type, filled: pa.Array) -> pa.Array:
        """A column that stays, with new columns inside of it. Raises Misplaced."""
        match type_, planned:
            case Struct(fields), Struct():
                parts = [array.field(place) for place in range(len(fields))]
                others = [filled.field(place) for place in range(len(planned.fields))]
                columns = self._filled(type_, parts, planned, others)
                mask = pc.and_(array.is_null(), filled.is_null())
                return pa.StructArray.from_arrays(columns, fields=list(array.type), mask=mask)
            case List(element), List(other):
                if not same_lists(_flat(array), _flat(filled)):
                    raise Misplaced
                values = self._inside(element, array.flatten(), other, filled.flatten())
                return pa.ListArray.from_arrays(
                    _offsets(array), values, type=array.type, mask=array.is_null()
                )
            case Map(_, value), Map(_, other):
                lists, others = entries_of(array), entries_of(filled)
                keys, items = lists.flatten().field(0), lists.flatten().field(1)
                planned_keys, planned_items = others.flatten().field(0), others.flatten().field(1)
                if not (same_lists(_flat(lists), _flat(others)) and keys.equals(planned_keys)):
                    raise Misplaced
                values = self._inside(value, items, other, planned_items)
                return pa.MapArray.from_arrays(
                    _offsets(lists), keys, values, type=array.type, mask=array.is_null()
                )
        raise AssertionError(type_)

    def _rest(self, before: Sequence[Any], filled: Sequence[Any]) -> pa.Array:
        """The new rest: what waited outside of the fields, and what of them has no new column."""
        fields = Fields([self.before], self.mark)
        replanned = [keys_of(field.path) for field in self.swap.fields]
        entries = []
        for old, new in zip(before, filled, strict=True):
            texts, stay = dict(old or ()), {}
            for path, text in texts.items():
                if is_type_key(path):
                    continue
                keys = keys_of(fields.path(steps(path)))
                if not any(keys[: len(field)] == field for field in replanned):
                    stay[path] = text
                    if type_key(path) in texts:
                        stay[type_key(path)] = texts[type_key(path)]
            entries.append([*(stay | dict(new or ())).items()] or None)
        return pa.array(entries, arrow_type(REST.type))


def _flat(lists: pa.Array) -> pa.Array:
    """The lists with plain elements, to compare their lengths alone."""
    nulls = pa.nulls(int(pc.sum(lists.value_lengths()).as_py() or 0), pa.int8())
    return pa.ListArray.from_arrays(_offsets(lists), nulls, mask=lists.is_null())


def _offsets(lists: pa.Array) -> pa.Array:
    """The offsets of lists in their flattened values."""
    lengths = lists.value_lengths().fill_null(0).to_numpy()
    return pa.array(np.concatenate(([0], np.cumsum(lengths))).astype(np.int32))


def _no_number(array: pa.Array, type_: Type) -> bool:
    """True if a floating-point number in an array is none, at any depth."""
    match type_:
        case Primitive(name) if name in _FLOATING:
            return bool(pc.any(pc.invert(pc.is_finite(array))).as_py())
        case Struct(fields):
            return any(_no_number(array.field(place), f.type) for place, f in enumerate(fields))
        case List(element):
            return _no_number(array.flatten(), element)
        case Map(_, value):
            return _no_number(entries_of(array).flatten().field(1), value)
        case _:
            return False


def _valued(value: Any) -> Any:
    """A parsed value to be compared: numbers by what they are, nothing for what has no value inside."""
    if isinstance(value, Number):
        return Decimal(value)
    if isinstance(value, dict):
        return {
            key: compared for key, member in value.items() if (compared := _valued(member)) is not None
        } or None
    if isinstance(value, list):
        members = [_valued(member) for member in value]
        return members if any(member is not None for member in members) else None
    return value
