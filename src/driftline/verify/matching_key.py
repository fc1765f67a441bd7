"""Keys that bring a record and its row together, whatever its values were converted to.

A key is made of the *set* of (path, value) of all scalars, without lists and wrapping, each value collapsed
so that all its lawful conversions are one text. It is weak on purpose: `match` compares the pairs. Columns
are described here too, and the rest of a row.
"""

from __future__ import annotations

import base64
import json
import math
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from hashlib import blake2b
from typing import Any, TypeAlias

from driftline.core.planning.own_columns import is_type_key, rest_column, steps, type_key
from driftline.core.schema.naming import MARK, data_key
from driftline.core.schema.schema_json import type_of
from driftline.core.schema.types import STRING, Map, Primitive, Struct, Type, peel
from driftline.verify.moments import Moment, epoch, far_moment, moment
from driftline.verify.values import (
    Cell,
    Single,
    ValueSettings,
    base64_text,
    by_pattern,
    holds,
    is_nothing,
    json_value,
    number,
    single,
    written,
)

Steps = tuple["str | int", ...]
_DECODE = json.JSONDecoder(parse_int=number, parse_float=number).decode


class RowRest:
    """A row's rest. ``used``: the values of it that the record was found to have."""

    def __init__(self, stored: Mapping[str, str] | None, settings: ValueSettings) -> None:
        self._settings = settings
        self._typed: dict[Steps, bool] = {}
        self.values: dict[Steps, Any] = {}
        self.used: set[Steps] = set()
        for path, text in (stored or {}).items():
            if not is_type_key(path):
                spelled = (stored or {}).get(type_key(path))
                location = steps(path)
                self._typed[location] = spelled is not None
                value = _DECODE(text)
                self.values[location] = value if spelled is None else _typed(value, type_of(spelled))

    def records(self) -> Iterator[dict[str, Any]]:
        """Each value in a record of its own, without the lists around it."""
        for location, value in self.values.items():
            nested = value
            for key in reversed([step for step in location if isinstance(step, str)]):
                nested = {key: nested}
            yield nested

    def holds(self, v: Any, location: Steps) -> bool:
        """True if the rest holds the value, whole or in parts."""
        if location in self.values:
            if not self._same(self.values[location], v, self._typed[location]):
                return False
            self.used.add(location)
            return True
        if self._holds_around(v, location):
            return True
        if isinstance(v, list):
            parts: list[tuple[str | int, Any]] = list(enumerate(v))
        elif isinstance(v, dict):
            parts = [(str(key), x) for key, x in v.items()]
        else:
            return False
        # Each part is asked for: what one uses is used, though another one is lost.
        results = [self.holds(x, (*location, step)) for step, x in parts if not self._settings.is_nothing(x)]
        return all(results)

    def _holds_around(self, v: Any, location: Steps) -> bool:
        """True if the rest holds the value as part of one that waits whole."""
        ends = (end for end in range(1, len(location)) if location[:end] in self.values)
        return any(
            self._same(_at(self.values[location[:end]], location[end:]), v, self._typed[location[:end]])
            for end in ends
        )

    def agrees(self, location: Steps, record: Any) -> bool:
        """True if the record has the same value at the path as the rest."""
        return self._same(self.values[location], _at(record, location), self._typed[location])

    def _same(self, stored: Any, v: Any, typed: bool) -> bool:
        is_nothing, empty_names = self._settings.is_nothing, self._settings.empty_names
        if stored is None or is_nothing(v):
            return (stored is None and v is None) or (is_nothing(v) and is_nothing(stored))
        if isinstance(v, dict):
            keys = {str(key): x for key, x in v.items()}
            return isinstance(stored, dict) and all(
                self._same(stored.get(key), keys.get(key), typed)
                for key in {*keys, *stored}
                if empty_names or key != ""
            )
        if isinstance(v, list):
            same = isinstance(stored, list) and len(stored) == len(v)
            return same and all(self._same(x, y, typed) for x, y in zip(stored, v, strict=True))
        if isinstance(v, Cell):
            return v == stored if isinstance(stored, str) else bool(written(v, self._settings) == stored)
        if isinstance(v, bytes) and isinstance(stored, str):
            return base64_text(v) == stored
        if isinstance(stored, str):
            return (typed or _is_text(v)) and holds(STRING, stored, v, self._settings)
        if isinstance(stored, bool) or isinstance(v, bool):
            return stored is v
        return bool(stored == v) or (stored != stored and v != v)


