"""Fields of the source's records, and conditions over them, evaluated without anything that the road has."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date, datetime
from decimal import Decimal
from operator import ge, gt, le, lt
from typing import Any

from driftline.core.schema.types import Path
from driftline.core.settings.condition import (
    MESSAGE_KEY,
    Bound,
    Condition,
    Expectation,
    Inequality,
    IsNull,
    Junction,
    Like,
    Negation,
    OneOf,
    paths_of,
)
from driftline.verify.comparison import begin_task
from driftline.verify.files import Read
from driftline.verify.matching_key import Meeting, TableColumn, TableStruct
from driftline.verify.moments import FarMoment, Moment, micros, moment
from driftline.verify.values import Cell, ValueSettings, typed

NUMBER, TEXT, MOMENT = "number", "text", "moment"
NUMBERS = ("int", "long", "decimal", "double", "float")
_PLAIN_BITS = 1000  # of whole numbers that are texts without an exponent
# A text column comes last: it may hold what another one converts to
_EXACT_FIRST = ("boolean", *NUMBERS)

_HIDDEN = object()  # in place of a value that is looked for where no fields are


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
class ConditionReader:
    """A condition, with the fields that it reads. It holds, does not hold, or is unknown (None), as in SQL.

    Attributes:
        of_messages: `value is null` asks for the value of a message, whose key is a field of the record.
    """

    condition: Condition
    fields: Mapping[Path, RowField]
    settings: ValueSettings
    of_messages: bool = False

    @classmethod
    def of(
        cls, condition: Condition, record: TableStruct, settings: ValueSettings, *, of_messages: bool = False
    ) -> ConditionReader:
        """Find the fields of a condition in a table with these columns."""
        fields = {path: RowField.of(record, path) for path in set(paths_of(condition))}
        return cls(condition, fields, settings, of_messages)

    def holds(self, record: Mapping[str, Any], is_null: bool | None = None) -> bool | None:
        """Evaluate the condition for a record; ``is_null``: as of `Read`."""
        return self._holds(self.condition, record, is_null)

    def _holds(self, condition: Condition, record: Mapping[str, Any], is_null: bool | None) -> bool | None:
        match condition:
            case IsNull(("value",)) if self.of_messages and is_null is not None:
                return is_null
            case IsNull(("value",)) if self.of_messages:
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
            case Inequality(path, operator, bound):
                return _compared(self._value(path, record), operator, bound)
            case Like(path, pattern):
                text = _text(self._value(path, record))
                return None if text is None else is_like(text, pattern)
            case Negation(part):
                held = self._holds(part, record, is_null)
                return None if held is None else not held
            case Junction(parts, any_of):
                return _joined([self._holds(part, record, is_null) for part in parts], any_of)
        raise AssertionError(condition)

    def _value(self, path: Path, record: Mapping[str, Any]) -> Any:
        return self.fields[path].of_record(record, self.settings)


_OPERATORS = {"<": lt, "<=": le, ">": gt, ">=": ge}


def _compared(value: Any, operator: str, bound: Bound) -> bool | None:
    """Compare a value with one of its kind; None for another."""
    mine: Any = None
    match bound:
        case Decimal() if isinstance(value, int | float | Decimal) and not isinstance(value, bool):
            mine = exactly_number(value)
        case str():
            mine = _text(value)
        case datetime():
            found = moment(str(value), offsets=True) if isinstance(value, str) else value
            mine = micros(found) if isinstance(found, Moment) else None
    other: Any = micros(bound) if isinstance(bound, datetime) else bound
    return None if mine is None else bool(_OPERATORS[operator](mine, other))


def _text(value: Any) -> str | None:
    """The text that a value is as a key; None for one of another kind."""
    kind, text = identity(value) or ("", "")
    return text if kind == TEXT else None


def is_like(text: str, pattern: str) -> bool:
    r"""True if a text is what a pattern of LIKE says.

    >>> is_like("price", "p_i%"), is_like("50%", r"_0\%"), is_like("505", r"_0\%"), is_like("a", "")
    (True, True, False, False)
    """
    signs: list[tuple[str, bool]] = []
    characters = iter(range(len(pattern)))
    for at in characters:
        is_escaped = pattern[at] == "\\" and pattern[at + 1 : at + 2] in ("%", "_", "\\")
        signs.append((pattern[next(characters)] if is_escaped else pattern[at], is_escaped))
    ends = {0}  # the numbers of characters that the signs so far may stand for
    for sign, is_escaped in signs:
        if sign == "%" and not is_escaped:
            ends = set(range(min(ends, default=len(text) + 1), len(text) + 1))
        else:
            any_character = sign == "_" and not is_escaped
            ends = {end + 1 for end in ends if end < len(text) and (any_character or text[end] == sign)}
    return len(text) in ends


@dataclass(frozen=True, slots=True)
class ExpectedRecords:
    """The expectations that set records aside, and the files from which the table took records by them.

    Records of other files may wait or not.
    """

    expectations: Sequence[Expectation]
    files: frozenset[str]

    def judged(self, meeting: Meeting, reads: Iterable[Read]) -> Iterator[Read]:
        """The records, each with the first expectation that it does not meet."""
        begin_task()
        readers = [
            (expectation.name, ConditionReader.of(expectation.condition, meeting.record, meeting.settings))
            for expectation in self.expectations
        ]
        for read in reads:
            if read.record is None or read.place.file not in self.files:
                yield read
                continue
            # What is unknown is no fault, as in SQL's CHECK.
            unmet = (name for name, reader in readers if reader.holds(read.record) is False)
            yield replace(read, unmet=next(unmet, ""))


def _joined(held: Iterable[bool | None], any_of: bool) -> bool | None:
    """OR, else AND, as SQL joins them: one part may decide though another is unknown.

    >>> _joined([None, True], True), _joined([None, True], False), _joined([None, False], False)
    (True, None, False)
    """
    found = set(held)
    if any_of in found:
        return any_of
    return None if None in found else not any_of


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
        # Most keys are such: a Decimal for each of them took a fifth of the time.
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
