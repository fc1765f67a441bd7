"""Promotes values from the rest into the columns that the plans have for them."""

from __future__ import annotations

import base64
import uuid
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date, datetime, time
from decimal import Decimal
from itertools import zip_longest
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from driftline.convert.converter import Converter, without_defaults
from driftline.convert.types import arrow_schema, arrow_type
from driftline.core.changes import Change
from driftline.core.columns.siblings import Fields, families
from driftline.core.planning.own_columns import REST, TYPE_KEY, is_type_key, keys_of, steps, type_key
from driftline.core.planning.plan import Plan, RecordRoute, by_name, lean
from driftline.core.schema.schema_json import type_of
from driftline.core.schema.types import (
    STRING,
    Field,
    List,
    Map,
    Path,
    Primitive,
    Schema,
    Struct,
    Type,
    dotted,
    peel,
)
from driftline.core.settings.table import TableSettings
from driftline.core.values import parse
from driftline.errors import DataError

_READ: dict[str, Callable[[str], Any]] = {
    "int": int,
    "long": int,
    "float": float,
    "double": float,
    "decimal": Decimal,
    "date": date.fromisoformat,
    "timestamp": datetime.fromisoformat,
    "timestamp_ntz": datetime.fromisoformat,
    "time": time.fromisoformat,
    "uuid": lambda text: uuid.UUID(text).bytes,
    "binary": base64.b64decode,
    "fixed": base64.b64decode,
    "string": str,
    "boolean": lambda text: {"true": True, "false": False}[text],
}


def typed_value(value: Any, type_: Type) -> Any:
    """Convert a parsed JSON value to what pyarrow takes for the type.

    >>> from driftline.core.schema.types import BINARY, List
    >>> typed_value(["AP8=", None], List(BINARY))
    [b'\\x00\\xff', None]

    Raises ValueError where Python has no such value, of a year beyond 9999, say.
    """
    if value is None or isinstance(value, bool):
        return value
    match type_:
        case Struct(fields):
            types = {f.name: f.type for f in fields}
            if len(types) < len(fields):
                # A dict would keep one of its values, and lose the others.
                raise ValueError("a key occurs more than once")
            return {key: typed_value(item, types[key]) for key, item in value.items()}
        case List(element):
            return [typed_value(item, element) for item in value]
        case Map(key_type, item_type):
            return {typed_value(key, key_type): typed_value(item, item_type) for key, item in value.items()}
        case Primitive(name) if name in _READ:
            return _READ[name](value)
    raise ValueError(f"{type_} has no values")


Steps = tuple["str | int", ...]


@dataclass(frozen=True, slots=True)
class Selection:
    """A selection from the rest: all values, or those at or below some paths, but never excluded ones.

    Paths omit steps into lists; for all keys of a map, the step is ``value``.
    """

    paths: tuple[Path, ...] = ()
    excluded: tuple[Path, ...] = ()

    def leading_to(self, *fields: Iterable[str | int]) -> list[Path] | None:
        """The selected paths that lead to a value, or to something around it; None if it is not selected.

        ``fields``: its own path and that of its field, which differ only for keys of maps.
        """
        keys = [keys_of(field) for field in fields]

        def among(paths: Sequence[Path]) -> list[Path]:
            return [path for path in paths if any(key_path[: len(path)] == path for key_path in keys)]

        selected = among(self.paths)
        return None if among(self.excluded) or (self.paths and not selected) else selected


@dataclass(slots=True)
class Chosen:
    """The selection from one row's rest.

    JSON values are one ``record``, typed ones each have their ``type``, nested as in the record;
    ``remaining``: what stays in the rest. ``counts``: of values, by the path of their field; ``met``:
    requested paths that occurred; ``in_lists``: some are elements of lists.
    """

    record: dict[str, Any] = field(default_factory=dict)
    typed: list[tuple[Struct, Any]] = field(default_factory=list)
    remaining: list[tuple[str, str]] = field(default_factory=list)
    counts: Counter[Path] = field(default_factory=Counter)
    met: set[Path] = field(default_factory=set)
    in_lists: bool = False


def chosen(entries: Sequence[tuple[str, str]], selection: Selection, fields: Fields) -> Chosen:
    """Split a row's rest into the values that get columns and those that stay.

    Typed values that cannot be read stay, and those of an empty key.
    """
    out, texts = Chosen(), dict(entries)
    locations = {path: steps(path) for path, _ in entries if not is_type_key(path)}
    selections = {
        location: selection.leading_to(location, field)
        for location in locations.values()
        if "" not in (field := fields.path(location))
    }
    for path, location in locations.items():
        # Of a value that stands there whole, a part may too: two columns of its field lack different parts.
        if any(selections.get(location[:end]) is not None for end in range(1, len(location))):
            continue
        text, spelled, selected = texts[path], texts.get(type_key(path)), selections.get(location)
        taken = selected is not None
        if taken:
            value = parse(b'{"v":%b}' % text.encode())["v"]
            if spelled is None:
                out.record = _joined(out.record, nested(location, value))
            else:
                taken = _add_typed(out, location, value, type_of(spelled), fields)
        if taken:
            out.in_lists = out.in_lists or any(isinstance(step, int) for step in location)
            out.counts[fields.path(location)] += 1
            out.met.update(selected or ())
        else:
            out.remaining += [(path, text)] + [(type_key(path), spelled)] * (spelled is not None)  # type: ignore[list-item]
    return out


