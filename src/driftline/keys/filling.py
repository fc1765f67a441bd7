"""Fills fields that a change lacks from earlier changes, and evaluates conditions on records.

A row has the order of the change that replaced it last, and next to it the order of each field that an
older change has filled: late changes fill only these.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from decimal import ROUND_FLOOR, Context, Decimal, InvalidOperation
from functools import reduce
from operator import ge, gt, le, lt
from typing import Any, NamedTuple, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc
from msgspec import json

from driftline.convert.kernels import convert
from driftline.core.planning.own_columns import TYPE_KEY, rest_column, step, steps
from driftline.core.planning.policies.by_kind import order_kind
from driftline.core.schema.types import STRING, TIMESTAMP, VARIANT, Map, Path, Primitive, Struct, Type
from driftline.core.settings.condition import (
    MESSAGE_KEY,
    Bound,
    Condition,
    Inequality,
    IsNull,
    Junction,
    KeyAlone,
    Like,
    Literal,
    Negation,
    OneOf,
    Operator,
)
from driftline.core.settings.row_key import ORDER_KIND, ORDERS_KIND
from driftline.core.values import Number, moment_of
from driftline.keys.identity import by_kind, key_text
from driftline.keys.patch_fields import NOTHING, PRESENCE, ROW, PatchedField
from driftline.keys.patch_rows import Merges, RowChanges, merged_fields
from driftline.keys.slices import of_table

_names = json.Decoder(list[str]).decode
# The order of a field of which no value was ever known: before all others
_UNKNOWN = ""


class Kept(NamedTuple):
    """A field that the latest change lacked: the ``source`` of its value, and that source's ``order``."""

    source: int
    order: str


@dataclass(slots=True)
class FilledRow:
    """A row after some changes: its ``source``, its ``order``, and the fields that it ``kept``.

    Changes are applied in order, even if they are older than the row.
    """

    source: int = NOTHING
    order: str = _UNKNOWN
    kept: dict[str, Kept] = field(default_factory=dict)

    def write(self, source: int, order: str, lacking: Sequence[str]) -> None:
        """Apply a change that has all values but the ``lacking`` ones."""
        # A late change still counts for the fields that older changes have filled.
        if order < self.order:
            self._fill(source, order, lacking)
            return
        # A field that this change lacks keeps its value, and the order of the change that brought it.
        values = {name: self.kept.get(name, Kept(self.source, self.order)) for name in lacking}
        self.source, self.order, self.kept = source, order, values

    def delete(self, order: str) -> None:
        """Apply a delete, which removes everything older."""
        if order < self.order:
            self._fill(NOTHING, order, ())
        else:
            self.source, self.order, self.kept = NOTHING, order, {}

    def forget(self, order: str) -> None:
        """Apply a delete that the table remembers; values of the same order came after it."""
        if self.order < order:
            self.source, self.order, self.kept = NOTHING, order, {}
            return
        older = [name for name, value in self.kept.items() if value.order < order]
        self.kept |= dict.fromkeys(older, Kept(NOTHING, order))

    def _fill(self, source: int, order: str, lacking: Sequence[str]) -> None:
        for name, value in self.kept.items():
            # Of equal orders the later arrival wins, as everywhere.
            if value.order <= order and name not in lacking:
                self.kept[name] = Kept(source, order)

    def node(self) -> PatchedField:
        """Return the sources of the row's fields, in the form that merging columns takes."""
        fields = {name: PatchedField(0, value.source) for name, value in self.kept.items()}
        return PatchedField(objects={self.source: 0}, fields=fields, emptied=self.source != ROW)

    def older(self) -> list[tuple[str, str]]:
        """The orders of fields that the row keeps, by path."""
        return [
            (step("", name), value.order) for name, value in self.kept.items() if value.order != self.order
        ]


def filled(row: Mapping[str, str] | None, order: str, changes: RowChanges) -> FilledRow:
    """Apply changes to a row of the table.

    Args:
        row: the orders that it keeps, by path; None without a row.

    >>> from driftline.keys.patch_fields import Patches
    >>> made = filled({}, "2", (Patches((), ("3",)), ('["big"]',)))
    >>> made.source, made.older()
    (1, [('big', '2')])
    """
    patches, lacking = changes
    result = FilledRow()
    if row is not None:
        values = {str(steps(path)[0]): Kept(ROW, order_of_change) for path, order_of_change in row.items()}
        result = FilledRow(ROW, order, values)
    if patches.floor is not None:
        result.forget(patches.floor)
    for number, order_of_change in enumerate(patches.orders):
        # Older than a delete that the table remembers: the row that it changed is gone.
        if patches.floor is not None and order_of_change < patches.floor:
            continue
        text = lacking[number]
        if text is None:
            result.delete(order_of_change)
        else:
            result.write(1 + number, order_of_change, _names(text) if text else ())
    return result