def _at(value: Any, steps_: Steps) -> Any:
    """The value at a path; None if there is none."""
    for step in steps_:
        if isinstance(step, int):
            value = value[step] if isinstance(value, list) and step < len(value) else None
        elif isinstance(value, dict):
            value = next((x for key, x in value.items() if str(key) == step), None)
        else:
            value = None
    return value


def _is_text(v: Any) -> bool:
    """True if the rest has the value as text.

    Moments of typed sources are texts there, and numbers that JSON cannot express.
    """
    return isinstance(v, str | Moment) or (isinstance(v, float) and not math.isfinite(v))


def _typed(value: Any, type_: Type) -> Any:
    """A value of the rest as one of its type; dates and the like stay text."""
    dim, base = peel(type_)
    if value is None:
        return None
    if dim:
        return [_typed(item, type_.element) for item in value]  # type: ignore[union-attr]
    match base:
        case Struct(fields):
            types = {f.name: f.type for f in fields}
            return {key: _typed(item, types[key]) for key, item in value.items()}
        case Map():
            return {key: _typed(item, base.value) for key, item in value.items()}
        case Primitive("float"):
            return Single(single(float(value)))
        case Primitive("double"):
            return float(value)
        case Primitive("binary" | "fixed"):
            return base64.b64decode(value)
    return value


# By column id.
Defaults: TypeAlias = "Mapping[int, Iterable[Any]]"


@dataclass(slots=True)
class TableColumn:
    """A column, a list's elements or a map's values: ``dim`` lists around a primitive, a record or a map.

    Attributes:
        defaults: what a record without a value may have got, now or earlier.
    """

    name: str
    dim: int
    type: Primitive | None = None
    record: TableStruct | None = None
    value: TableColumn | None = None
    defaults: tuple[Any, ...] = ()

    def has_empty_key(self, v: Any) -> bool:
        """True if a value under the empty key stands in one of its maps, where it is a key like any other."""
        if isinstance(v, list):
            return any(self.has_empty_key(x) for x in v)
        if not isinstance(v, dict):
            return False
        if self.record is not None:
            return any(column.has_empty_key(v.get(key)) for key, column in self.record.columns.values())
        if self.value is None:
            return False
        return not is_nothing(v.get("")) or any(self.value.has_empty_key(x) for x in v.values())

    @property
    def variant(self) -> bool:
        """True if the column is a VARIANT, or JSON: it holds a value whole."""
        return self.type is not None and self.type.name in ("variant", "json")

    @classmethod
    def of(cls, name: str, type_: Type, prefix: str = MARK, defaults: Defaults | None = None) -> TableColumn:
        """The column of this type.

        Args:
            prefix: of marks.
            defaults: of nested fields, by id.
        """
        dim, base = peel(type_)
        match base:
            case Struct():
                return cls(name, dim, record=TableStruct.of(base, prefix, defaults))
            case Map():
                return cls(name, dim, value=cls.of(name, base.value, prefix, defaults))
            case Primitive():
                return cls(name, dim, type=base)
        raise AssertionError(base)


