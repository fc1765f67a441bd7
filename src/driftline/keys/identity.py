"""The identity of rows: key values compared by kind and exact value, and numbered per batch.

A value is a number, a text, a boolean or binary. 7, 7.0 and 7.00 are one number of whatever width, 7 and "7"
two keys; a date, a moment, a time or a uuid equals its canonical text. A key of several fields is compared
field by field, never as joined text.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Context, Decimal
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from driftline.convert.kernels import convert, decimal_text
from driftline.convert.types import arrow_type
from driftline.core.planning.conversions import NUMBERS
from driftline.core.planning.policies.by_kind import order_kind
from driftline.core.schema.types import STRING, TIMESTAMP, UUID, WIDER, Primitive

if TYPE_CHECKING:
    from numpy.typing import NDArray

# A column's lowest and highest value; None where they are not known.
Bounds: TypeAlias = "tuple[Any, Any] | None"

_WIDTHS = ("boolean", "int", "long", "float", "double", "decimal")  # whatever else there is comes behind


@dataclass(frozen=True, slots=True)
class FieldColumns:
    """The columns of one field by id, the narrowest first.

    A wider column may hold conversions of a narrower one, so the first that is not null has the value.
    """

    columns: tuple[tuple[int, Primitive], ...]

    @classmethod
    def of(cls, columns: Iterable[tuple[int, Primitive]]) -> FieldColumns:
        """Order the columns of a field by width."""
        return cls(tuple(sorted(columns, key=_width)))

    @property
    def ids(self) -> list[int]:
        """The ids of the columns, the narrowest first."""
        return [id_ for id_, _ in self.columns]

    def values(self, rows: pa.Table) -> Iterator[tuple[Primitive, pa.Array]]:
        """Yield the field's values by column, each row's value in only one of them."""
        undecided = None
        for id_, type_ in self.columns:
            column = rows.column(str(id_)).combine_chunks()
            if undecided is not None:
                # A wider column holds the value again, converted; read twice, 7 and "7" would both be its
                # key.
                column = pc.if_else(undecided, column, pa.scalar(None, column.type))
            yield type_, column
            null = column.is_null()
            undecided = null if undecided is None else pc.and_(undecided, null)


def _width(column: tuple[int, Primitive]) -> tuple[int, tuple[Any, ...], int]:
    id_, type_ = column
    if type_ == STRING:
        return len(_WIDTHS) + 1, (), id_
    return _WIDTHS.index(type_.name) if type_.name in _WIDTHS else len(_WIDTHS), type_.args, id_


def by_kind(values: pa.Array, type_: Primitive) -> list[tuple[str, pa.Array]]:
    """Convert values, by kind, to a form that is equal for equal keys.

    Values of another kind, and NaN, are null. Whole numbers of 64 bits are a kind of their own, which is
    compared quickly; other numbers are compared by their shortest text.
    """
    if isinstance(values, pa.ExtensionArray):
        values = values.storage
    if pa.types.is_null(values.type):
        return []
    if (wider := WIDER.get(type_.name)) is not None:
        if wider == UUID:  # text where DuckLake's catalog has the rows
            return by_kind(values, STRING if pa.types.is_string(values.type) else UUID)
        return by_kind(values.cast(arrow_type(wider)), wider)
    match type_.name:
        case "boolean":
            return [("boolean", values)]
        case "int" | "long":
            return [("whole", values.cast(pa.int64()))]
        case "float" | "double":
            return _numbers(values.cast(pa.float64()))
        case "decimal":
            return _numbers(values)
        case "binary" | "fixed":
            return [("binary", values.cast(pa.binary()))]
        case "string":
            return [("text", values.cast(pa.string()))]
        case _:
            return [("text", convert(values, type_, STRING))]


def _numbers(values: pa.Array) -> list[tuple[str, pa.Array]]:
    none = pa.scalar(None, values.type)
    is_integer = pc.equal(pc.floor(values), values)
    quick = pc.less(pc.abs(values.cast(pa.float64())), _limit(values.type))
    is_integer = pc.and_(is_integer, quick).fill_null(False)
    integers = pc.if_else(is_integer, values, none).cast(pa.int64())
    if integers.null_count == values.null_count:
        return [("whole", integers)]
    # Double, float and decimal have no common exact type, so other numbers are compared by their shortest
    # text.
    texts = [
        None if number is None else key_text(number)
        for number in pc.if_else(is_integer, none, values).to_pylist()
    ]
    whole = [int(text) if text is not None and _is_long(text) else None for text in texts]
    others = [text if integer is None else None for text, integer in zip(texts, whole, strict=True)]
    return [
        ("whole", pc.coalesce(integers, pa.array(whole, pa.int64()))),
        ("number", pa.array(others, pa.string())),
    ]


def _limit(type_: pa.DataType) -> float:
    """Return the limit below which whole numbers are recognized by whole columns.

    A double beyond 2^53 is the number that its shortest text says, as it is to JSON, and not the integer that
    its bits are. Decimals are compared as doubles, which are too coarse next to 2^63: there all are 2^63.
    """
    return 2.0**53 if pa.types.is_floating(type_) else 2.0**63


def _is_long(text: str) -> bool:
    """True for the text of a whole number within 64 bits."""
    return text.lstrip("-").isdecimal() and -(2**63) <= int(text) < 2**63


def key_text(number: float | Decimal) -> str | None:
    """Return the shortest text of a number, equal for equal numbers; None for NaN."""
    if number != number:  # NaN equals nothing, not itself either
        return None
    exact = number if isinstance(number, Decimal) else Decimal(repr(number))
    return decimal_text(exact) if exact.is_finite() else str(exact)


@dataclass(slots=True)
class _FieldValues:
    """The numbered values of one key field in a batch, by kind."""

    by_kind: dict[str, pa.Array]
    sorted: dict[str, NDArray[Any]] = field(default_factory=dict)

    @property
    def size(self) -> int:
        """The number of distinct values."""
        return sum(map(len, self.by_kind.values()))

    def numbers(self, columns: FieldColumns, rows: pa.Table) -> pa.Array:
        """Return the number of each row's value; null if the batch does not have the value."""
        starts, start = {}, 0
        for kind, values in self.by_kind.items():
            # Numbers of one kind follow those of another, so a value's number tells its kind as well.
            starts[kind], start = start, start + len(values)
        numbers = [
            pc.add(pc.index_in(values, value_set=self.by_kind[kind]).cast(pa.int64()), starts[kind])
            for type_, column in columns.values(rows)
            for kind, values in by_kind(column, type_)
            if kind in self.by_kind
        ]
        return pc.coalesce(*numbers) if numbers else pa.nulls(len(rows), pa.int64())

    def meet(self, bounds: tuple[Any, Any]) -> bool:
        """True if a value may be within the bounds, or if that is unknown."""
        low, high = bounds
        kind = {int: "whole", str: "text"}.get(type(low))
        if kind == "whole" and not -(2**63) <= low <= high < 2**63:  # an UBIGINT's
            return True
        if kind is None or kind not in self.by_kind:
            return kind is None
        values = self._ascending(kind)
        position = int(np.searchsorted(values, low))
        return bool(position < len(values) and values[position] <= high)

    def places(self, columns: FieldColumns, rows: pa.Table) -> NDArray[np.int64] | None:
        """The numbers of the rows with one of the values; None where that takes a look at each row."""
        if len(columns.columns) > 1 or columns.columns[0][1].name not in ("int", "long"):
            return None
        stored = rows.column(str(columns.ids[0])).combine_chunks()
        if stored.null_count or not pa.types.is_integer(stored.type):
            return None
        held = stored.to_numpy()
        # Keys that grow with time stand in order in a file: a few steps find each, and none is hashed.
        if not (held[1:] > held[:-1]).all():
            return None
        sought = self._ascending("whole") if "whole" in self.by_kind else np.array([], np.int64)
        places = np.searchsorted(held, sought)
        inside = places < len(held)
        places, sought = places[inside], sought[inside]
        found: NDArray[np.int64] = places[held[places] == sought]
        return found

    def _ascending(self, kind: str) -> NDArray[Any]:
        # Sorted once for all row groups, and only where it is asked for.
        if kind not in self.sorted:
            self.sorted[kind] = np.sort(self.by_kind[kind].to_numpy(zero_copy_only=False))
        return self.sorted[kind]