@dataclass(frozen=True, slots=True)
class RowFiller:
    """Makes rows from all changes of their keys; it is sent to tasks.

    Attributes:
        struct: the columns.
        own: the positions of the columns that are set here, by kind.
        mark: the prefix of docs.
    """

    struct: Struct
    own: Mapping[str, int]
    mark: str

    def rows(
        self, values: pa.RecordBatch, sources: Sequence[Sequence[int]], changes: Sequence[RowChanges]
    ) -> pa.RecordBatch:
        """Fill the rows.

        Args:
            values: the sources' columns.
            sources: for each row the positions of its sources in ``values``, the table's row first; -1 if a
                source has no values.
            changes: the changes of each row.
        """
        in_table = [places[0] for places in sources]
        orders, orders_of_fields = (
            self._of_table(values, in_table, kind) for kind in (ORDER_KIND, ORDERS_KIND)
        )
        filled_rows = [
            filled(dict(fields or ()) if place_in_table >= 0 else None, order or "", of_row)
            for place_in_table, order, fields, of_row in zip(
                in_table, orders, orders_of_fields, changes, strict=True
            )
        ]
        merges = Merges.of(range(len(filled_rows)), sources)
        nodes = [row.node() for row in filled_rows]
        columns = merged_fields(self.struct.fields, values.columns, nodes, merges, self.mark)
        rest = rest_column(self.struct)
        if rest is not None:
            place = self.struct.fields.index(rest)
            columns[place] = _rest(values.column(place), filled_rows, sources)
        for kind, texts in (
            (ORDER_KIND, [row.order for row in filled_rows]),
            (ORDERS_KIND, [row.older() for row in filled_rows]),
        ):
            place = self.own[kind]
            columns[place] = pa.array(texts, values.column(place).type)
        return pa.RecordBatch.from_arrays(columns, schema=values.schema)

    def replace_whole(self, latest: pa.RecordBatch, named: pa.Table) -> tuple[pa.Array, pa.RecordBatch]:
        """Flag the keys whose ``latest`` change lacks no field and is not older than the table's row.

        Returns:
            The flags, and the rows of these keys: those of their changes.
        """
        # Nearly all changes are such. Made one by one, rows take ten times as long as their columns.
        flags = pc.and_(pc.fill_null(pc.equal(latest[PRESENCE], ""), False), named["newest"].combine_chunks())
        rows = of_table(latest.filter(flags))
        none_older = pa.nulls(len(rows), latest.schema.field(self.own[ORDERS_KIND]).type).fill_null([])
        for kind, column in (
            (ORDER_KIND, named[ORDER_KIND].filter(flags).combine_chunks()),
            (ORDERS_KIND, none_older),
        ):
            rows = rows.set_column(self.own[kind], rows.schema.field(self.own[kind]), column)
        return flags, rows

    def _of_table(self, values: pa.RecordBatch, places: Sequence[int], kind: str) -> list[Any]:
        none_below_zero = pa.array([place if place >= 0 else None for place in places], pa.int64())
        taken: list[Any] = values.column(self.own[kind]).take(none_below_zero).to_pylist()
        return taken


def _rest(column: pa.Array, rows: Sequence[FilledRow], sources: Sequence[Sequence[int]]) -> pa.Array:
    """Return the rest of each row, each field with the texts of its source."""
    if column.null_count == len(column):
        return pa.nulls(len(rows), column.type)
    texts, texts_of_rows = column.to_pylist(), []
    for row, places in zip(rows, sources, strict=True):
        row_texts: list[tuple[str, str]] = []
        # Fields in the rest have no column, so each path asks whose change its field is of.
        for source in {row.source, *(value.source for value in row.kept.values())} - {NOTHING}:
            for path, text in texts[places[source]] or ():
                name = str(steps(path.removesuffix(TYPE_KEY))[0])
                if (row.kept[name].source if name in row.kept else row.source) == source:
                    row_texts.append((path, text))
        texts_of_rows.append(row_texts or None)
    return pa.array(texts_of_rows, column.type)


