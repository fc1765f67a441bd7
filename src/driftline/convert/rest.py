"""Collects the values that no column takes, as JSON entries of the rest."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import msgspec
import numpy as np
import pyarrow as pa

from driftline.convert.declared import entries_of
from driftline.convert.kernels import convert, converts
from driftline.convert.leaves import Maps, Numbers, NumberText, Shredded, Tree, Values, by_list, merged
from driftline.convert.types import arrow_type
from driftline.core.planning.own_columns import REST, element, step, type_key
from driftline.core.schema.schema_json import type_text
from driftline.core.schema.types import STRING, List, Map, Primitive, Struct, Type
from driftline.core.settings.fields import FieldSettings
from driftline.core.values import Number

# Up to one of these, a path is that of a value around; within a quoted key, none
_ENDS = re.compile(r"[.\[]")


class Spot(NamedTuple):
    """The place of a value: its ``row``, and its ``path`` in the record.

    ``list_text``: the text of the list of mixed depth around the value. The list waits in place of the value,
    because a part alone would not show its depth.
    """

    row: int
    path: str
    list_text: str | None = None

    def part(self, path: str) -> Spot:
        """Return the place of the value's part at this path."""
        return self if self.list_text is not None else self._replace(path=path)


@dataclass(slots=True)
class RestEntries:
    """The rest of each row: texts by path, and the types of typed values."""

    rows: list[dict[str, str]]

    def add(self, row: int, path: str, text: str, type_: Type | None) -> None:
        self.rows[row][path] = text
        # A key of its own: quoted keys with blanks never look like it.
        if type_ is not None:
            self.rows[row][type_key(path)] = type_text(type_)

    def array(self) -> pa.Array:
        """Return a column of the entries; null for a row without any."""
        items = [
            [(path, text) for path, text in row.items() if not _is_part(path, row)] or None
            for row in self.rows
        ]
        return pa.array(items, arrow_type(REST.type))


def _is_part(path: str, row: Mapping[str, str]) -> bool:
    """True if a value that waits whole contains this one: columns of its field may lack different parts."""
    return len(row) > 1 and any(path[: end.start()] in row for end in _ENDS.finditer(path))


@dataclass(frozen=True, slots=True)
class Collector:
    """Collects entries of the rest for the records being converted.

    Attributes:
        spot: the place of each record, by number.
        field_settings: the contract of their fields.
    """

    entries: RestEntries
    spot: Callable[[int], Spot]
    field_settings: FieldSettings

    @classmethod
    def of(cls, count: int, field_settings: FieldSettings) -> Collector:
        """Create a collector for the records of ``count`` rows."""
        return cls(RestEntries([{} for _ in range(count)]), lambda number: Spot(number, ""), field_settings)

    def add(self, text: NumberText) -> None:
        """Add an entry; the records here are the values of a field."""
        spot = self.spot(text.number)
        if spot.list_text is not None:
            self.entries.add(spot.row, spot.path, spot.list_text, None)
        else:
            self.entries.add(spot.row, element(spot.path, text.places), text.text, text.type)

    def add_scalars(self, key: str, texts: Iterable[str | None], type_: Type) -> None:
        """Add the typed scalars of a field, one of each row or None; the records here are the rows."""
        path = step("", key)
        path_of_type, name = type_key(path), type_text(type_)
        for row, text in zip(self.entries.rows, texts, strict=True):
            if text is not None:
                row[path], row[path_of_type] = text, name

    def rows(self, numbers: Numbers) -> Collector:
        """Return a collector for some of the records, by number."""
        return replace(self, spot=lambda number: self.spot(int(numbers[number])))

    def field(self, key: str) -> Collector:
        """Return a collector for the values of a field, one in each record."""

        def spot(number: int) -> Spot:
            parent = self.spot(number)
            return parent.part(step(parent.path, key))

        return replace(self, spot=spot, field_settings=self.field_settings.of(key))

    def leaves(self, values: Values) -> Collector:
        """Return a collector for the leaves of values."""
        places: list[tuple[int, tuple[int, ...]]] = []
        list_texts: dict[int, str] = {}

        # Asked for one lost value at a time, and the places of all leaves only at the first: most batches
        # lose none, and then nothing of this is computed.
        def spot(number: int) -> Spot:
            if not places:
                places.extend(values.places())
                if mixed := of_mixed_depth(places):
                    texts = values.texts(None, self.field_settings)
                    list_texts.update((text.number, text.text) for text in texts if text.number in mixed)
            value, within = places[number]
            parent = self.spot(value)
            if parent.list_text is None and value in list_texts:
                return parent._replace(list_text=list_texts[value])
            return parent.part(element(parent.path, within))

        return replace(self, spot=spot)

    def records(self, numbers: Numbers, dim: int) -> Collector:
        """Return a collector for records that are leaves of these numbers, inside ``dim`` lists."""
        return replace(self.rows(numbers), field_settings=self.field_settings.inside(dim))

    def maps(self, maps: Maps, dim: int) -> Collector:
        """Return a collector for the values of maps that are leaves inside ``dim`` lists."""
        owners: list[int] = []

        def spot(number: int) -> Spot:
            if not owners:
                counts = np.diff(maps.offsets.to_numpy(zero_copy_only=False))
                owners.extend(np.repeat(np.asarray(maps.numbers, np.int64), counts).tolist())
            parent = self.spot(owners[number])
            return parent.part(step(parent.path, str(maps.keys[number].as_py())))

        return replace(self, spot=spot, field_settings=self.field_settings.inside(dim).of("value"))