@dataclass(slots=True)
class TableStruct:
    """A struct's columns by name, each with the exact key that it holds: its mark's, else its name.

    Attributes:
        lists: the names of those that hold lists, by key.
        rest: the name of the column for what has no other.
    """

    columns: dict[str, tuple[str, TableColumn]]
    lists: dict[str, list[str]] = field(default_factory=dict)
    rest: str | None = None

    @classmethod
    def of(cls, struct: Struct, prefix: str = MARK, defaults: Defaults | None = None) -> TableStruct:
        """The columns of a struct.

        Args:
            prefix: of marks.
            defaults: of all fields, by id.
        """
        rest_field = rest_column(struct)
        out = cls({}, rest=rest_field.name if rest_field is not None else None)
        for f in struct.fields:
            if f.name == out.rest:
                continue
            key = data_key(f, prefix)
            column = TableColumn.of(f.name, f.type, prefix, defaults)
            texts = (defaults or {}).get(f.id, ())
            is_json = column.type is not None and column.type.name == "json"
            column.defaults = tuple(json_value(d) if is_json and isinstance(d, str) else d for d in texts)
            out.columns[f.name] = (key, column)
            if column.dim:
                out.lists.setdefault(key, []).append(f.name)
        return out


_NUMBERS = {"int", "long", "float", "double", "decimal"}
_WHOLE = _NUMBERS | {"string"}  # what holds a long next to the instant that it may be
_TEXTS = {"string", "binary", "fixed"}
_BYTES_OR_BASE64 = {"string", "binary"}  # bytes that waited in quarantine are texts beside the others
_INSTANTS = {"timestamp", "timestamp_ntz"}
_HUGE = 400  # digits


@dataclass(slots=True)
class Slot:
    """All columns of one key path together.

    Attributes:
        coarse: numbers meet as 0 exact ones, 1 doubles, 2 floats.
        timeless: numbers, as such or as text, and instants, which seed rule 10 mixes, cannot be told apart by
            position here, so they all meet.
        default: a record without a value may have got one, so that it says nothing here.
    """

    kinds: set[str] = field(default_factory=set)
    many: bool = False
    fields: dict[str, Slot] = field(default_factory=dict)
    values: Slot | None = None
    coarse: int = 0
    timeless: bool = False
    default: bool = False

    @classmethod
    def of(cls, struct: Struct, record: TableStruct, floats: int = 0) -> Slot:
        """The slot of a struct.

        Args:
            floats: 2 for a source with typed floats, 1 with typed doubles, 0 for text.
        """
        out = cls()
        out._add(struct, record, False)
        out._settle(floats)
        return out

    def child(self, key: str) -> Slot | None:
        """The slot of a key in records or maps; None if there is none."""
        return self.fields.get(key) or self.values

    def _add(self, struct: Struct, record: TableStruct, many: bool) -> None:
        for f in struct.fields:
            if f.name == record.rest:
                continue
            key, column = record.columns[f.name]
            slot = self.fields.setdefault(key, Slot())
            slot.default = slot.default or bool(column.defaults)
            slot._add_type(f.type, column, many)

    def _add_type(self, type_: Type, column: TableColumn, many: bool) -> None:
        dim, base = peel(type_)
        self.many = self.many or many or dim > 0
        match base:
            case Primitive(name):
                self.kinds.add(name)
            case Struct() if column.record is not None:
                self._add(base, column.record, False)
            case Map() if column.value is not None:
                self.values = self.values or Slot()
                # Sibling maps hold one key's value, as siblings do, but no column has siblings.
                self.values._add_type(base.value, column.value, True)

    def _merge(self, other: Slot) -> None:
        self.kinds |= other.kinds
        self.many = self.many or other.many
        self.default = self.default or other.default
        for key, slot in other.fields.items():
            self.fields.setdefault(key, Slot())._merge(slot)
        if other.values is not None:
            self.values = self.values or Slot()
            self.values._merge(other.values)

    def _settle(self, floats: int) -> None:
        if self.values is not None:
            for slot in self.fields.values():
                # A key may be in the record or in the map next to it, so it meets under what either may hold.
                slot._merge(self.values)
            self.values._settle(floats)
        for slot in self.fields.values():
            slot._settle(floats)
        doubles = "double" in self.kinds or bool(floats and "string" in self.kinds)
        self.coarse = 2 if "float" in self.kinds or (doubles and floats == 2) else int(doubles)
        self.timeless = self.many and bool(self.kinds & _WHOLE) and bool(self.kinds & _INSTANTS)