def _add_typed(out: Chosen, location: Steps, value: Any, type_: Type, fields: Fields) -> bool:
    try:
        typed = nested(location, typed_value(value, type_))
    except ValueError:
        return False
    for step, is_key in reversed([*zip(location, fields.keys_of_maps(location), strict=True)]):
        if isinstance(step, int):
            type_ = List(type_)
        else:
            type_ = Map(STRING, type_) if is_key else Struct((Field(step, type_),))
    assert isinstance(type_, Struct)
    out.typed.append((type_, typed))
    return True


def nested(location: Steps, value: Any) -> Any:
    """The value nested as in its record; earlier places in a list are null."""
    for step in reversed(location):
        value = {step: value} if isinstance(step, str) else [None] * step + [value]
    return value


def _joined(a: Any, b: Any) -> Any:
    """Join two parts of one record."""
    if a is None or b is None:
        return b if a is None else a
    if isinstance(a, dict) and isinstance(b, dict):
        return {key: _joined(a.get(key), b.get(key)) for key in {**a, **b}}
    # A path is of one value, so both are lists
    return [_joined(*pair) for pair in zip_longest(a, b)]


def _padded(value: Any, column_values: Sequence[tuple[Type, Any]], mark: str) -> Any:
    """Extend the value's lists to the length that columns hold of it, each with its type."""
    if not isinstance(value, (list, dict)):
        return value
    column_values = [_within(type_, stored, _dimension(value)) for type_, stored in column_values]
    if isinstance(value, dict):
        return {
            key: _padded(item, _values_under(column_values, key, mark), mark) for key, item in value.items()
        }
    lists = [(t.element, stored) for t, stored in column_values if isinstance(t, List) and stored is not None]
    length = max([len(value), *(len(stored) for _, stored in lists)])
    return [
        _padded(value[n] if n < len(value) else None, [(t, s[n]) for t, s in lists if n < len(s)], mark)
        for n in range(length)
    ]


def _within(type_: Type, stored: Any, dim: int) -> tuple[Type, Any]:
    """A column's value and its type, without the lists that a value of ``dim`` lists was wrapped in."""
    while isinstance(type_, List) and peel(type_)[0] > dim and stored is not None and len(stored) == 1:
        type_, stored = type_.element, stored[0]
    return type_, stored


def _dimension(value: Any) -> int:
    """The number of lists around the deepest value in lists."""
    return 1 + max(map(_dimension, value), default=0) if isinstance(value, list) else 0


def _values_under(column_values: Sequence[tuple[Type, Any]], key: str, mark: str) -> list[tuple[Type, Any]]:
    """The values under a key in columns of records or maps."""
    out: list[tuple[Type, Any]] = []
    for type_, stored in column_values:
        if isinstance(type_, Struct) and stored is not None:
            family = next((f for f in families([type_], mark) if f.key == key), None)
            out += [(f.type, stored[f.name]) for f in (family.columns if family else ())]
        elif isinstance(type_, Map) and stored is not None:
            out.append((type_.value, dict(stored).get(key)))
    return out


def parts_of(
    batch: pa.RecordBatch, struct: Struct, rest_name: str, selection: Selection, mark: str
) -> list[Chosen]:
    """The selection from each row.

    ``struct``: the table's columns; ``rest_name``: the name of the rest's column. Lists of which the table
    holds a part have the length that they have there.
    """
    names, fields = [f.name for f in struct.fields], Fields([struct], mark)
    parts = [
        chosen(entries or [], selection, fields)
        for entries in batch.column(names.index(rest_name)).to_pylist()
    ]
    for number, part in enumerate(parts):
        if part.in_lists:
            columns = zip(names, batch.slice(number, 1).columns, strict=True)
            column_values = [(struct, {column: array[0].as_py() for column, array in columns})]
            part.record = _padded(part.record, column_values, mark)
            part.typed = [(type_, _padded(value, column_values, mark)) for type_, value in part.typed]
    return parts


def typed_batches(parts: Iterable[Chosen]) -> Mapping[Struct, tuple[list[int], pa.RecordBatch]]:
    """The typed values by type, each a row of its own, with the numbers of their rows."""
    by_struct: dict[Struct, tuple[list[int], list[Any]]] = {}
    for number, part in enumerate(parts):
        for struct, value in part.typed:
            numbers, values = by_struct.setdefault(struct, ([], []))
            numbers.append(number)
            values.append(value)
    return {
        struct: (numbers, pa.RecordBatch.from_pylist(values, arrow_schema(struct)))
        for struct, (numbers, values) in by_struct.items()
    }


class Plans(NamedTuple):
    """The plans for the typed values of the rest, and for its JSON values.

    They are batches of their own, because no single plan can distinguish JSON objects from typed maps and
    structs of the same field.
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
        cls, plans: Plans, after: Struct, settings: TableSettings, selection: Selection, old: str, new: str
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
                # Most columns get nothing from these rows, and to put back nulls would copy each.
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
    # The column once, the merged values behind it, and one `take` that picks either by row.
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
    # The rest and the columns may each hold a part of a value, never two values for one place.
    if before != value:
        raise DataError(f"{dotted(path)} has {before!r} where the rest has {value!r}: nothing is changed")
    return before
