"""Changes by key as plain Python reads them: the row that a record is about, its order, and if it deletes.

A record is judged as it came, by the kinds of its values: a number is its exact value, whatever its type or
spelling, and never a text of the same digits (section 11 of the evolution rules).
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime
from decimal import Decimal
from typing import Any, TypeAlias

from driftline.core.schema.types import Path
from driftline.core.settings.condition import (
    MESSAGE_KEY,
    Condition,
    IsNull,
    Junction,
    Negation,
    OneOf,
    paths_of,
)
from driftline.core.settings.fields import spelled_path
from driftline.core.settings.row_key import RowKey
from driftline.verify.holds import moment_of
from driftline.verify.moments import FarMoment, micros
from driftline.verify.source_values import Cell, ValueSettings, typed
from driftline.verify.table_shape import TableColumn, TableStruct

NUMBER, TEXT, MOMENT = "number", "text", "moment"
_NUMBERS = ("int", "long", "decimal", "double", "float")
_MOMENTS = ("date", "timestamp", "timestamp_ntz")
_KINDS = {"boolean": "boolean", "binary": "binary", "fixed": "binary", **dict.fromkeys(_NUMBERS, NUMBER)}
_PLAIN_BITS = 1000  # of whole numbers that are texts without an exponent
_EXACT_FIRST = ("boolean", *_NUMBERS)  # a text column comes last: it may hold what another one converts to

_HIDDEN = object()  # in place of a value that is looked for where no fields are

Order: TypeAlias = "tuple[tuple[str, Any], ...]"


class NoChange(Exception):
    """A record without a key or an order, which must be in quarantine; the message says why."""


@dataclass(frozen=True, slots=True)
class RowField:
    """A field of the data, and the table's columns of its values, each by the names on its way."""

    path: Path
    columns: Sequence[tuple[Path, str]]

    @classmethod
    def of(cls, record: TableStruct, path: Path) -> RowField:
        """The field at a path of the data."""
        named = [(names, column.type.name) for names, column in _columns(record, path) if column.type]
        return cls(path, sorted(named, key=lambda x: _rank(x[1])))

    @property
    def is_text(self) -> bool:
        """True if the table has all values of the field as text, whatever they look like."""
        return bool(self.columns) and all(type_ == "string" for _, type_ in self.columns)

    def of_record(self, record: Mapping[str, Any], settings: ValueSettings) -> Any:
        """The value of a source's record; a cell of CSV is the value that it is written as.

        `_HIDDEN` where a list, a text or the like stands on the way to it.
        """
        value: Any = record
        for step in self.path:
            if not isinstance(value, dict):
                return None if value is None else _HIDDEN
            value = value.get(step)
        if not isinstance(value, Cell):
            return value
        return (str(value) if self.is_text else typed(value, settings)) if value else None

    def of_row(self, row: Mapping[str, Any]) -> Any:
        """The value of a table's row: that of its most exact column."""
        for names, _ in self.columns:
            value: Any = row
            for name in names:
                value = value.get(name) if value is not None else None
            if value is not None:
                return value
        return None


def _columns(record: TableStruct, path: Path, above: Path = ()) -> Iterator[tuple[Path, TableColumn]]:
    for name, (key, column) in record.columns.items():
        if key != path[0] or column.dim:
            continue
        if len(path) == 1:
            yield (*above, name), column
        elif column.record is not None:
            yield from _columns(column.record, path[1:], (*above, name))


def _rank(type_: str) -> int:
    if type_ in _EXACT_FIRST:
        return _EXACT_FIRST.index(type_)
    return len(_EXACT_FIRST) + (type_ == "string")