class SoughtKeys(Protocol):
    """Keys by which rows are looked up."""

    @property
    def ids(self) -> list[int]:
        """The columns that are compared."""

    def candidates(self, rows: pa.Table) -> NDArray[np.int64] | None:
        """The ascending numbers of the rows that may match; None if that may be all of them.

        Args:
            rows: columns by id.
        """

    def codes(self, rows: pa.Table) -> pa.Array:
        """Return the code of each row; null for a row that does not match.

        Args:
            rows: columns by id.
        """

    def may_be_in(self, bounds: Mapping[int, Bounds]) -> bool:
        """True if, by the bounds of columns, some rows may match."""


class BatchKeys:
    """The keys of a batch, with codes from 0 on; they are sent to the tasks that look them up.

    Attributes:
        rows: the batch's key columns, by id; tasks have none.
        own: the code of each row, null without a key; tasks have none.
    """

    def __init__(self, fields: Sequence[FieldColumns], rows: pa.Table) -> None:
        self.fields = tuple(fields)
        self.rows = rows
        self._values: list[_FieldValues] = []
        # Combined numbers of the first key fields, by their place
        self._levels: list[pa.Array] = []
        codes: pa.Array | None = None
        for columns in self.fields:
            parts: dict[str, list[pa.Array]] = {}
            for type_, column in columns.values(rows):
                for kind, values in by_kind(column, type_):
                    parts.setdefault(kind, []).append(values)
            unique = {kind: pc.unique(pa.chunked_array(p)).drop_null() for kind, p in parts.items()}
            self._values.append(_FieldValues(unique))
            # Field by field: two numbers make one, which is numbered again, so any count of fields fits 64
            # bits. Joined texts would take ("a", "bc") and ("ab", "c") for one key.
            codes = self._combined(len(self._levels), rows, codes)
            self._levels.append(pc.unique(codes).drop_null())
            codes = pc.index_in(codes, value_set=self._levels[-1])
        assert codes is not None
        self.own: pa.Array = codes

    def __len__(self) -> int:
        return len(self._levels[-1])

    @property
    def ids(self) -> list[int]:
        """The columns that hold keys."""
        return [id_ for columns in self.fields for id_ in columns.ids]

    def distinct(self) -> pa.Table:
        """Return a row for each key, in the order of codes."""
        own = self.own.to_numpy(zero_copy_only=False)
        has_key = np.flatnonzero(self.own.is_valid().to_numpy(zero_copy_only=False))
        rows = np.empty(len(self), np.int64)
        # One row of each key is taken; any would do, as their key values are equal.
        rows[own[has_key].astype(np.int64)] = has_key
        return self.rows.take(pa.array(rows))

    def candidates(self, rows: pa.Table) -> NDArray[np.int64] | None:
        """The ascending numbers of the rows that may have a key of the batch; None if that may be all.

        Args:
            rows: columns by id.
        """
        return self._values[0].places(self.fields[0], rows)

    def codes(self, rows: pa.Table) -> pa.Array:
        """Return the code of each row's key, null if the batch does not have it.

        Args:
            rows: columns by id.
        """
        codes: pa.Array | None = None
        for i, level in enumerate(self._levels):
            codes = pc.index_in(self._combined(i, rows, codes), value_set=level)
        return codes

    def may_be_in(self, bounds: Mapping[int, Bounds]) -> bool:
        """True if some rows may have a key of the batch.

        Args:
            bounds: by column; a column without them holds only nulls.
        """
        return all(
            # Each field needs a column that may have one of its values; a field of nulls has none.
            any((bound := bounds[id_]) is None or values.meet(bound) for id_ in columns.ids if id_ in bounds)
            for columns, values in zip(self.fields, self._values, strict=True)
        )

    def _combined(self, i: int, rows: pa.Table, before: pa.Array | None) -> pa.Array:
        """Number each row's value of a key field, combined with the code of the fields ``before``."""
        numbers = self._values[i].numbers(self.fields[i], rows)
        if before is None:
            return numbers
        return pc.add(pc.multiply(before.cast(pa.int64()), 1 + self._values[i].size), numbers)

    def __getstate__(self) -> dict[str, Any]:
        # Tasks look for keys, not for the batch's rows.
        return {**self.__dict__, "own": pa.nulls(0, pa.int32()), "rows": self.rows.schema.empty_table()}