@dataclass(frozen=True, slots=True)
class Meeting:
    """The maker of keys, for one table and one source."""

    record: TableStruct
    slot: Slot
    settings: ValueSettings

    def of_record(self, v: Mapping[str, Any]) -> set[str]:
        """The collapsed scalars of a source's record, each with its path."""
        out: set[str] = set()
        self._value(self.slot, v, "", out)
        return out

    def of_row(self, row: Mapping[str, Any]) -> set[str]:
        """The collapsed scalars of a table's row."""
        out: set[str] = set()
        self._row(self.record, self.slot, row, "", out)
        if self.record.rest is not None and row.get(self.record.rest):
            for waiting in RowRest(row[self.record.rest], self.settings).records():
                self._value(self.slot, waiting, "", out)
        return out

    def _value(self, slot: Slot | None, v: Any, path: str, out: set[str]) -> None:
        if isinstance(v, dict):
            for key, x in v.items():
                if x is not None and (key != "" or self.settings.empty_names):
                    child_path = f"{path}.{key}" if path else str(key)
                    child = slot and slot.child(str(key))
                    # A row has the default where the record has nothing, so such a field cannot tell which
                    # rows to compare.
                    if not (child and child.default):
                        self._value(child, x, child_path, out)
        elif isinstance(v, list):
            for x in v:
                if x is not None:
                    self._value(slot, x, path, out)
        elif v is not None and v != "":
            coarse, timeless = (slot.coarse, slot.timeless) if slot else (0, False)
            if slot and slot.kinds >= _BYTES_OR_BASE64 and isinstance(v, bytes | str):
                out.add(f"{path}=*")
                return
            if isinstance(v, bytes) and not (slot and slot.kinds & _TEXTS):
                v = base64_text(v)  # no column takes them as they are
            out.add(
                f"{path}={_collapsed(v, self.settings.at(path) if self.settings.of_paths else self.settings, coarse, timeless)}"
            )

    def _row(self, record: TableStruct, slot: Slot, row: Mapping[str, Any], path: str, out: set[str]) -> None:
        integer_keys = {record.columns[name][0] for name in row if _is_integer(record, name)}
        for name, stored in row.items():
            if name not in record.columns:
                continue
            key, column = record.columns[name]
            field_path = f"{path}.{key}" if path else key
            # A long next to an instant is the value, the instant its conversion (seed rule 10), or the other
            # way round, exactly: the number says it all. So does a text: it is the long's, or the instant's.
            echo = key in integer_keys and column.type is not None and column.type.name in _INSTANTS
            child = slot.child(key)
            counts = child is not None and not child.default
            if child is not None and counts and not (echo and not child.many):
                self._column(column, child, stored, field_path, out)

    def _column(self, column: TableColumn, slot: Slot, stored: Any, path: str, out: set[str]) -> None:
        if stored is None:
            return
        if isinstance(stored, list):
            for x in stored:
                self._column(column, slot, x, path, out)
        elif column.record is not None:
            self._row(column.record, slot, stored, path, out)
        elif column.value is not None:
            for key, x in stored.items():
                child = slot.child(str(key))
                child_path = f"{path}.{key}"
                if child is not None and (key != "" or self.settings.empty_names):
                    self._column(column.value, child, x, child_path, out)
        else:
            is_json = column.type is not None and column.type.name == "json"
            self._value(slot, json_value(stored) if is_json else stored, path, out)


def key(scalars: Iterable[str]) -> int:
    """One number for the set."""
    # 8 bytes are enough: a collision only makes a group larger, as `match` compares its records and rows.
    text = "\n".join(sorted(scalars))
    return int.from_bytes(
        blake2b(text.encode(errors="surrogateescape"), digest_size=8).digest(), "big", signed=True
    )


