"""The values that a table lost of its source: the same check for all contestants, which shares no code with the product.

Every scalar of every record of the source is looked for in the table, in any column that holds its field: with its
exact value and its type. What counts as kept:

- a number: a number of the same value, in a column of any numeric type; a double holds the decimal that it prints as;
- a date or a time as ISO text: the same text, or the same moment in a column of dates or timestamps (zones may be lost);
- anything that stands in JSON text, in a JSON or string column, as a part of an object or a list, or in a column of type JSON.

A number or a boolean that is only left as plain text is lost, as nobody can tell it from a text; it is counted apart
(`as_text`). Values are counted by field, not by record or place in a list. Nulls, [] and {} are no values.
"""

from __future__ import annotations

import json
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from functools import lru_cache
from itertools import islice
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from contestants import Table
from tables import Names, Part, data_key, parts

Values = dict[Names, Counter[Any]]
"""By field: pairs of a kind and a value, and how often they are there."""

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MOMENT = re.compile(r"\d{4}-\d\d-\d\d([T ]\d\d:\d\d(:\d\d(\.\d{1,6})?)?(Z|[+-]\d\d:?\d\d)?)?")
_SHOWN = 5  # examples
_CHUNK = 50_000  # lines


@dataclass(slots=True)
class Loss:
    """``values`` of the source; of those ``lost``, and of those ``as_text``; by field, and some examples."""

    values: int = 0
    lost: int = 0
    as_text: int = 0
    fields: dict[str, int] = field(default_factory=dict)
    examples: list[str] = field(default_factory=list)


def in_source(files: Iterable[Path]) -> Values:
    """The values of JSON lines."""
    out: Values = defaultdict(Counter)
    for file in files:
        with file.open() as lines:
            while chunk := list(islice(lines, _CHUNK)):
                found: dict[tuple[Names, type], list[Any]] = defaultdict(list)
                for line in chunk:
                    _gather(json.loads(line, parse_float=_fraction), (), found)
                for (names, _), values in found.items():  # 1, 1.0 and True are equal to Python: so by type
                    for value, count in Counter(values).items():
                        out[names][_scalar(value)] += count
    return out


def _gather(value: Any, names: Names, found: dict[tuple[Names, type], list[Any]]) -> None:
    kind = type(value)
    if kind is dict:
        for name, inner in value.items():
            _gather(inner, (*names, name), found)
    elif kind is list:
        for inner in value:
            _gather(inner, names, found)
    elif value is not None:
        found[names, kind].append(value)


def in_table(table: Table) -> Values:
    """The values of a table. Where several columns of a row hold the same value of a field, it is there once."""
    out: Values = defaultdict(Counter)
    for part in parts(table):
        for batch in part.batches:
            columns = list(zip(batch.schema.names, batch.columns, strict=True))
            _struct(columns, (), part, out)
    return out


def lost(source: Values, table: Values, key: Callable[[Names], Names] = lambda names: names) -> Loss:
    """The values of the source that are not in the table."""
    out, wanted = Loss(), defaultdict(Counter)
    for names, values in source.items():
        wanted[key(names)].update(values)
    for names, values in wanted.items():
        there = table.get(names, Counter())
        out.values += values.total()
        missing = values - there
        if not missing:
            continue
        spare = there - values
        shown = ".".join(names)
        out.lost += missing.total()
        out.fields[shown] = missing.total()
        for (kind, value), count in missing.items():
            left = min(count, max((spare[_text(text)] for text in _written(kind, value)), default=0))
            out.as_text += left
        out.examples += [f"{shown} {value!r} ({count})" for (_, value), count in missing.most_common(1)]
    out.fields = dict(Counter(out.fields).most_common(_SHOWN))
    out.examples = out.examples[:_SHOWN]
    return out


def compare(source: Values, table: Table) -> Loss:
    """Compare the table with its source: its losses."""
    return lost(source, in_table(table), data_key(table))


def added(one: Values, other: Values) -> Values:
    """The values of both."""
    out: Values = defaultdict(Counter)
    for values in (one, other):
        for names, counted in values.items():
            out[names].update(counted)
    return out


# Values, in a form in which equal ones are equal.


def _leaves(value: Any, names: Names, *, stored: bool = False) -> Iterator[tuple[Names, Any]]:
    """The scalars of a value. ``stored``: text that is an object or a list in JSON stands for what is in it, too."""
    match value:
        case None:
            return
        case dict():
            for name, inner in value.items():
                yield from _leaves(inner, (*names, name), stored=stored)
        case list():
            for inner in value:
                yield from _leaves(inner, names, stored=stored)
        case _:
            yield names, _scalar(value)
            if stored and isinstance(value, str) and value[:1] in ("{", "["):
                yield from _leaves(_parsed(value), names)