def json_text(value: object, field_settings: FieldSettings) -> str:
    """Write a parsed value as exact JSON text, without what the field settings exclude.

    >>> json_text({"a": [Number("1.50"), None]}, FieldSettings())
    '{"a":[1.50,null]}'
    """
    return msgspec.json.encode(_raw(value, field_settings)).decode()


def _raw(value: object, field_settings: FieldSettings) -> Any:
    if type(value) is Number:
        # A number keeps its own digits; msgspec would print a float its own way.
        return msgspec.Raw(value.encode())
    if type(value) is list:
        return [_raw(item, field_settings.inside(1)) for item in value]
    if type(value) is dict:
        return {
            key: _raw(item, field_settings.of(key))
            for key, item in value.items()
            if not field_settings.of(key).excluded
        }
    return value


def of_mixed_depth(places: Iterable[tuple[int, tuple[int, ...]]]) -> set[int]:
    """Find the values with leaves inside different numbers of lists.

    Args:
        places: by leaf.

    >>> of_mixed_depth([(0, (0,)), (0, (1,)), (1, (0,)), (1, (1, 0))])
    {1}
    """
    depths: dict[int, int] = {}
    return {value for value, within in places if depths.setdefault(value, len(within)) != len(within)}


def lost_by_value(
    lost: Iterable[int], places: Sequence[tuple[int, tuple[int, ...]]], leaves: Iterable[int]
) -> Iterator[tuple[int, tuple[int, ...]]]:
    """Yield the values that have lost leaves, each with the index path of the list that waits whole.

    That is the outermost list of which no leaf is stored. A value of mixed depth waits whole.

    >>> [*lost_by_value([1, 2], [(0, (0, 0)), (0, (1, 0)), (0, (1, 1))], range(3))]
    [(0, (1,))]
    """
    lost, mixed = list(lost), of_mixed_depth(places)
    around: dict[int, set[tuple[int, ...]]] = {}
    for number in set(leaves).difference(lost):
        value, within = places[number]
        around.setdefault(value, set()).update(within[:end] for end in range(len(within) + 1))
    waiting: dict[tuple[int, tuple[int, ...]], None] = {}
    for number in lost:
        value, within = places[number]
        # Whole, so that its length survives. Of a list that is partly held, each lost element waits by its
        # index.
        stored = () if value in mixed else around.get(value, ())
        ends = (within[:end] for end in range(len(within) + 1))
        waiting[value, next(prefix for prefix in ends if prefix not in stored)] = None
    return iter(waiting)


def element_at(value: Any, places: Iterable[int]) -> Any:
    """Return the element at these places of nested lists; None if a list on the way is null."""
    for place in places:
        value = None if value is None else value[place]
    return value


def places_of(shredded: Shredded) -> Sequence[tuple[int, tuple[int, ...]]]:
    """Return, for each leaf, the index of the value around it, and its places in that value's lists."""
    if shredded.flat:
        return [(number, ()) for number, tree in enumerate(shredded.trees) if tree is not None]
    out: dict[int, tuple[int, tuple[int, ...]]] = {}

    def walk(tree: Tree, owner: int, within: tuple[int, ...]) -> None:
        if isinstance(tree, list):
            for place, item in enumerate(tree):
                walk(item, owner, (*within, place))
        elif tree is not None:
            out[tree] = owner, within

    for owner, tree in enumerate(shredded.trees):
        walk(tree, owner, ())
    return [out[number] for number in sorted(out)]


_NUMBERS = ("int", "long", "float", "double", "decimal")
_WHOLE = re.compile(r"-?[0-9]+")
_NO_NUMBERS = ("NaN", "Infinity", "-Infinity")  # in JSON


