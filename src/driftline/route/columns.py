"""Columns of the table from parsed data, as SQL: seed rule 8 and section 5 of the rules.

A value goes to every column whose type it fits, at the column's dimension or below; lists keep their
positions, what does not fit is null there, and a list none of whose values fits is null as a whole.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from driftline.core.routes import ColumnRoute, FieldRoute, RecordRoute, Settings
from driftline.core.shape import NUMBER_TEXT, RECORD, FieldShape, Place, Seen
from driftline.core.types import (
    BINARY,
    BOOLEAN,
    DOUBLE,
    LONG,
    STRING,
    Field,
    Map,
    Primitive,
    Struct,
    Type,
    peel,
    wrap,
)
from driftline.observe.numbers import KINDS
from driftline.route.convert import convert, from_number_text, from_text
from driftline.route.source import NUMBERS, TEXT, Source, json_source
from driftline.route.sql import bind, default, each, first_of, literal, name, null, spark_type, variable


def select(
    struct: Struct, route: RecordRoute, source: Source, settings: Settings, row: str = ""
) -> list[str]:
    """One SQL expression for each field of ``struct``, in its order, over the parsed row ``row``.

    ``row`` is SQL of a struct of ``source``'s shape; empty: its fields are columns themselves.
    """
    return _Router(settings).columns(struct, route, source, f"{row}." if row else "")


LOST = "no column takes a value of the field"


@dataclass(frozen=True, slots=True)
class _Router:
    settings: Settings

    def columns(self, struct: Struct, route: RecordRoute, source: Source, prefix: str) -> list[str]:
        """The fields of a struct, from the parsed record whose fields stand behind ``prefix``."""
        ways = {way.name: (field, way) for field in route.fields for way in field.columns}
        return [
            self.column(f, *ways[f.name], source, prefix) if f.name in ways else default(f)
            for f in struct.fields
        ]

    def column(self, column: Field, field: FieldRoute, way: ColumnRoute, source: Source, prefix: str) -> str:
        parsed = source.fields.get(field.key)
        if parsed is None:
            return default(column)
        x = prefix + name(field.key)
        made = self.value(replace(way, type=column.type), field, parsed, x)
        made = self.guarded(made, column.type, field, parsed, x) if way is field.columns[0] else made
        return _or_default(made, column, parsed, x)

    def guarded(self, made: str, type_: Type, field: FieldRoute, source: Source, x: str) -> str:
        """The first column of a field; fails where a value has found its way to none of the field's columns.

        Observing has proven that it does; this is the proof's check, where a conversion may give null.
        """
        sure = source.kind == "text" and source.tag is None and source.type == STRING
        if source.dim != 0 or source.kind not in ("text", "variant") or sure:
            return made
        others = [self.value(way, field, source, x) for way in field.columns[1:]]
        scalar = (
            f"schema_of_variant({x}) rlike '^(?!VOID|ARRAY|OBJECT)'" if source.kind == "variant" else "true"
        )
        nowhere = "".join(f" and {sql} is null" for sql in others)
        lost = f"cast(raise_error({literal(f'{LOST} {field.key}')}) as {spark_type(type_)})"
        return f"coalesce({made}, if({x} is not null{nowhere} and {scalar}, {lost}, null))"

    def struct(self, struct: Struct, route: RecordRoute, source: Source, x: str) -> str:
        """A record as a struct; ``x`` itself where the parsed struct is the very same."""
        fields = self.columns(struct, route, source, f"{x}.")
        same = list(source.fields) == [f.name for f in struct.fields]
        if same and fields == [f"{x}.{name(f.name)}" for f in struct.fields]:
            return x
        made = ", ".join(f"{sql} as {name(f.name)}" for sql, f in zip(fields, struct.fields, strict=True))
        return f"if({x} is null, null, struct({made}))" if made else null(struct)

    def value(self, way: ColumnRoute, field: FieldRoute, source: Source, x: str) -> str:
        """A field's value in one of its columns."""
        if not way.takes and not (way.facet.dim or way.facet.base == RECORD):
            return null(way.type)
        if source.dim is None:
            return self.of_variant(way, field, source, x)
        if source.dim > way.facet.dim:
            return null(way.type)
        whole = all(f in way.takes and f.base in (way.facet.base, RECORD) for f in field.shape.facets)
        made = self.lists(way, source, x, source.dim, whole)
        return _wrapped(made, peel(way.type)[1], source.dim, way.facet.dim)

    def lists(self, way: ColumnRoute, source: Source, x: str, dim: int, whole: bool) -> str:
        """Lists of uniform depth. ``whole``: every value fits, so that no list can turn out empty of values."""
        if dim == 0:
            return self.scalar(way, source, x)
        made = each(x, lambda e: self.lists(way, source, e, dim - 1, whole))
        if whole or made == x:
            return made
        e = variable()
        valued = f"exists({x}, {e} -> {_has_value(e, source, dim - 1)})"
        return bind(made, lambda m: f"if({valued} and not exists({m}, {e} -> {e} is not null), null, {m})")

    def scalar(self, way: ColumnRoute, source: Source, x: str) -> str:
        """One value without its lists."""
        inner = peel(way.type)[1]
        match inner:
            case Struct():
                return self.of_record(inner, way, source, x)
            case Map():
                return self.of_map(inner, way, source, x)
            case Primitive("variant"):
                return x if source.kind == "variant" else f"try_cast({x} as variant)"
            case Primitive():
                return self.of_primitive(inner, way, source, x)
            case _:
                raise AssertionError(inner)

    def of_record(self, struct: Struct, way: ColumnRoute, source: Source, x: str) -> str:
        if way.record is None:
            empty = f"if(schema_of_variant({x}) = 'OBJECT<>', struct({_nulls(struct)}), null)"
            return empty if source.kind == "variant" and struct.fields else null(struct)
        route = way.record
        if source.kind == "record":
            return self.struct(struct, route, source, x)
        if source.kind != "variant":
            return null(struct)
        parsed = json_source(route, source.tag)
        ddl = parsed.ddl if parsed.fields else "map<string,variant>"
        got = f"try_variant_get({x}, '$', {literal(ddl)})"
        if parsed.fields:
            return bind(got, lambda r: self.struct(struct, route, parsed, r))
        return f"if({got} is null, null, struct({_nulls(struct)}))"

    def of_map(self, map_: Map, way: ColumnRoute, source: Source, x: str) -> str:
        if way.value is None:
            return null(map_)
        (value,) = way.value.columns
        way = replace(value, type=map_.value)
        if source.kind == "variant":
            inner = Source("variant", None, tag=source.tag)
            x = f"try_variant_get({x}, '$', 'map<string,variant>')"
        elif source.kind == "map" and source.value is not None:
            inner = source.value
        else:
            return null(map_)
        field = _value_field(value)
        key, v = variable("k"), variable("v")
        made = self.value(way, field, inner, v)
        return x if made == v else f"transform_values({x}, ({key}, {v}) -> {made})"

    def of_primitive(self, t: Primitive, way: ColumnRoute, source: Source, x: str) -> str:
        bases = [f.base for f in way.takes if isinstance(f.base, Primitive)]
        match source.kind:
            case "typed":
                assert source.type is not None
                fitting = [b for b in bases if b == source.type or (b == LONG and source.type == DOUBLE)]
                return convert(x, source.type, t, way.unit) if fitting else null(t)
            case "text":
                return self.of_text(t, bases, source, x, way.unit)
            case "variant":
                return self.of_scalar_variant(t, bases, source, x, way.unit)
            case _:
                return null(t)

    def of_text(self, t: Primitive, bases: list[Primitive], source: Source, x: str, unit: str | None) -> str:
        """A JSON string, or a tagged number, in a column of type ``t``."""
        if source.tag is None:
            return first_of(self.string_parts(t, bases, x, source.type, unit), t)
        tag, size = source.tag, len(source.tag)
        number = f"substr({x}, {size + 2})"
        kind = f"substr({x}, {size + 1}, 1)"
        parts = self.string_parts(t, bases, x, source.type, unit)
        kinds = _kinds(bases)
        of_number = ""
        if kinds and t.name in (*NUMBERS, "string"):
            listed = ", ".join(f"'{k}'" for k in kinds)
            of_number = f"if({kind} in ({listed}), {from_number_text(number, kind, t)}, null)"
        elif LONG in bases and t.name in ("timestamp", "timestamp_ntz"):
            whole = f"if({kind} = 'l', try_cast({number} as bigint), null)"
            of_number = convert(whole, LONG, t, unit)
        return f"if(startswith({x}, {literal(tag)}), {of_number or null(t)}, {first_of(parts, t)})"

    def string_parts(
        self, t: Primitive, bases: list[Primitive], x: str, sole: Primitive | None, unit: str | None
    ) -> list[str]:
        if t in (STRING, BINARY):
            return [convert(x, STRING, t, unit)] if any(b.name in TEXT for b in bases) else []
        texts = [b for b in bases if b.name in TEXT and b != STRING]
        read = {b: from_text(x, b, self.settings.dates) for b in texts if b != sole}
        if sole in texts:
            # Observing has judged every string of the field.
            read[sole] = f"try_cast({x} as {spark_type(sole)})"
        return [convert(made, b, t, unit) for b, made in read.items()]

    def of_scalar_variant(
        self, t: Primitive, bases: list[Primitive], source: Source, x: str, unit: str | None
    ) -> str:
        """A value of any type: each of the column's facets is asked for by the value's own type."""
        kind = f"schema_of_variant({x})"
        parts = []
        for base, test in (
            (BOOLEAN, "= 'BOOLEAN'"),
            (LONG, "= 'BIGINT'"),
            (DOUBLE, "rlike '^(DOUBLE|DECIMAL)'"),
        ):
            if base in bases and (base == BOOLEAN or source.tag is None):
                got = f"if({kind} {test}, try_variant_get({x}, '$', '{spark_type(base)}'), null)"
                parts.append(convert(got, base, t, unit))
        if any(b.name in TEXT for b in bases) or source.tag is not None:
            string = f"if({kind} = 'STRING', try_variant_get({x}, '$', 'string'), null)"
            parts.append(bind(string, lambda s: self.of_text(t, bases, source, s, unit)))
        return first_of(parts, t)

    def of_variant(self, way: ColumnRoute, field: FieldRoute, source: Source, x: str) -> str:
        """A value whose dimension only the value knows: wrapped as a whole, ragged lists inside (section 5)."""
        dim = way.facet.dim
        inner = replace(source, dim=0)

        def at(value: str, d: int) -> str:
            return _wrapped(self.uniform(way, inner, value, d), peel(way.type)[1], d, dim)

        def placed(v: str) -> str:
            dims = sorted({f.dim for f in way.takes if f.dim <= dim})
            if not dims:
                return self.empty(way, v, dim)
            if dim == 0:
                return self.scalar(way, inner, v)
            cases = " ".join(f"when {d} then {at(v, d)}" for d in dims)
            deepest = max((f.dim for f in field.shape.facets), default=0)
            depth = _depth(v, max(deepest, dim))
            return bind(depth, lambda n: f"if({n} is null, {self.empty(way, v, dim)}, case {n} {cases} end)")

        return bind(x, placed)

    def uniform(self, way: ColumnRoute, source: Source, v: str, dim: int) -> str:
        """``v`` as lists of depth ``dim``, a shallower element wrapped where it stands."""
        if dim == 0:
            return self.scalar(way, source, v)
        items = bind(
            f"if({_is_list(v)}, try_variant_get({v}, '$', 'array<variant>'), if({_is_void(v)}, null, array({v})))",
            lambda a: each(a, lambda e: self.uniform(way, source, e, dim - 1)),
        )
        e = variable()
        return bind(
            items,
            lambda m: (
                f"if({_depth(v, dim)} is not null and not exists({m}, {e} -> {e} is not null), null, {m})"
            ),
        )

    def empty(self, way: ColumnRoute, v: str, dim: int) -> str:
        """Lists of nothing but null, as they are; ``{}`` in a column of records."""
        inner = peel(way.type)[1]
        if dim == 0:
            return self.scalar(way, Source("variant", 0), v) if isinstance(inner, Struct) else null(inner)
        x = variable()
        items = (
            f"transform(try_variant_get({v}, '$', 'array<variant>'), {x} -> {self.empty(way, x, dim - 1)})"
        )
        return f"if({_is_list(v)}, {items}, {null(wrap(inner, dim))})"


