"""Typed sources: DataFrames, and files that carry a schema. The facets come from the schema (rules 2.3)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import reduce
from typing import TYPE_CHECKING, Any

from driftline.core.naming import marked_key
from driftline.core.routes import Plan, Settings
from driftline.core.shape import RECORD, Facet, FieldShape, MapOf, Place, RecordShape, Seen, merge_all
from driftline.core.types import (
    DOUBLE,
    LONG,
    Field,
    List,
    Map,
    Primitive,
    Schema,
    Struct,
    Type,
    decimal,
    dotted,
    peel,
)
from driftline.engine import PLAIN
from driftline.errors import UsageError
from driftline.observe.numbers import EXACT
from driftline.observe.observation import Observation, Tally
from driftline.route import select, typed_source
from driftline.route.sql import name, variable
from driftline.source.base import rejected_columns

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.types import DataType

_TYPES = {
    "boolean": "boolean",
    "byte": "int",
    "short": "int",
    "integer": "int",
    "long": "long",
    "float": "float",
    "double": "double",
    "string": "string",
    "varchar": "string",
    "char": "string",
    "binary": "binary",
    "date": "date",
    "timestamp": "timestamp",
    "timestamp_ntz": "timestamp_ntz",
    "variant": "variant",
}
_VOID = Primitive("void")
_INSTANTS = ("date", "timestamp", "timestamp_ntz")


@dataclass(slots=True)
class TypedFrames:
    """DataFrames of one batch, each with a schema of its own and a label for reports (a file, or empty)."""

    frames: Sequence[tuple[str, DataFrame]]
    bad: DataFrame | None = None
    bad_count: int = 0
    conf: Mapping[str, str] = field(default_factory=lambda: dict(PLAIN))

    def observe(self, schema: Schema, settings: Settings) -> Observation:
        structs = [core_struct(frame.schema) for _, frame in self.frames]
        shapes = [
            shape_of(struct, Place(label, 0)) for (label, _), struct in zip(self.frames, structs, strict=True)
        ]
        merged = merge_all(shapes)
        records = 0
        for (_, frame), struct in zip(self.frames, structs, strict=True):
            records += _look(frame, struct, merged, schema, settings)
        return Observation(merged, Tally(records=records, malformed=self.bad_count))

    def rows(self, plan: Plan, struct: Struct, settings: Settings) -> DataFrame:
        out = []
        for _, frame in self.frames:
            columns = select(struct, plan.route, typed_source(core_struct(frame.schema)), settings)
            out.append(
                frame.selectExpr(
                    *(f"{sql} as {name(f.name)}" for sql, f in zip(columns, struct.fields, strict=True))
                )
            )
        return reduce(lambda a, b: a.union(b), out)

    def rejected(self, everything: str | None = None) -> DataFrame | None:
        if everything is None:
            return self.bad
        rows = [_as_json(label, frame, everything) for label, frame in self.frames]
        return reduce(lambda a, b: a.union(b), [*rows, *([self.bad] if self.bad is not None else [])])

    def be_careful(self) -> bool:
        return False


def core_struct(schema: Any) -> Struct:
    """A Spark StructType as our types. Raises UsageError for a type that no table holds, with its path."""
    names = [f.name for f in schema.fields]
    twice = sorted({n for n in names if names.count(n) > 1})
    if twice:
        raise UsageError(f"the DataFrame has several columns named {twice[0]!r}", hint="rename one of them")
    return Struct(
        tuple(Field(f.name, _core(f.dataType, (f.name,)), required=not f.nullable) for f in schema.fields)
    )


def _core(type_: DataType, path: tuple[str, ...]) -> Type:
    kind = type_.typeName()
    spark: Any = type_
    match kind:
        case "struct":
            return Struct(tuple(Field(f.name, _core(f.dataType, (*path, f.name))) for f in spark.fields))
        case "array":
            return List(_core(spark.elementType, (*path, "element")))
        case "map":
            return Map(_core(spark.keyType, (*path, "key")), _core(spark.valueType, (*path, "value")))
        case "decimal":
            return decimal(spark.precision, spark.scale)
        case "void":
            return _VOID
        case _ if kind in _TYPES:
            return Primitive(_TYPES[kind])
        case _:
            raise UsageError(
                f"{dotted(path)}: type {kind} has no place in a table", hint="cast it, or drop the column"
            )


def shape_of(struct: Struct, place: Place) -> RecordShape:
    """The facets that a schema declares; a declared column counts even when it holds only nulls."""
    out = RecordShape()
    for i, f in enumerate(struct.fields):
        if f.name:
            out.fields[f.name] = _field_shape(f.type, Place(place.source, place.line, i))
    return out


def _field_shape(type_: Type, place: Place) -> FieldShape:
    dim, inner = peel(type_)
    shape = FieldShape(place)
    seen = Seen(place, typed=True)
    match inner:
        case Struct():
            if inner.fields:
                seen.record = shape_of(inner, place)
                shape.add(Facet(dim, RECORD), seen)
            else:
                shape.empty_record = True
        case Map(key=Primitive() as key):
            seen.value = _field_shape(inner.value, place)
            shape.add(Facet(dim, MapOf(key)), seen)
        case Primitive() if inner != _VOID:
            shape.add(Facet(dim, inner), seen)
        case _:
            shape.empty_lists = dim
    return shape


def _as_json(label: str, frame: DataFrame, reason: str) -> DataFrame:
    from pyspark.sql import functions as F

    return frame.select(
        *rejected_columns(raw=F.to_json(F.struct("*")), reason=F.lit(reason), source=F.lit(label))
    )


# Exactness: what the schema does not tell is asked of the data, in one pass, and only where it matters. -----


def _look(frame: DataFrame, struct: Struct, shape: RecordShape, schema: Schema, settings: Settings) -> int:
    """Counts the rows, and marks in ``shape`` longs beyond ±2^53, fine and far instants, missing required values."""
    asked: list[tuple[str, Any]] = []
    for way, sql in _questions(struct, shape, schema.struct, settings, "", lambda body: body):
        asked.append((sql, way))
    row = frame.selectExpr(
        "count(1)",
        *(f"coalesce(bool_or({sql}), false) as {name(f'q{i}')}" for i, (sql, _) in enumerate(asked)),
    ).head()
    assert row is not None
    for answer, (_, mark) in zip(row[1:], asked, strict=True):
        if answer:
            mark()
    return int(row[0])


def _questions(
    struct: Struct, shape: RecordShape, table: Struct, settings: Settings, prefix: str, around: Any
) -> Iterator[tuple[Any, str]]:
    known: dict[str, list[Field]] = {}
    for column in table.fields:
        marked = marked_key(column.doc, settings.mark)
        known.setdefault(column.name if marked is None else marked, []).append(column)
    for f in struct.fields:
        seen_field = shape.fields.get(f.name)
        if seen_field is None:
            continue
        columns = known.get(f.name, [])
        x = f"{prefix}{name(f.name)}"
        if any(c.required for c in columns):
            yield _marker(seen_field, "missing"), around(f"{x} is null")
        dim, inner = peel(f.type)
        bases = {peel(c.type)[1] for c in columns} | {facet.base for facet in seen_field.facets}
        inside = _exists(dim, around)
        if isinstance(inner, Primitive):
            seen = seen_field.facets.get(Facet(dim, inner))
            if seen is not None and inner == LONG and DOUBLE in bases:
                yield _marker(seen, "wide"), inside(x, lambda v: f"abs(cast({v} as decimal(20,0))) > {EXACT}")
            if seen is not None and inner.name in _INSTANTS and bases & {LONG, DOUBLE}:
                yield _marker(seen, "far"), inside(x, lambda v: f"year({v}) not between 1970 and 2199")
                if inner.name != "date":
                    for digits, unit in ((6, 1_000), (3, 1_000_000)):
                        micros = "cast(date_format({}, 'SSSSSS') as int)"
                        yield (_marker(seen, "fraction", digits),
                               inside(x, lambda v, u=unit, m=micros: f"{m.format(v)} % {u} <> 0"))  # fmt: skip
        elif isinstance(inner, Struct):
            seen = seen_field.facets.get(Facet(dim, RECORD))
            structs = [s for c in columns if isinstance(s := peel(c.type)[1], Struct)]
            if seen is not None and seen.record is not None:
                below = Struct(tuple(g for s in structs for g in s.fields))
                if dim:
                    v = variable()
                    yield from _questions(inner, seen.record, below, settings, f"{v}.",
                                          lambda body, x=x, v=v, d=dim: around(_nested(x, v, d, body)))  # fmt: skip
                else:
                    yield from _questions(inner, seen.record, below, settings, f"{x}.", around)


def _exists(dim: int, around: Any) -> Any:
    def ask(x: str, body: Any) -> str:
        if not dim:
            return str(around(body(x)))
        v = variable()
        return str(around(_nested(x, v, dim, body(v))))

    return ask


def _nested(x: str, v: str, dim: int, body: str) -> str:
    """``body`` of ``v`` for any element at depth ``dim``."""
    if dim == 1:
        return f"exists({x}, {v} -> {body})"
    outer = variable()
    return f"exists({x}, {outer} -> {_nested(outer, v, dim - 1, body)})"


def _marker(target: Seen | FieldShape, attribute: str, value: Any = True) -> Any:
    def mark() -> None:
        setattr(target, attribute, max(getattr(target, attribute), value))

    return mark