def row_texts(batch: pa.RecordBatch, struct: Struct, *, points: bool = False) -> list[bytes]:
    """Write each row as a JSON object.

    Args:
        batch: the rows.
        struct: the types of the columns, in their order, by key.
        points: numbers of fractional types get a decimal point, because their type is read from the text.
    """
    return list(map(msgspec.json.encode, _records(batch.columns, struct, batch.num_rows, points)))


def _records(arrays: Sequence[pa.Array], struct: Struct, count: int, points: bool) -> list[dict[str, Any]]:
    records: list[dict[str, Any]] = [{} for _ in range(count)]
    for f, array in zip(struct.fields, arrays, strict=True):
        for record, value in zip(records, json_values(array, f.type, points), strict=True):
            if value is not None:
                # Of a key that occurs several times, each record has one
                # value; of its lists, one in each place.
                record[f.name] = merged(record[f.name], value) if f.name in record else value
    return records


def json_values(array: pa.Array, type_: Type, points: bool = False) -> list[Any]:
    """Convert each value to the form that msgspec writes; None for null."""
    match type_:
        case Struct(fields):
            children = [array.field(i) for i in range(len(fields))]
            records = _records(children, type_, len(array), points)
            return [r if v else None for r, v in zip(records, array.is_valid().to_pylist(), strict=True)]
        case List(element):
            return by_list(json_values(array.flatten(), element, points), array)
        case Map(key, value):
            entries = entries_of(array)
            flat = entries.flatten()
            keys = [_key(k) for k in json_values(flat.field(0), key)]
            pairs = by_list(list(zip(keys, json_values(flat.field(1), value, points), strict=True)), entries)
            return [None if items is None else _object(items) for items in pairs]
        case Primitive():
            return _leaves(array, type_, points)


def _key(value: Any) -> str | msgspec.Raw:
    if isinstance(value, msgspec.Raw):
        raw = bytes(value)
        return value if raw.startswith(b'"') else raw.decode()
    return str(value)


def _object(pairs: Sequence[tuple[str | msgspec.Raw, Any]]) -> Any:
    """Build an object; as text if a dict cannot hold its keys: bytes, or a key twice."""
    encode = msgspec.json.encode
    if any(isinstance(key, msgspec.Raw) for key, _ in pairs) or len(dict(pairs)) < len(pairs):
        return msgspec.Raw(b"{%b}" % b",".join(b"%b:%b" % (encode(k), encode(v)) for k, v in pairs))
    return dict(pairs)


def _leaves(array: pa.Array, type_: Primitive, points: bool) -> list[Any]:
    if type_.name == "boolean":
        return array.to_pylist()  # type: ignore[no-any-return]
    if type_.name in _NUMBERS:
        # By the table's own texts of numbers, so a value in the rest reads as it would in a text column.
        texts = convert(array, type_, STRING).to_pylist()
        if points and (type_.name in ("float", "double") or any(type_.args[1:])):
            texts = [f"{t}.0" if t is not None and _WHOLE.fullmatch(t) else t for t in texts]
        # JSON has no such numbers, so they become texts.
        return [t if t is None or t in _NO_NUMBERS else msgspec.Raw(t.encode()) for t in texts]
    if type_ == STRING or (converts(type_, STRING) and type_.name != "binary"):
        texts = convert(array, type_, STRING).cast(pa.binary()).to_pylist()
        return [None if t is None else _text(t) for t in texts]
    if type_.name in ("binary", "fixed"):
        return [None if v is None else base64.b64encode(v).decode() for v in array.to_pylist()]
    return [None if v is None else str(v) for v in array.to_pylist()]


def scalar_texts(array: pa.Array, type_: Primitive) -> list[str | None]:
    """Write each value as exact JSON text; None for null.

    >>> from driftline.core.schema.types import DOUBLE
    >>> scalar_texts(pa.array([1.5, None, float("nan")]), DOUBLE)
    ['1.5', None, '"NaN"']
    """
    if type_.name in _NUMBERS:
        texts = convert(array, type_, STRING).to_pylist()
        return [f'"{text}"' if text in _NO_NUMBERS else text for text in texts]
    values, no_settings = json_values(array, type_), FieldSettings()
    return [None if value is None else json_text(value, no_settings) for value in values]


def _text(raw: bytes) -> str | msgspec.Raw:
    try:
        return raw.decode()
    except UnicodeDecodeError:
        # The bytes stand as they are, so `raw_bytes` has them exactly. Base64 would look like
        # a text that spells it.
        text = json.dumps(raw.decode(errors="surrogateescape"), ensure_ascii=False)
        return msgspec.Raw(text.encode(errors="surrogateescape"))
