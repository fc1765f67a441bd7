"""The columns of a split: SQL for what names a row's table, each one's values, and what splits best."""

from __future__ import annotations

import json
import pickle
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from functools import partial
from math import isfinite
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from driftline.convert.spark import from_spark
from driftline.convert.types import DEEPEST
from driftline.core.schema.naming import nearest, struct_by_key
from driftline.core.schema.types import STRING, Field, List, Map, Path, Primitive, Schema, Struct, Type
from driftline.core.support import deep_recursion
from driftline.errors import UsageError
from driftline.ingest import split_by_field
from driftline.ingest.pattern import Pattern, Values, text_of
from driftline.sql.quoting import each, literal, name, variable
from driftline.tasks.run import Reported, SetAside, numbered

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from pyspark.sql import DataFrame

# What begins the text of a value in a key: how it is to be read.
_TEXT, _EXACT, _FLOAT = "t", "n", "f"
_READ_AS = {
    **dict.fromkeys(("string", "boolean", "date"), _TEXT),
    **dict.fromkeys(("int", "long", "decimal"), _EXACT),
    **dict.fromkeys(("float", "double"), _FLOAT),
}
_NAMING = frozenset(["string", "boolean", "int", "long", "date"])  # whose values name tables
_AT_ONCE = 500  # rows whose cells are looked at together
_KEY = "k"  # the first column of the rows to be counted

# Of values by column, elements and keys too; those of the empty path are rows
Counts = Mapping[Path, int]


def key_sql(pattern: Pattern, struct: Struct, mark: str) -> str:
    """SQL for a text that has the value of each brace of the pattern, by which `values_of` reads them.

    Raises UsageError for braces that are no field of the table.
    """
    texts = []
    for number, brace in enumerate(pattern.braces):
        path = pattern.path(number)
        if path is None:
            raise UsageError(
                f"{pattern.text}: rows of a table have no {brace}", "name a field of the rows in braces"
            )
        columns = sorted(_columns_at(struct, path, mark), key=lambda column: _rank(column[1]))
        if not columns:
            keys = [key for key, of_key in struct_by_key(struct, mark).items() if of_key]
            raise UsageError(f"there is no column of values at {brace}", nearest(path[0], keys))
        cases = " ".join(f"when {sql} is not null then {_spelled(sql, type_)}" for sql, type_ in columns)
        texts.append(f"case {cases} end")
    return f"to_json(array({', '.join(texts)}))"


def _columns_at(struct: Struct, path: Path, mark: str) -> Iterator[tuple[str, Primitive]]:
    """The columns of a field, siblings too, as SQL with their types."""
    for column in struct_by_key(struct, mark).get(path[0], ()):
        if len(path) == 1 and isinstance(column.type, Primitive):
            yield name(column.name), column.type
        elif len(path) > 1 and isinstance(column.type, Struct):
            columns = _columns_at(column.type, path[1:], mark)
            yield from ((f"{name(column.name)}.{sql}", type_) for sql, type_ in columns)


def _rank(type_: Primitive) -> int:
    """The order in which a field's columns are asked: its column of texts has those of all the others too."""
    return 2 if type_ == STRING else int(type_.name not in _READ_AS)


def _spelled(sql: str, type_: Primitive) -> str:
    read_as = _READ_AS.get(type_.name)
    if read_as is None:  # such a value names no table
        return "cast(null as string)"
    number = f"cast({sql} as double)" if read_as == _FLOAT else sql
    return f"concat('{read_as}', cast({number} as string))"


def values_of(key: str) -> Values:
    """The values of the braces in a key that `key_sql` made.

    >>> values_of('["tPush", "n7.00", "f1.0E10", "fNaN", null]')
    ('Push', '7', '10000000000', None, None)
    """
    return tuple(None if text is None else _value(text) for text in json.loads(key))


def _value(text: str) -> str | None:
    read_as, spelled = text[0], text[1:]
    if read_as == _TEXT:
        return text_of(spelled)
    if read_as == _EXACT:
        return text_of(Decimal(spelled))
    return text_of(Decimal(repr(float(spelled)))) if isfinite(float(spelled)) else None


def is_one_of(key: str, keys: Iterable[str]) -> str:
    """SQL that is true for rows with one of these keys."""
    return f"{key} in ({', '.join(map(literal, keys))})"