_EPOCH = 6  # digits
_BIAS = 500  # added to exponents, so that none is negative
_FROM_NINE = str.maketrans("0123456789", "9876543210")
_LOW = re.compile(r"[\x00-!]")
_SHIFT = 34


def orders(rows: pa.Table, fields: Sequence[FieldColumns], epoch: int = 0) -> pa.Array:
    """Return the order of each row; null if a field has no value.

    Args:
        rows: columns by id.
    """
    parts = [
        pc.coalesce(*[_texts(values, type_) for type_, values in columns.values(rows)]) for columns in fields
    ]
    # One text that sorts by bytes compares rows whatever types the order fields have had. The epoch stands
    # first, for sources whose positions restart.
    return pc.binary_join_element_wise(f"{epoch:0{_EPOCH}d}", *parts, " ")


def _texts(values: pa.Array, type_: Primitive) -> pa.Array:
    match order_kind(type_):
        case "number" if type_.name in ("int", "long"):
            return _integers(values)
        case "number":
            return _each(values, number_text)
        case "moment":
            moments = convert(values, type_, TIMESTAMP) if type_.name == "date" else values
            return _integers(moments.cast(pa.int64()))
        case "text":
            text = values if type_ == STRING else convert(values, type_, STRING)
            low = pc.any(pc.match_substring_regex(text, _LOW.pattern)).as_py()
            return _each(text, plain_text) if low else text
        case _:
            return pa.nulls(len(values), pa.string())


