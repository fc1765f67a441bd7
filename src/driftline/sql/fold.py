"""The columns of a field as SQL of one column: each value from the
column that is nearest to what was sent.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce

from driftline.core.columns.siblings import FieldMerger, MergedField, families, most_exact
from driftline.core.columns.union import kind
from driftline.core.planning.conversions import NUMBERS, ROUTES_TOO
from driftline.core.schema.naming import MARK
from driftline.core.schema.types import STRING, Field, List, Map, Primitive, Struct, Type, peel
from driftline.sql.asked_casts import exactly, nearly
from driftline.sql.quoting import bind, each, first_of, literal, name, null, variable


@dataclass(frozen=True, slots=True)
class Fold:
    """``near``: where a value has no exact place in the wider type, the nearest stands for it, as a view that
    is only read may have it; otherwise null does.
    """

    mark: str = MARK
    near: bool = False

    def struct(self, columns: Sequence[tuple[Struct, str]], to: MergedField) -> list[str]:
        """One expression for each field of ``to``, from records with a prefix each (``""``, ``"x."``)."""
        assert to.fields is not None
        families_of = [{f.key: f.columns for f in families([struct], self.mark)} for struct, _ in columns]
        return [
            self.field(
                [
                    (column, prefix + name(column.name))
                    for by_key, (_, prefix) in zip(families_of, columns, strict=True)
                    for column in by_key.get(member.key, ())
                ],
                member.one,
            )
            for member in to.fields
        ]

    def field(self, columns: Sequence[tuple[Field, str]], to: MergedField) -> str:
        """A field's columns, each with its SQL, as one."""
        expressions = {id(column): _as_sent(column, x, columns) for column, x in columns}
        order = most_exact([column for column, _ in columns], to.type)
        parts = [self.value(column.type, expressions[id(column)], to) for column in order]
        parts = [part for part in parts if part != null(to.type)]
        if to.dim and to.base is not None and len(parts) > 1:
            return _all_merged(parts, to.dim)
        if to.value is not None and not to.dim:
            return reduce(_joined, parts) if parts else null(to.type)
        return first_of(parts, to.type)

    def value(self, type_: Type, x: str, to: MergedField) -> str:
        """A value of one column as the single type; null if it has no place there."""
        dim, inner = peel(type_)
        if to.text:
            return self._text(type_, x)
        if dim > to.dim or not _same_kind(inner, to) or (to.as_is and kind(type_) != kind(to.type)):
            return null(to.type)
        return _wrapped(self._lists(inner, x, dim, to), to.dim - dim)

    def _lists(self, inner: Type, x: str, dim: int, to: MergedField) -> str:
        if dim:
            return each(x, lambda e: self._lists(inner, e, dim - 1, to))
        match inner:
            case Struct() if to.value is not None:
                return self._as_map(inner, x, to.value)
            case Struct():
                assert to.fields is not None
                inner_sql = self.struct([(inner, f"{x}.")], to)
                names = [m.name for m in to.fields]
                if names == [f.name for f in inner.fields] and inner_sql == [f"{x}.{name(n)}" for n in names]:
                    return x
                listed = ", ".join(f"{sql} as {name(n)}" for sql, n in zip(inner_sql, names, strict=True))
                return f"if({x} is null, null, struct({listed}))"
            case Map(_, value):
                assert to.value is not None
                k, v = variable("k"), variable("v")
                made_value = self.value(value, v, to.value)
                return x if made_value == v else f"transform_values({x}, ({k}, {v}) -> {made_value})"
            case Primitive():
                assert to.base is not None
                convert = nearly if self.near else exactly
                return convert(x, inner, to.base, to.unit)
        raise AssertionError(inner)

    def _as_map(self, struct: Struct, x: str, value: MergedField) -> str:
        """A struct as a map of the keys that have a value."""
        entries = [
            f"{literal(family.key)}, {self.field([(c, f'{x}.{name(c.name)}') for c in family.columns], value)}"
            for family in families([struct], self.mark)
        ]
        k, v = variable("k"), variable("v")
        return f"if({x} is null, null, map_filter(map({', '.join(entries)}), ({k}, {v}) -> {v} is not null))"

    def _text(self, type_: Type, x: str) -> str:
        """The text of a value that shares no type with those beside it; JSON if it is nested."""
        if isinstance(type_, Primitive):
            return exactly(x, type_, STRING, None)
        settled = FieldMerger(self.mark).of([type_], (), ())
        return f"to_json({self.value(type_, x, settled)})"