Test: TypeAlias = "Callable[[Mapping[str, Any]], bool | None]"
Columns: TypeAlias = "Sequence[tuple[Type, pa.Array]]"

_COMPARISONS: dict[Operator, Callable[[Any, Any], bool]] = {"<": lt, "<=": le, ">": gt, ">=": ge}
_ARROW_COMPARISONS: dict[Operator, Callable[..., pa.Array]] = {
    "<": pc.less,
    "<=": pc.less_equal,
    ">": pc.greater,
    ">=": pc.greater_equal,
}
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
# Holds each bound, and its digits within a decimal's scale
_EXACT = Context(prec=3000)
_LIKE = re.compile(r"\\[%_\\]|.", re.DOTALL)
_SIGNS = re.compile(r"[\\%_]")  # of a pattern beside texts and an end that is open
_HIDDEN = object()  # in place of a value that is looked for where no fields are


def record_test(condition: Condition) -> Test:
    """Compile the condition to a function of a JSON record, whose fractions are `Number`; None is unknown.

    >>> from driftline.core.settings.condition import OneOf
    >>> is_deleted = record_test(OneOf(("op",), ("d",)))
    >>> [is_deleted(record) for record in ({"op": "d"}, {"op": 1}, {})]
    [True, False, None]
    """
    match condition:
        # A test sees the record as it came: in a column that has become text, 1 and "1" would be one.
        case IsNull(path):
            return lambda record: None if (value := _value(record, path)) is _HIDDEN else value is None
        case OneOf(path, values):
            is_one = _is_one_of(values)
            return lambda record: is_one(_value(record, path))
        case Inequality(path, operator, value):
            compared = _comparing(operator, value)
            return lambda record: compared(_value(record, path))
        case Like(path, pattern):
            is_like = _is_like(pattern)
            return lambda record: is_like(_value(record, path))
        case KeyAlone():
            return lambda record: all(record[key] is None for key in record if key != MESSAGE_KEY)
        case Negation(part):
            test = record_test(part)
            return lambda record: None if (result := test(record)) is None else not result
        case Junction(parts, any_of):
            tests = [record_test(part) for part in parts]
            return lambda record: _joined((test(record) for test in tests), decides=any_of)


def _value(record: Any, path: Path) -> Any:
    for key in path:
        if type(record) is not dict:
            return None if record is None else _HIDDEN
        record = record.get(key)
    return record


def _is_one_of(values: Sequence[Literal]) -> Callable[[Any], bool | None]:
    texts = {value for value in values if type(value) is str}
    booleans = {value for value in values if type(value) is bool}
    numbers = {value for value in values if type(value) is Decimal}

    def is_one(value: Any) -> bool | None:
        """Compare a value with those of its kind."""
        match value:
            case None:
                return None
            case Number():
                return _decimal(value) in numbers
            case str():
                return value in texts
            case bool():
                return value in booleans
            case int():
                return value in numbers
            case _:
                return None if value is _HIDDEN else False

    return is_one


def _comparing(operator: Operator, bound: Bound) -> Callable[[Any], bool | None]:
    """Return the comparison of a value with a bound of its kind; None for another."""
    compare = _COMPARISONS[operator]
    match bound:
        case Decimal():
            # Not by ``isinstance``: a boolean is an int to Python, and no number here.
            def of_number(value: Any) -> bool | None:
                if type(value) is int:
                    return compare(value, bound)
                number = _decimal(value) if type(value) is Number else None
                return None if number is None else compare(number, bound)

            return of_number
        case str():

            def of_text(value: Any) -> bool | None:
                return compare(value, bound) if type(value) is str else None

            return of_text
        case _:

            def of_moment(value: Any) -> bool | None:
                moment = moment_of(value) if type(value) is str else None
                return None if moment is None else compare(moment, bound)

            return of_moment


def _is_like(pattern: str) -> Callable[[Any], bool | None]:
    matches = re.compile(like_pattern(pattern), re.DOTALL).fullmatch
    return lambda value: matches(value) is not None if type(value) is str else None


def are_like(texts: pa.Array, pattern: str) -> pa.Array:
    """Flag the texts that match a pattern of LIKE."""
    # A regular expression costs ten times as much.
    if not _SIGNS.search(inside := pattern.strip("%")):
        begins, ends = not pattern.startswith("%"), not pattern.endswith("%")
        if begins and ends:
            return pc.equal(texts, pa.scalar(inside, texts.type))
        return (pc.starts_with if begins else pc.ends_with if ends else pc.match_substring)(texts, inside)
    return pc.match_substring_regex(texts, rf"(?s)\A(?:{like_pattern(pattern)})\z")