def _scalar(value: Any) -> tuple[str, Any]:
    match value:
        case str():
            return _text(value)
        case bool():
            return "boolean", value
        case int():
            return "number", value
        case float():
            return "number", _fraction(repr(value))
        case Decimal():
            return "number", _fraction(str(value))
        case datetime():
            return "moment", _microseconds(value)
        case date():
            return "moment", _microseconds(datetime(value.year, value.month, value.day))
        case time():
            return "text", value.isoformat()
        case _:
            return "text", str(value)


@lru_cache(1 << 16)
def _fraction(text: str) -> float | int | Decimal:
    """An integer if it is whole, a float if that prints as the number, else a decimal. Nothing of the number is lost."""
    exact = Decimal(text)
    if not exact.is_finite():
        return float(text)
    if abs(exact.adjusted()) < 400 and exact == exact.to_integral_value():
        return int(exact)
    near = float(text)
    return near if Decimal(repr(near)) == exact else exact


@lru_cache(1 << 16)
def _text(text: str) -> tuple[str, Any]:
    if text[:1].isdigit() and _MOMENT.fullmatch(text):
        try:
            return "moment", _microseconds(datetime.fromisoformat(text))
        except ValueError:
            pass
    return "text", text


def _microseconds(moment: datetime) -> int:
    zoned = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
    return (zoned - _EPOCH) // timedelta(microseconds=1)


def _written(kind: str, value: Any) -> set[str]:
    """The texts in which a number or a boolean may have been written."""
    match kind:
        case "boolean":
            return {str(value), str(value).lower()}
        case "number":
            return {str(value), f"{value}.0", f"{Decimal(str(value)):f}"}
        case _:
            return set()


def _parsed(text: str) -> Any:
    try:
        return json.loads(text, parse_float=_fraction)
    except ValueError:
        return None


# Columns: each value of a column once, with its count; only fields of several columns are read row by row.


def _struct(columns: list[tuple[str, Any]], above: Names, part: Part, out: Values) -> None:
    groups: dict[Names, list[tuple[Names, Any]]] = defaultdict(list)
    for name, column in columns:
        if (key := part.key((*above, name))) is not None:
            groups[key].append(((*above, name), column))
    for members in groups.values():
        if len(members) == 1:
            _column(members[0][1], members[0][0], part, out)
        else:
            _together(members, part, out)


def _column(column: pa.Array, names: Names, part: Part, out: Values) -> None:
    kind = column.type
    if pa.types.is_struct(kind):
        inner = [(kind.field(i).name, child) for i, child in enumerate(column.flatten())]
        _struct(inner, names, part, out)
    elif pa.types.is_list(kind) or pa.types.is_large_list(kind):
        _column(column.flatten(), names, part, out)
    elif pa.types.is_map(kind):
        _together([(names, column)], part, out)
    elif pa.types.is_null(kind):
        return
    else:
        special = kind.extension_name if isinstance(kind, pa.BaseExtensionType) else None
        is_json = special == "arrow.json"
        assert special in (None, "arrow.json", "arrow.bool8"), f"cannot read {kind} of {names}"
        plain = column.storage if special else column
        counted = pc.value_counts(plain.cast(pa.bool_()) if special == "arrow.bool8" else plain)
        for value, count in zip(counted.field(0).to_pylist(), counted.field(1).to_pylist(), strict=True):
            for key, leaf in _keyed(_parsed(value) if is_json and value else value, names, part):
                out[key][leaf] += count


def _together(members: list[tuple[Names, Any]], part: Part, out: Values) -> None:
    """Columns that hold one field: what two of them hold in the same row is one value."""
    for row in zip(*(column.to_pylist(maps_as_pydicts="lossy") for _, column in members), strict=True):
        held = [
            Counter(_keyed(value, names, part))
            for (names, _), value in zip(members, row, strict=True)
            if value is not None
        ]
        union: Counter[Any] = Counter()
        for one in held:
            union |= one
        for (key, leaf), count in union.items():
            out[key][leaf] += count


def _keyed(value: Any, names: Names, part: Part) -> Iterator[tuple[Names, Any]]:
    """The leaves of a value of a column, under the keys that its columns hold."""
    for inner, leaf in _leaves(value, names, stored=True):
        if (key := part.key(inner)) is not None:
            yield key, leaf