def loosely(v: Any) -> list[str]:
    """All scalars of a record, collapsed, without their paths.

    A quarantined copy in another form is known by them. It has bytes as base64.
    """
    if isinstance(v, bytes):
        v = base64_text(v)
    if isinstance(v, dict):
        v = [x for k, x in v.items() if k != ""]
    if isinstance(v, list):
        return sorted(text for x in v for text in loosely(x))
    return [] if v is None or v == "" else [_collapsed(v, ValueSettings(), 2)]


def exactly(v: Any) -> str:
    """A record as text, one text for one value: key order and the spelling of numbers do not count."""
    match v:
        case dict():
            return "{" + ",".join(f"{json.dumps(k)}:{exactly(v[k])}" for k in sorted(v)) + "}"
        case list():
            return "[" + ",".join(map(exactly, v)) + "]"
        case str() | bool() | None:
            return json.dumps(v)
        case _:
            return _number(v, 0)


def _collapsed(v: Any, settings: ValueSettings, coarse: int, timeless: bool = False) -> str:
    """A scalar as one text, the same for all that it converts to."""
    if isinstance(v, bytes):
        try:
            v = v.decode()
        except UnicodeDecodeError:
            return str(v.hex())
    if isinstance(v, str):
        # Readers of CSV differ in which they take for a part of the text
        if not _QUOTES.isdisjoint(v):
            v = v.translate(_WITHOUT_QUOTES)
        if settings.mixed_signs and _SIGNED.fullmatch(v) and by_pattern(v, settings) is None:
            return "*" if timeless else _digits(v)
        meant = _meant(str(v), settings)
        if meant is None:
            return f"'{v}"
        v = meant
    elif isinstance(v, Moment):
        v = epoch(v, settings.unit)
    elif settings.written and (m := by_pattern(str(v), settings)) is not None:  # 20260301
        v = epoch(m, settings.unit)
    if timeless:
        return "*"
    key = _number(v, coarse)
    # `1.234` in a text may be either number where points stand between thousands.
    return _digits(key.partition("e")[0]) if settings.thousands or settings.mixed_signs else key


def _digits(text: str) -> str:
    return "".join(filter(str.isdigit, text)).strip("0")


def _is_integer(record: TableStruct, name: str) -> bool:
    column = record.columns[name][1] if name in record.columns else None
    return column is not None and not column.dim and column.type is not None and column.type.name in _WHOLE


_SIGNED = re.compile(r"-?[0-9]+(?:[^0-9A-Za-z+-][0-9]+)*")  # any mark may stand between thousands
_QUOTES = frozenset("\"'")
_WITHOUT_QUOTES = str.maketrans("", "", "\"'")
_WORDS = {"true": 1, "false": 0, "NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}


def _meant(text: str, settings: ValueSettings) -> float | Decimal | None:
    """The number that a text may have been, or may become: a number's, a date's epoch, true's 1."""
    if (of_pattern := by_pattern(text, settings)) is not None:
        return epoch(of_pattern, settings.unit)
    first = text[:1]
    if first == "-" or "0" <= first <= "9":
        n = number(text)
        n = written(text, settings) if n is None and (settings.comma or settings.thousands) else n
        if n is not None:
            return n
        m = moment(text, settings.offsets) or far_moment(text)
        if m is not None:
            return epoch(m, settings.unit)
    return _WORDS.get(text, _WORDS.get(text.lower()))


def _number(v: float | Decimal, coarse: int) -> str:
    if coarse:
        try:
            x = float(v) + 0.0  # -0.0 is 0.0
        except OverflowError:
            x = math.copysign(math.inf, v)
        return repr(single(x) if coarse == 2 else x)
    if isinstance(v, int):
        return str(int(v))
    if isinstance(v, float):
        if not math.isfinite(v):
            return repr(float(v))
        v = Decimal(repr(float(v)))
    if not v:
        return "0"
    sign, digits, _ = v.as_tuple()
    if abs(v.adjusted()) < _HUGE and v == v.to_integral_value():
        return str(int(v))
    text = "".join(map(str, digits)).strip("0")
    return f"{'-' * sign}{text}e{v.adjusted()}"
