"""Values of the rest as columns: what is chosen of each row is read again,
and put where the plan has a column for it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import zip_longest
from typing import Any

import numpy as np
import pyarrow as pa

from driftline.convert.converter import Converter
from driftline.convert.defaults import without_defaults
from driftline.convert.typed_text import typed_value
from driftline.convert.types import arrow_schema, arrow_type
from driftline.core.columns.rest_fields import Fields
from driftline.core.columns.siblings import families
from driftline.core.planning.rest import REST, is_type_key, keys_of, steps, type_key
from driftline.core.planning.routes import Plan, Settings, by_name, lean
from driftline.core.schema.schema_json import type_of
from driftline.core.schema.types import Field, List, Map, Path, Struct, Type, dotted
from driftline.core.values.parse import parse
from driftline.errors import DataError

Steps = tuple["str | int", ...]


@dataclass(frozen=True, slots=True)
class Selection:
    """Which values of the rest are meant: those at or below some ``paths`` of keys, all where there is none;
    never what is ``excluded``. Steps into lists are left out of paths; of all keys of a map, the step is
    ``value``.
    """

    paths: tuple[Path, ...] = ()
    excluded: tuple[Path, ...] = ()

    def above(self, *fields: Iterable[str | int]) -> list[Path] | None:
        """Which of the paths lead to a value, or above it; None where it is not meant. ``fields``: its own
        path, and that of its field, which are one but for keys of maps.
        """
        keys = [keys_of(field) for field in fields]

        def among(paths: Sequence[Path]) -> list[Path]:
            return [path for path in paths if any(own[: len(path)] == path for own in keys)]

        asked = among(self.paths)
        return None if among(self.excluded) or (self.paths and not asked) else asked


@dataclass(slots=True)
class Chosen:
    """Of one row's rest, what is selected: JSON values as one ``record``, typed ones each with its
    ``type``, nested as the record has them; ``left`` stays. ``counts``: of values, by the path of their
    field; ``met``: paths that were asked for; ``in_lists``: some are elements of lists.
    """

    record: dict[str, Any] = field(default_factory=dict)
    typed: list[tuple[Struct, Any]] = field(default_factory=list)
    left: list[tuple[str, str]] = field(default_factory=list)
    counts: Counter[Path] = field(default_factory=Counter)
    met: set[Path] = field(default_factory=set)
    in_lists: bool = False


def chosen(rest: Sequence[tuple[str, str]], selection: Selection, fields: Fields) -> Chosen:
    """Takes a row's rest apart. A typed value that cannot be read stays."""
    out, texts = Chosen(), dict(rest)
    places = {path: steps(path) for path, _ in rest if not is_type_key(path)}
    asked = {at: selection.above(at, fields.path(at)) for at in places.values()}
    for path, at in places.items():
        # Of a value that stands there whole, a part may too: two columns of its field lack different parts.
        if any(asked.get(at[:end]) is not None for end in range(1, len(at))):
            continue
        text, spelled, above = texts[path], texts.get(type_key(path)), asked[at]
        taken = above is not None
        if taken:
            value = parse(b'{"v":%b}' % text.encode())["v"]
            if spelled is None:
                out.record = _joined(out.record, _nested(at, value))
            else:
                taken = _add_typed(out, at, value, type_of(spelled))
        if taken:
            out.in_lists = out.in_lists or any(isinstance(step, int) for step in at)
            out.counts[fields.path(at)] += 1
            out.met.update(above or ())
        else:
            out.left += [(path, text)] + [(type_key(path), spelled)] * (spelled is not None)  # type: ignore[list-item]
    return out


def _add_typed(out: Chosen, at: Steps, value: Any, type_: Type) -> bool:
    try:
        nested = _nested(at, typed_value(value, type_))
    except ValueError:
        return False
    for step in reversed(at):
        type_ = List(type_) if isinstance(step, int) else Struct((Field(step, type_),))
    assert isinstance(type_, Struct)
    out.typed.append((type_, nested))
    return True


def _nested(at: Steps, value: Any) -> Any:
    """The value where it stands in its record; the places before it in a list are null."""
    for step in reversed(at):
        value = {step: value} if isinstance(step, str) else [None] * step + [value]
    return value


def _joined(a: Any, b: Any) -> Any:
    """Two parts of one record."""
    if a is None or b is None:
        return b if a is None else a
    if isinstance(a, dict) and isinstance(b, dict):
        return {key: _joined(a.get(key), b.get(key)) for key in {**a, **b}}
    return [_joined(*pair) for pair in zip_longest(a, b)]  # a path is of one value, so both are lists


def _padded(value: Any, held: Sequence[tuple[Type, Any]], mark: str) -> Any:
    """The value with its lists as long as in what columns hold of it, each with its type."""
    if isinstance(value, list):
        lists = [(t.element, stored) for t, stored in held if isinstance(t, List) and stored is not None]
        if not any(isinstance(item, list) for item in value):
            lists = [_within(*one) for one in lists]
        length = max([len(value), *(len(stored) for _, stored in lists)])
        return [
            _padded(value[n] if n < len(value) else None, [(t, s[n]) for t, s in lists if n < len(s)], mark)
            for n in range(length)
        ]
    filled = [(type_, stored) for type_, stored in held if stored is not None]
    if isinstance(value, dict) and filled and all(isinstance(type_, List) for type_, _ in filled):
        return _padded([value], filled, mark)  # a shallow element of a deep list is wrapped where it stands
    if isinstance(value, dict):
        return {key: _padded(item, _held(held, key, mark), mark) for key, item in value.items()}
    return value