def _integers(values: pa.Array) -> pa.Array:
    """Return the texts of whole numbers; positive ones, which most are, by whole columns."""
    positive = pc.greater(values, 0)
    # A sign, the count of digits, then the digits without zeros at the end: such texts sort as their numbers.
    digits = pc.if_else(positive, values, pa.scalar(None, values.type)).cast(pa.string())
    exponents = pc.add(pc.utf8_length(digits), _BIAS).cast(pa.string())
    texts = pc.binary_join_element_wise("2", exponents, pc.utf8_rtrim(digits, "0"), "")
    if pc.all(positive, min_count=0).as_py():
        return texts
    others = pc.if_else(positive, pa.scalar(None, values.type), values)
    return pc.coalesce(texts, _each(others, number_text))


def _each(values: pa.Array, text: Callable[..., str | None]) -> pa.Array:
    return pa.array([None if v is None else text(v) for v in values.to_pylist()], pa.string())


def number_text(number: float | Decimal) -> str | None:
    """Encode a number so that its text sorts like the number; None for NaN.

    >>> [number_text(n) for n in (-12, -0.5, 0, 0.05, 12, Decimal("120"))]
    ['049787~', '04994~', '1', '24995', '250212', '250312']
    """
    exact = number if isinstance(number, Decimal) else Decimal(repr(number))
    if exact.is_nan():
        return None
    if not exact:
        return "1"
    if exact.is_infinite():
        return "2999" if exact > 0 else "0000~"
    sign, digits, _ = exact.as_tuple()
    text = "".join(map(str, digits)).rstrip("0")
    text = f"{exact.adjusted() + 1 + _BIAS:03d}{text}"
    # Negative numbers sort backwards: each digit is taken from nine, and `~` sorts behind all digits.
    return f"0{text.translate(_FROM_NINE)}~" if sign else f"2{text}"