def like_pattern(pattern: str) -> str:
    r"""Return the regular expression of a pattern of LIKE.

    >>> like_pattern(r"a_%\%")
    'a..*%'
    """
    signs = {"%": ".*", "_": "."}
    return "".join(
        re.escape(part[1:]) if len(part) > 1 else signs.get(part, re.escape(part))
        for part in _LIKE.findall(pattern)
    )


def _decimal(text: str) -> Decimal | None:
    try:
        return Decimal(text)
    except InvalidOperation:  # its exponent is beyond every literal's
        return None


def _joined(results: Iterable[bool | None], *, decides: bool) -> bool | None:
    """Join results; a single one that ``decides`` is enough."""
    joined: bool | None = not decides
    for result in results:
        if result is decides:
            return decides
        # SQL's three values: unknown, unless another part decides.
        joined = None if result is None else joined
    return joined


def holds(condition: Condition, batch: pa.RecordBatch, struct: Struct) -> pa.Array:
    """Flag the rows for which the condition is true; null if unknown.

    Args:
        struct: the types of the columns by key, which may have several.
    """
    match condition:
        case IsNull(path):
            columns, hidden = _columns(batch, struct, path)
            return _unless(hidden, _all_null(columns, len(batch)))
        case Inequality(path, _, _) | Like(path, _):
            columns, hidden = _columns(batch, struct, path)
            return _unless(hidden, _compared(columns, condition, len(batch)))
        case OneOf(path, values):
            columns, hidden = _columns(batch, struct, path)
            null = _all_null(columns, len(batch))
            return _unless(pc.or_(hidden, null), _equal_one(columns, values, len(batch)))
        case KeyAlone():
            others = [
                (f.type, a)
                for f, a in zip(struct.fields, batch.columns, strict=True)
                if f.name != MESSAGE_KEY
            ]
            return _all_null(others, len(batch))
        case Negation(part):
            return pc.invert(holds(part, batch, struct))
        case Junction(parts, any_of):
            both = pc.or_kleene if any_of else pc.and_kleene
            parts_hold = (holds(part, batch, struct) for part in parts)
            return reduce(both, parts_hold, pa.repeat(not any_of, len(batch)))


def _columns(batch: pa.RecordBatch, struct: Struct, path: Path) -> tuple[Columns, pa.Array]:
    """Return the columns of the field at a path, and flags of the rows that hide it."""
    columns: Columns = [
        (f.type, array) for f, array in zip(struct.fields, batch.columns, strict=True) if f.name == path[0]
    ]
    hidden = pa.repeat(False, len(batch))
    for inside in path[1:]:
        below: list[tuple[Type, pa.Array]] = []
        for type_, array in columns:
            match type_:
                case Struct(fields):
                    inner = zip(fields, array.flatten(), strict=True)
                    below += [(f.type, values) for f, values in inner if f.name == inside]
                case Map(key, value) if key == STRING:
                    # A key that occurs twice has its last value.
                    below.append((value, pc.map_lookup(array, inside, "last")))
                case _:
                    # A value without fields hides whether the field is null, so the condition is unknown
                    # there.
                    hidden = pc.or_(hidden, array.is_valid())
        columns = below
    for type_, array in columns:
        if type_ == VARIANT:
            hidden = pc.or_(hidden, array.is_valid())
    return columns, hidden


def doubles_at(batch: pa.RecordBatch, struct: Struct, path: Path) -> list[pa.Array]:
    """Return the columns of doubles of the field at a path."""
    return [array for _, array in _columns(batch, struct, path)[0] if array.type == pa.float64()]


def _all_null(columns: Columns, count: int) -> pa.Array:
    return reduce(pc.and_, (array.is_null() for _, array in columns), pa.repeat(True, count))


def _equal_one(columns: Columns, values: Sequence[Literal], count: int) -> pa.Array:
    """Flag the rows that have one of the values in one of the columns."""
    flags = pa.repeat(False, count)
    for type_, array in columns:
        if not isinstance(type_, Primitive) or type_ == VARIANT:
            continue
        for kind, comparable in by_kind(array, type_):
            for value in values:
                if kind == _kind(value):
                    flags = pc.or_(flags, pc.equal(comparable, _comparable(value)).fill_null(False))
    return flags