def _kinds(bases: list[Primitive]) -> str:
    """Which tagged numbers a column takes, by the letters of `driftline.observe.numbers`."""
    if any(b.name in ("int", "float", "decimal") for b in bases):
        return "".join(KINDS.values())  # a declared column takes whatever is exact in it
    taken = {NUMBER_TEXT if b == STRING else b for b in bases}
    return "".join(letter for base, letter in KINDS.items() if base in taken)


def _or_default(made: str, column: Field, source: Source, x: str) -> str:
    """What was made of a value, or the column's default where there is none: an explicit null is none, as everywhere."""
    if column.write_default is None:
        return made
    nothing = _is_void(x) if source.kind == "variant" else f"{x} is null"
    return f"if({nothing}, {default(column)}, {made})"


def _nulls(struct: Struct) -> str:
    return ", ".join(f"{default(f)} as {name(f.name)}" for f in struct.fields)


def _value_field(value: ColumnRoute) -> FieldRoute:
    shape = FieldShape(Place(), {f: Seen(Place()) for f in value.takes})
    return FieldRoute("value", shape, (value,))


def _wrapped(made: str, inner: Type, dim: int, to: int) -> str:
    """A value of dimension ``dim`` in a column of dimension ``to``: wrapped whole, empty lists as they are."""
    if to == dim:
        return made

    def wrapped(v: str) -> str:
        around = "array(" * (to - dim) + v + ")" * (to - dim)
        if dim == 0:
            return f"if({v} is null, null, {around})"
        e = variable()
        nothing = null(wrap(inner, to - 1))
        return f"if({v} is null, null, if(exists({v}, {e} -> {e} is not null), {around}, transform({v}, {e} -> {nothing})))"

    return bind(made, wrapped)


def _has_value(e: str, source: Source, dim: int) -> str:
    """Whether an element of a list of this source holds any value."""
    if dim:
        x = variable()
        return f"exists({e}, {x} -> {_has_value(x, source, dim - 1)})"
    return f"not {_is_void(e)}" if source.kind == "variant" else f"{e} is not null"


def _is_list(v: str) -> str:
    return f"startswith(schema_of_variant({v}), 'ARRAY')"


def _is_void(v: str) -> str:
    return f"coalesce(is_variant_null({v}), true)"


def _depth(v: str, limit: int) -> str:
    """The dimension of a value's deepest value, null where it holds none; beyond ``limit`` it is ``limit`` + 1."""
    nothing = f"{_is_void(v)} or schema_of_variant({v}) = 'OBJECT<>'"
    if limit < 0:
        return f"if({nothing}, null, 0)"
    x = variable()
    inner = (
        f"array_max(transform(try_variant_get({v}, '$', 'array<variant>'), {x} -> {_depth(x, limit - 1)}))"
    )
    return f"if({nothing}, null, if({_is_list(v)}, 1 + {inner}, 0))"