def _as_sent(column: Field, x: str, columns: Sequence[tuple[Field, str]]) -> str:
    """A column's value without the instants that routing made of numbers, which another column of the field
    has as they were sent (seed rule 10).
    """
    numbers = [(other.type, y) for other, y in columns if _routed(other.type, column.type)]
    if isinstance(column.type, Primitive):
        # Single numbers at once: Spark resolves so many expressions inside each other and no more.
        single = [y for number, y in numbers if isinstance(number, Primitive)]
        if single:
            x = f"if({' and '.join(f'{y} is null' for y in single)}, {x}, {null(column.type)})"
        numbers = [(number, y) for number, y in numbers if not isinstance(number, Primitive)]
    for number, y in numbers:
        x = _without(column.type, x, number, y)
    return x


def _routed(number: Type, instant: Type) -> bool:
    """True if numbers of the one column may be in the other one as instants."""
    match peel(number)[1], peel(instant)[1]:
        case Map(key, value), Map(other_key, other_value):
            return key == other_key and _routed(value, other_value)
        case Primitive(base), Primitive(other):
            return base in NUMBERS and other in ROUTES_TOO["long"]
    return False


def _without(instant: Type, x: str, number: Type, y: str) -> str:
    """The instants ``x``, null where ``y`` has a number. What has fewer lists around it is wrapped whole."""
    deeper = peel(number)[0] - peel(instant)[0]
    match instant, number:
        case _, List(element) if deeper > 0:
            return _without(instant, x, element, f"get({y}, 0)")
        case List(element), _ if deeper < 0:
            kept = _without(element, f"get({x}, 0)", number, y)
            return f"if({x} is null or {y} is null, {x}, array({kept}))"
        case List(element), List(other):
            e, n = variable("e"), variable("n")
            kept = f"zip_with({x}, {y}, ({e}, {n}) -> {_without(element, e, other, n)})"
            return f"if({y} is null or size({x}) != size({y}), {x}, {kept})"
        case Map(_, value), Map(_, other):
            k, v = variable("k"), variable("v")
            kept = f"transform_values({x}, ({k}, {v}) -> {_without(value, v, other, f'{y}[{k}]')})"
            return f"if({y} is null, {x}, {kept})"
    return f"if({y} is null, {x}, null)"


def _same_kind(inner: Type, to: MergedField) -> bool:
    match inner:
        case Struct():
            in_map = to.value is not None and to.key == STRING and not to.no_structs
            return to.fields is not None or in_map
        case Map(key):
            return to.value is not None and to.key == key
        case _:
            return to.base is not None


def _wrapped(x: str, lists: int) -> str:
    if not lists:
        return x
    return bind(x, lambda v: f"if({v} is null, null, {'array(' * lists}{v}{')' * lists})")


def _joined(a: str, b: str) -> str:
    """Two maps of one field: what the first has no value for, the second may have."""
    k, v, w = variable("k"), variable("v"), variable("w")

    def zipped(x: str, y: str) -> str:
        return f"if({x} is null, {y}, if({y} is null, {x}, map_zip_with({x}, {y}, ({k}, {v}, {w}) -> coalesce({v}, {w}))))"

    return bind(a, lambda x: bind(b, lambda y: zipped(x, y)))


def _all_merged(parts: Sequence[str], dim: int) -> str:
    """Merge in pairs, and pairs of these: Spark resolves only so many nested functions."""
    if len(parts) == 1:
        return parts[0]
    half = len(parts) // 2
    return _merged(_all_merged(parts[:half], dim), _all_merged(parts[half:], dim), dim)


def _merged(a: str, b: str, dim: int) -> str:
    """Two lists of one value, position by position: what one of them has no place for, the other may have."""

    def zipped(x: str, y: str) -> str:
        e, f = variable(), variable()
        inner = f"coalesce({e}, {f})" if dim == 1 else _merged(e, f, dim - 1)
        same = f"size({x}) = size({y})"
        return f"if({x} is null, {y}, if({y} is null or not {same}, {x}, zip_with({x}, {y}, ({e}, {f}) -> {inner})))"

    return bind(a, lambda x: bind(b, lambda y: zipped(x, y)))