def plain_text(text: str) -> str:
    """Encode a text so that it sorts correctly next to texts of any length.

    >>> plain_text("a b"), plain_text("a") + " " < plain_text("a b") + " "
    ('a!Bb', True)
    """
    # Fields of an order are joined by a blank, so no text may hold what sorts before it.
    return _LOW.sub(lambda match: "!" + chr(ord(match[0]) + _SHIFT), text)


_BITS = {"int": 31, "long": 63}
_EXACT = Context(prec=80)


@dataclass(frozen=True, slots=True)
class KeyFold:
    """The columns of a key field, by id, that are folded into one of type ``to``."""

    columns: FieldColumns
    to: Primitive

    def kept(self, rows: pa.Table) -> list[int]:
        """Return the columns with a value that the folded column cannot hold."""
        return [
            id_
            for id_, (_, lost) in zip(self.columns.ids, self._parts(rows), strict=True)
            if lost is not None
        ]

    def folded(self, rows: pa.Table, new: int, takers: Sequence[tuple[int, int]]) -> pa.Table:
        """Add the folded column, with the id ``new``, and the values that it cannot hold.

        Args:
            takers: pairs of columns, by id: one with such values, and the one that takes them.
        """
        parts = dict(zip(self.columns.ids, self._parts(rows), strict=True))
        merged = pc.coalesce(*[values for values, _ in parts.values()])
        rows = rows.append_column(str(new), merged)
        for old, taker in takers:
            lost = parts[old][1]
            rows = rows.append_column(str(taker), pa.nulls(len(rows)) if lost is None else lost)
        return rows

    def _parts(self, rows: pa.Table) -> list[tuple[pa.Array, pa.Array | None]]:
        """Return each column's values in the new type, and those that have none there, or None."""
        parts: list[tuple[pa.Array, pa.Array | None]] = []
        for type_, values in self.columns.values(rows):
            new = _converted(values, type_, self.to)
            lost = pc.if_else(new.is_null(), values, pa.scalar(None, values.type))
            parts.append((new, None if lost.null_count == len(lost) else lost))
        return parts


def _converted(values: pa.Array, source: Primitive, to: Primitive) -> pa.Array:
    """Convert values to another type of their kind; null if not exact."""
    if pa.types.is_null(values.type):
        return pa.nulls(len(values), arrow_type(to))
    if to.name not in NUMBERS:
        return convert(values, source, to)
    # By decimal texts, which are the identity of numbers, so no fold makes two keys one.
    exact = [None if value is None else _exact(value, to) for value in values.to_pylist()]
    return pa.array(exact, arrow_type(to))


def _exact(value: float | Decimal, to: Primitive) -> float | Decimal | None:
    """Convert a number to another type; None if not exact.

    >>> from driftline.core.schema.types import DOUBLE, LONG, decimal
    >>> [_exact(2.5, t) for t in (LONG, DOUBLE, decimal(3, 1))], _exact(2**60 + 1, DOUBLE)
    ([None, 2.5, Decimal('2.5')], None)
    """
    number = value if isinstance(value, Decimal) else Decimal(repr(value))
    if not number.is_finite():
        return float(number) if to.name in ("float", "double") and number == number else None
    if to.name in _BITS:
        integer = int(number)
        return (
            integer if integer == number and -(2 ** _BITS[to.name]) <= integer < 2 ** _BITS[to.name] else None
        )
    if to.name == "decimal":
        precision, scale = to.args
        placed = number.scaleb(scale, _EXACT)
        fits = placed == placed.to_integral_value() and abs(placed) < 10**precision
        return _EXACT.quantize(number, Decimal(1).scaleb(-scale)) if fits else None
    near = float(np.float32(number)) if to.name == "float" else float(number)
    return near if Decimal(repr(near)) == number else None