@dataclass(frozen=True, slots=True)
class ChangeReader:
    """Reads keys, orders and deletes by the settings of a table.

    ``kinds``: of each field of the order, None where the table has no column of it.
    """

    row_key: RowKey
    settings: ValueSettings
    key: Sequence[RowField]
    order: Sequence[RowField]
    kinds: Sequence[str | None]
    conditions: Mapping[Path, RowField]

    @classmethod
    def of(cls, row_key: RowKey, record: TableStruct, settings: ValueSettings) -> ChangeReader:
        """The reader for a table with these columns."""
        key, order = (
            [RowField.of(record, path) for path in paths] for paths in (row_key.key, row_key.order_by)
        )
        kinds = [_order_kind(field.columns[0][1]) if field.columns else None for field in order]
        paths = set() if row_key.delete_when is None else set(paths_of(row_key.delete_when))
        conditions = {path: RowField.of(record, path) for path in paths}
        return cls(row_key, settings, key, order, kinds, conditions)

    def key_of_record(self, record: Mapping[str, Any]) -> str:
        """The key of a source's record, as one text. Raises NoChange."""
        parts = [identity(field.of_record(record, self.settings)) for field in self.key]
        for field, part in zip(self.key, parts, strict=True):
            if part is None:
                raise NoChange(f"no key in {spelled_path(field.path)}")
        return json.dumps(parts)

    def key_of_row(self, row: Mapping[str, Any]) -> str:
        """The key of a table's row, as one text."""
        return json.dumps([identity(field.of_row(row)) for field in self.key])

    def order_of(self, record: Mapping[str, Any]) -> Order:
        """The order of a change, compared as tuples are. Raises NoChange."""
        parts = []
        for field, kind in zip(self.order, self.kinds, strict=True):
            part = _ordered(field.of_record(record, self.settings), kind, self.settings)
            if part is None:
                raise NoChange(
                    f"no order in {spelled_path(field.path)}" + (f" that is a {kind}" if kind else "")
                )
            parts.append(part)
        return tuple(parts)

    def deletes(self, record: Mapping[str, Any]) -> bool:
        """True if the record deletes its row. What SQL would not know is not true."""
        condition = self.row_key.delete_when
        return condition is not None and self._holds(condition, record) is True

    def _holds(self, condition: Condition, record: Mapping[str, Any]) -> bool | None:
        match condition:
            case IsNull(("value",)) if self.row_key.deletes_by_null:  # of a message, whose key is a field
                return all(
                    value is None or (value == "" and isinstance(value, Cell))
                    for field, value in record.items()
                    if field != MESSAGE_KEY
                )
            case IsNull(path):
                value = self._value(path, record)
                return None if value is _HIDDEN else value is None
            case OneOf(path, values):
                value = self._value(path, record)
                if value is None or value is _HIDDEN:
                    return None
                return identity(value) in map(identity, values)
            case Negation(part):
                held = self._holds(part, record)
                return None if held is None else not held
            case Junction(parts, any_of):
                return _joined([self._holds(part, record) for part in parts], any_of)
        raise AssertionError(condition)

    def _value(self, path: Path, record: Mapping[str, Any]) -> Any:
        return self.conditions[path].of_record(record, self.settings)


def _joined(held: Iterable[bool | None], any_of: bool) -> bool | None:
    """OR, else AND, as SQL joins them: one part may decide though another is unknown.

    >>> _joined([None, True], True), _joined([None, True], False), _joined([None, False], False)
    (True, None, False)
    """
    found = set(held)
    if any_of in found:
        return any_of
    return None if None in found else not any_of


# Values -------------------------------------------------------------------------------------------------


def identity(value: Any) -> tuple[str, str] | None:
    """The kind and the text of a value, equal for values that are one key; None for what is no key.

    >>> identity(7) == identity(7.0) == identity(Decimal("7.00")) != identity("7")
    True
    >>> identity(date(2026, 1, 2)), identity(float("nan")), identity([1])
    (('text', '2026-01-02'), None, None)
    """
    match value:
        case bool():
            return "boolean", str(value)
        case int() if value.bit_length() < _PLAIN_BITS:
            return NUMBER, str(int(value))
        case int() | float() | Decimal():
            exact = exactly_number(value)
            return None if exact is None else (NUMBER, _digits(exact))
        case str():
            return TEXT, str(value)
        case date():
            return TEXT, _iso(value)
        case FarMoment():
            return TEXT, str(value)
        case bytes():
            return "binary", value.hex()
    return None


def exactly_number(value: float | Decimal) -> Decimal | None:
    """A number by its value, a double by the text that it is printed as; None for NaN.

    >>> exactly_number(0.1), exactly_number(2**70)
    (Decimal('0.1'), Decimal('1180591620717411303424'))
    """
    exact = Decimal(repr(float(value)) if isinstance(value, float) else value)
    return None if exact.is_nan() else exact


def _digits(number: Decimal) -> str:
    """One text for one number: the digits, and where these are many or begin behind the point, an exponent.

    Decimal itself would round.
    """
    if not number.is_finite():
        return str(number)
    if number.adjusted() < _PLAIN_BITS:
        integer = int(number)
        if number == integer and integer.bit_length() < _PLAIN_BITS:
            return str(integer)
    sign, digits, exponent = number.as_tuple()
    text = "".join(map(str, digits)).lstrip("0")
    significant = text.rstrip("0")
    return f"{'-' * sign}{significant}e{int(exponent) + len(text) - len(significant)}" if significant else "0"


def _iso(value: date) -> str:
    """The canonical text of a date or a moment."""
    if not isinstance(value, datetime):
        return value.isoformat()
    text = value.replace(tzinfo=None).isoformat()
    text = text.rstrip("0") if value.microsecond else text
    return f"{text}Z" if value.tzinfo is not None else text


def _order_kind(type_: str) -> str:
    return MOMENT if type_ in _MOMENTS else _KINDS.get(type_, TEXT)


def _ordered(value: Any, kind: str | None, settings: ValueSettings) -> tuple[str, Any] | None:
    """A value in the form in which orders of a kind compare; None if it is of another kind."""
    moment = moment_of(value, settings)
    if moment is not None and kind in (MOMENT, None):
        return MOMENT, micros(moment)
    if isinstance(value, str) and kind in (TEXT, None):
        return TEXT, str(value)
    if isinstance(value, (int, float, Decimal)) and not isinstance(value, bool) and kind in (NUMBER, None):
        exact = exactly_number(value)
        return None if exact is None else (NUMBER, exact)
    return None