def _compared(columns: Columns, condition: Inequality | Like, count: int) -> pa.Array:
    """Flag the rows of which one of the columns has a value that is comparable; others are null."""
    flags = pa.nulls(count, pa.bool_())
    for type_, array in columns:
        if isinstance(type_, Primitive) and type_ != VARIANT and not pa.types.is_null(array.type):
            flags = pc.coalesce(flags, _compared_values(array, type_, condition))
    return flags


def _compared_values(array: pa.Array, type_: Primitive, condition: Inequality | Like) -> pa.Array:
    if isinstance(array, pa.ExtensionArray):
        array = array.storage
    kind = order_kind(type_)
    match condition:
        case Like(_, pattern) if kind in ("text", "moment"):
            return are_like(_as_text(array, type_), pattern)
        case Inequality(_, operator, str() as bound) if kind in ("text", "moment"):
            return _ARROW_COMPARISONS[operator](_as_text(array, type_), pa.scalar(bound))
        case Inequality(_, operator, Decimal() as bound) if kind == "number":
            return _compared_numbers(array, operator, bound)
        case Inequality(_, operator, datetime() as bound) if kind == "moment" or type_ == STRING:
            return _ARROW_COMPARISONS[operator](_moments(array, type_), _microseconds(bound))
    return pa.nulls(len(array), pa.bool_())


def _as_text(array: pa.Array, type_: Primitive) -> pa.Array:
    return array.cast(pa.string()) if type_ == STRING else convert(array, type_, STRING)


def _moments(array: pa.Array, type_: Primitive) -> pa.Array:
    """Return the microseconds since 1970 of dates, timestamps, and texts that spell one; others are null."""
    if type_ != STRING:
        return (convert(array, type_, TIMESTAMP) if type_.name == "date" else array).cast(pa.int64())
    coded = array.dictionary_encode()
    found = [None if text is None else moment_of(text) for text in coded.dictionary.to_pylist()]
    moments = pa.array([None if m is None else _microseconds(m) for m in found], pa.int64())
    return moments.take(coded.indices)


def _microseconds(moment: datetime) -> int:
    return (moment - _EPOCH) // timedelta(microseconds=1)


def _compared_numbers(array: pa.Array, operator: Operator, bound: Decimal) -> pa.Array:
    """Compare a column's numbers with any number, exactly; NaN is null."""
    if pa.types.is_floating(array.type):
        array = pc.if_else(pc.is_nan(array), pa.scalar(None, array.type), array).cast(pa.float64())
    elif pa.types.is_integer(array.type):
        array = array.cast(pa.int64())
    near = _near(bound, array.type)
    if near is None:
        on_one_side = _COMPARISONS[operator](0, bound)
        return pc.if_else(array.is_valid(), on_one_side, pa.scalar(None, pa.bool_()))
    # A column that cannot hold the bound is compared with a number beside it.
    if near < bound:
        operator = ">" if operator in (">", ">=") else "<="
    elif near > bound:
        operator = ">=" if operator in (">", ">=") else "<"
    scalar = (
        near
        if pa.types.is_decimal(array.type)
        else float(near)
        if pa.types.is_floating(array.type)
        else int(near)
    )
    return _ARROW_COMPARISONS[operator](array, pa.scalar(scalar, array.type))


def _near(bound: Decimal, type_: pa.DataType) -> Decimal | None:
    """Return the bound, or a number of the type beside it; None if it is beyond all numbers of the type."""
    if pa.types.is_floating(type_):
        # A double is the number that its shortest text says
        return Decimal(repr(float(bound)))
    lowest, highest, scale = -(2**63), 2**63 - 1, 0
    if pa.types.is_decimal(type_):
        highest, scale = 10**type_.precision - 1, type_.scale
        lowest = -highest
    below = _EXACT.scaleb(bound, scale).to_integral_value(ROUND_FLOOR)
    return _EXACT.scaleb(below, -scale) if lowest <= below <= highest else None


def _unless(unknown: pa.Array, flags: pa.Array) -> pa.Array:
    return pc.if_else(unknown, pa.scalar(None, pa.bool_()), flags)


def _kind(value: Literal) -> str:
    """Return the kind of a literal, as in `identity.by_kind`."""
    match value:
        case bool():
            return "boolean"
        case str():
            return "text"
        case _:
            return "whole" if value == value.to_integral_value() and abs(value) < 2**63 else "number"


def _comparable(value: Literal) -> str | int | bool | None:
    if isinstance(value, Decimal):
        return int(value) if _kind(value) == "whole" else key_text(value)
    return value