def _within(element: Type, stored: Sequence[Any]) -> tuple[Type, Sequence[Any]]:
    """What a column holds of a list, and the type of its elements,
    without the lists that the whole of it was wrapped in.
    """
    while isinstance(element, List) and len(stored) == 1 and stored[0] is not None:
        element, stored = element.element, stored[0]
    return element, stored


def _held(held: Sequence[tuple[Type, Any]], key: str, mark: str) -> list[tuple[Type, Any]]:
    """What columns of records, or maps, hold under a key."""
    out: list[tuple[Type, Any]] = []
    for type_, stored in held:
        if isinstance(type_, Struct) and stored is not None:
            family = next((f for f in families([type_], mark) if f.key == key), None)
            out += [(f.type, stored[f.name]) for f in (family.columns if family else ())]
        elif isinstance(type_, Map) and stored is not None:
            out.append((type_.value, dict(stored).get(key)))
    return out


def parts_of(
    batch: pa.RecordBatch, struct: Struct, rest: str, selection: Selection, mark: str
) -> list[Chosen]:
    """What is selected of each row. ``struct``: the table's columns, ``rest`` the name of that of the rest.

    Lists of which the table holds a part have the length that they have there.
    """
    names, fields = [f.name for f in struct.fields], Fields([struct], mark)
    parts = [
        chosen(entries or [], selection, fields) for entries in batch.column(names.index(rest)).to_pylist()
    ]
    for number, part in enumerate(parts):
        if part.in_lists:
            columns = zip(names, batch.slice(number, 1).columns, strict=True)
            held = [(struct, {column: array[0].as_py() for column, array in columns})]
            part.record = _padded(part.record, held, mark)
            part.typed = [(type_, _padded(value, held, mark)) for type_, value in part.typed]
    return parts


@dataclass(frozen=True, slots=True)
class Promoter:
    """Makes rows with the columns of ``after`` from rows with those of ``before``.

    ``old`` and ``new``: the names of the rest, which stays as it was,
    and of the one without what is selected.
    """

    before: Struct
    same: Converter
    fill: Converter
    selection: Selection
    old: str
    new: str
    mark: str

    @classmethod
    def of(
        cls, plan: Plan, after: Struct, settings: Settings, selection: Selection, old: str, new: str
    ) -> Promoter:
        """``after``: the columns of the plan with their ids, and that of the new rest."""
        before = plan.before.struct
        after = without_defaults(after)
        data = Struct(tuple(f for f in after.fields if f.name not in (old, new)))
        same = Converter(after, by_name(before, after), settings)
        return cls(
            before, same, Converter(data, lean(plan.route), settings), selection, old, new, settings.mark
        )

    def rows(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Raises DataError where a value has its place taken."""
        rows = self.same.of_arrow(batch, self.before, json=False)
        names = rows.schema.names
        columns = dict(zip(names, rows.columns, strict=True))
        parts = parts_of(batch, self.before, self.old, self.selection, self.mark)
        for numbers, values in self._filled(parts):
            for name, array in zip(values.schema.names, values.columns, strict=True):
                if array.null_count < len(array):
                    columns[name] = _put(columns[name], numbers, array, name)
        columns[self.new] = pa.array([part.left or None for part in parts], arrow_type(REST.type)).cast(
            columns[self.new].type
        )
        return pa.RecordBatch.from_arrays([columns[name] for name in names], schema=rows.schema)

    def _filled(self, parts: Sequence[Chosen]) -> Iterator[tuple[list[int], pa.RecordBatch]]:
        """The selected values in the columns of the plan, and which rows they are of."""
        numbers = [number for number, part in enumerate(parts) if part.record]
        if numbers:
            yield numbers, self.fill.of_json([parts[number].record for number in numbers])
        for struct, (numbers, batch) in typed_batches(parts).items():
            yield numbers, self.fill.of_arrow(batch, struct, json=False)


def typed_batches(parts: Iterable[Chosen]) -> Mapping[Struct, tuple[list[int], pa.RecordBatch]]:
    """The typed values by type, each a row of its own, with the numbers of the rows that they are of."""
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


def _put(column: pa.Array, numbers: Sequence[int], values: pa.Array, name: str) -> pa.Array:
    """The column with values for the rows of these numbers; a row may come several times."""
    merged: dict[int, Any] = {}
    stored = column.take(pa.array(numbers, pa.int64())).to_pylist()
    for number, before, value in zip(numbers, stored, values.to_pylist(), strict=True):
        merged[number] = _merged(merged.get(number, before), value, column.type, (name,))
    index = np.arange(len(column))
    index[list(merged)] = np.arange(len(column), len(column) + len(merged))
    both = pa.concat_arrays([column, pa.array(list(merged.values()), column.type)])
    return both.take(pa.array(index))


def _merged(before: Any, value: Any, type_: pa.DataType, path: Path) -> Any:
    """A value of a column, with another one where it is null."""
    if before is None or value is None:
        return value if before is None else before
    if pa.types.is_struct(type_):
        return {f.name: _merged(before[f.name], value[f.name], f.type, (*path, f.name)) for f in type_}
    if pa.types.is_map(type_):
        a, b = dict(before), dict(value)
        at = (*path, "value")
        return [(key, _merged(a.get(key), b.get(key), type_.item_type, at)) for key in {**a, **b}]
    if pa.types.is_list(type_):
        at = (*path, "element")
        return [_merged(*pair, type_.value_type, at) for pair in zip_longest(before, value)]
    if before != value:
        raise DataError(f"{dotted(path)} has {before!r} where the rest has {value!r}: nothing is changed")
    return before