def counted_values(
    rows: DataFrame, struct: Struct, key: str = "''", tables: Mapping[str, int] | None = None
) -> list[Counts]:
    """Count the values of each column of some rows, by table.

    Args:
        rows: the rows, with the columns of ``struct``.
        key: SQL for a row's key.
        tables: the numbers of tables by key, from 0; rows with another key are left out.
    """
    tables = tables or {"": 0}
    count = partial(_counted_batches, struct, tables)
    columns = [f"{key} as {_KEY}", *(name(f.name) for f in struct.fields)]
    with deep_recursion(DEEPEST):  # the types of the columns are sent with the task
        counted = numbered(rows.selectExpr(*columns)).mapInArrow(count, "counts binary").collect()
    parts = [pickle.loads(row.counts) for row in counted]  # noqa: S301  our own bytes
    sums: list[dict[Path, int]] = [{} for _ in range(max(tables.values()) + 1)]
    for part in parts:
        for path, by_table in part.items():
            for of_table, number in zip(sums, by_table.tolist(), strict=True):
                if number:
                    of_table[path] = of_table.get(path, 0) + number
    return list(sums)


def _counted_batches(
    struct: Struct, tables: Mapping[str, int], batches: Iterable[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    counter = ValueCounter(max(tables.values()) + 1)
    for batch in batches:
        keys = batch.column(0).dictionary_encode()
        # The last one stands for rows of no table.
        numbers = [tables.get(key, -1) for key in keys.dictionary.to_pylist()] + [-1]
        places = keys.indices.fill_null(len(numbers) - 1).to_numpy(zero_copy_only=False)
        of_rows = np.array(numbers, np.int64)[places]
        counter.add((), of_rows)
        for f, column in zip(struct.fields, batch.columns[1:], strict=True):
            counter.count(column, f.type, (f.name,), of_rows)
    yield pa.RecordBatch.from_arrays([pa.array([pickle.dumps(counter.counts)], pa.binary())], ["counts"])


class ValueCounter:
    """Counts values by path, each time for all tables."""

    def __init__(self, tables: int) -> None:
        self.counts: dict[Path, NDArray[np.int64]] = {}
        self._tables = tables

    def add(self, path: Path, of_values: NDArray[np.int64]) -> None:
        """Count values by their tables' numbers; those below 0 are of none."""
        numbers = np.bincount(of_values[of_values >= 0], minlength=self._tables)
        self.counts[path] = self.counts.get(path, 0) + numbers

    def count(self, array: pa.Array, type_: Type, path: Path, of_rows: NDArray[np.int64]) -> None:
        """Count a column's values that are not null, and those inside them."""
        of_values = np.where(array.is_valid().to_numpy(zero_copy_only=False), of_rows, -1)
        self.add(path, of_values)
        match type_:
            case Struct(fields):
                for place, f in enumerate(fields):
                    self.count(array.field(place), f.type, (*path, f.name), of_values)
            case List(element):
                inside = self._inside(array, of_values)
                self.count(_between(array, array.values), element, (*path, "element"), inside)
            case Map(key, value):
                inside = self._inside(array, of_values)
                self.count(_between(array, array.keys), key, (*path, "key"), inside)
                self.count(_between(array, array.items), value, (*path, "value"), inside)

    def _inside(self, array: pa.Array, of_values: NDArray[np.int64]) -> NDArray[np.int64]:
        """The table of each element of some lists or maps."""
        return np.repeat(of_values, np.diff(array.offsets.to_numpy()))


def _between(array: pa.Array, values: pa.Array) -> pa.Array:
    """The elements of the lists or maps of an array, which may be a part of a longer one."""
    if not len(array):  # Spark sends no offsets for no lists, and what is read in their place is any number
        return values.slice(0, 0)
    first, last = array.offsets[0].as_py(), array.offsets[-1].as_py()
    return values.slice(first, last - first)


def filled(struct: Struct, counts: Counts, path: Path = ()) -> Struct:
    """The columns that have a value, as a new table has them: optional, without ids and defaults.

    Of structs without a value in any field all fields stay, as they cannot be without one.
    """
    fields = [f for f in struct.fields if counts.get((*path, f.name))] or struct.fields
    return Struct(tuple(_filled_field(f, counts, (*path, f.name)) for f in fields))


def _filled_field(column: Field, counts: Counts, path: Path) -> Field:
    type_ = _filled_type(column.type, counts, path)
    return replace(column, type=type_, id=0, required=False, initial_default=None, write_default=None)


def _filled_type(type_: Type, counts: Counts, path: Path) -> Type:
    match type_:
        case Struct():
            return filled(type_, counts, path)
        case List(element):
            return replace(type_, element=_filled_type(element, counts, (*path, "element")))
        case Map(_, value):
            return replace(type_, value=_filled_type(value, counts, (*path, "value")))
        case _:
            return type_


def cut(sql: str, type_: Type, to: Type) -> str:
    """SQL for a column without the fields that ``to`` does not have; as it is if that has all."""
    match type_, to:
        case Struct(), Struct():
            types = {f.name: f.type for f in type_.fields}
            members = [
                (f.name, x := f"{sql}.{name(f.name)}", cut(x, types[f.name], f.type)) for f in to.fields
            ]
            if len(members) == len(types) and all(before == after for _, before, after in members):
                return sql
            fields = ", ".join(f"{literal(n)}, {after}" for n, _, after in members)
            return f"if({sql} is null, null, named_struct({fields}))"
        case List(), List():
            return each(sql, lambda x: cut(x, type_.element, to.element))
        case Map(), Map():
            k, v = variable("k"), variable("v")
            value = cut(v, type_.value, to.value)
            return sql if value == v else f"transform_values({sql}, ({k}, {v}) -> {value})"
        case _:
            return sql


@dataclass(frozen=True, slots=True)
class SplitRows:
    """Makes a table's rows of ``struct`` from those that Spark has read of another."""

    struct: Struct

    def rows(
        self, batches: Iterable[pa.RecordBatch], set_aside: SetAside
    ) -> Generator[pa.RecordBatch, None, Reported[Any]]:
        """Yield the rows; none is refused."""
        names = [f.name for f in self.struct.fields]
        for batch in batches:
            yield from_spark(batch, self.struct).rename_columns(names)
        return Reported(None)


def cut_columns(before: Struct, after: Struct) -> Sequence[str]:
    """SQL for the columns of ``after``, of rows that have those of ``before``."""
    types = {f.name: f.type for f in before.fields}
    return [f"{cut(name(f.name), types[f.name], f.type)} as {name(f.name)}" for f in after.fields]


def best_split_of(
    rows: pa.Table, struct: Struct, mark: str, most: int = split_by_field.MOST
) -> split_by_field.SplitByField | None:
    """The split of rows with the fewest cells; None if none saves half of them.

    Args:
        rows: with columns of ``struct``, not necessarily all.
        mark: the prefix of evolved columns' docs.
        most: tables that a split may make.
    """
    names = set(rows.column_names)
    read = Struct(tuple(column for column in struct.fields if column.name in names))
    (batch,) = rows.select([column.name for column in read.fields]).combine_chunks().to_batches(rows.num_rows)
    filled = _filled(batch, read)
    fields = _fields(read, [*batch.columns], (), mark)
    groups = ((path, _groups(columns, filled, most)) for path, columns in fields)
    return split_by_field.best_of(groups, int(filled.any(axis=0).sum()))


def _filled(batch: pa.RecordBatch, struct: Struct) -> NDArray[np.bool_]:
    """The leaf columns, in which each row has a value or not."""
    leaves = [path for path, column in Schema(struct).walk() if isinstance(column.type, Primitive)]
    parts = []
    for start in range(0, batch.num_rows, _AT_ONCE):
        part = batch.slice(start, _AT_ONCE)
        counter, of_rows = ValueCounter(part.num_rows), np.arange(part.num_rows)
        for column, array in zip(struct.fields, part.columns, strict=True):
            counter.count(array, column.type, (column.name,), of_rows)
        parts.append(np.stack([counter.counts[path] > 0 for path in leaves], axis=1))
    return np.concatenate(parts)


def _fields(
    struct: Struct, arrays: list[pa.Array], path: Path, mark: str
) -> Iterator[tuple[Path, list[pa.Array]]]:
    """The fields of plain values that most rows have, with their columns, narrow before wide."""
    array_of = {column.name: array for column, array in zip(struct.fields, arrays, strict=True)}
    for key, columns in struct_by_key(struct, mark).items():
        plain = [column for column in columns if isinstance(column.type, Primitive)]
        if plain and all(
            column.type.name in _NAMING for column in plain if isinstance(column.type, Primitive)
        ):
            yield (*path, key), [array_of[column.name] for column in sorted(plain, key=_is_text)]
        for column in columns:
            if isinstance(column.type, Struct) and len(path) + 1 < split_by_field.DEPTH:
                yield from _fields(column.type, array_of[column.name].flatten(), (*path, key), mark)


def _is_text(column: Field) -> bool:
    return isinstance(column.type, Primitive) and column.type.name == "string"


def _groups(columns: list[pa.Array], filled: NDArray[np.bool_], most: int) -> split_by_field.Groups:
    """The rows of each value of a field, and the columns that they fill; none if it has too many values."""
    rows = len(filled)
    present = sum(len(array) - array.null_count for array in columns)
    has_many = any(pc.count_distinct(array).as_py() > most for array in columns)
    if not split_by_field.is_frequent(present, rows) or has_many:
        return {}
    texts: list[str | None] = [None] * rows
    for array in columns:
        texts = [text or _text(cell) for text, cell in zip(texts, array.to_pylist(), strict=True)]
    rows_of: dict[str | None, list[int]] = {}
    for number, text in enumerate(texts):
        rows_of.setdefault(text, []).append(number)
    if len(rows_of) > most:
        return {}
    return {text: (len(numbers), int(filled[numbers].any(axis=0).sum())) for text, numbers in rows_of.items()}


def _text(cell: object) -> str | None:
    """The text by which a value names a table; a date is spelled first."""
    return text_of(cell if cell is None or isinstance(cell, str | int) else str(cell))
