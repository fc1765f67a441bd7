"""Typed sources: DataFrames, and files that carry a schema. The facets come from the schema (rules 2.3)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import reduce
from typing import TYPE_CHECKING, Any

from driftline.core.exclude import without_excluded
from driftline.core.judge import Judge
from driftline.core.routes import Conflict, Plan, Settings
from driftline.core.shape import Facet, FieldShape, Place, RecordShape, merge_all
from driftline.core.types import (
    Field,
    List,
    Map,
    Path,
    Primitive,
    Schema,
    Struct,
    Type,
    decimal,
    dotted,
)
from driftline.engine import PLAIN
from driftline.errors import UsageError
from driftline.observe.arrow import VOID, shape_of
from driftline.observe.observation import Observation, Tally
from driftline.route import select, typed_source
from driftline.route.sql import name
from driftline.source.base import rejected_columns
from driftline.source.files import ROW_FILE
from driftline.source.typed_conflicts import accepted_rows, rejected_rows
from driftline.source.typed_look import look

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


@dataclass(slots=True)
class TypedFrames:
    """DataFrames of one batch, each with a schema of its own and a label for reports: the first of its files, or empty."""

    frames: Sequence[tuple[str, DataFrame]]
    bad: DataFrame | None = None
    bad_count: int = 0
    conflicts: tuple[Conflict, ...] = ()
    conf: Mapping[str, str] = field(default_factory=lambda: dict(PLAIN))
    files: Sequence[str] = ()

    def observe(self, schema: Schema, settings: Settings) -> Observation:
        shapes, tally = [], Tally(malformed=self.bad_count)
        structs = [core_struct(frame.schema) for _, frame in self.frames]
        for (label, _), struct in zip(self.frames, structs, strict=True):
            shape = shape_of(struct, Place(label, 0))
            shapes.append(without_excluded(_without_refused(shape, self.conflicts), settings.contract))
        merged = merge_all(shapes)
        for (_, frame), struct in zip(self.frames, structs, strict=True):
            tally += look(frame, struct, merged, schema, settings, self.conflicts)
        return Observation(merged, tally)

    def refuse(self, judge: Judge, conflicts: Sequence[Conflict]) -> None:
        self.conflicts += tuple(conflicts)

    def rows(self, plan: Plan, struct: Struct, settings: Settings) -> DataFrame:
        out = []
        for _, frame in self.frames:
            given = core_struct(frame.schema)
            columns = select(struct, plan.route, typed_source(given), settings)
            out.append(
                accepted_rows(frame, given, self.conflicts).selectExpr(
                    *(f"{sql} as {name(f.name)}" for sql, f in zip(columns, struct.fields, strict=True))
                )
            )
        return reduce(lambda a, b: a.union(b), out)

    def rejected(self, everything: str | None = None) -> DataFrame | None:
        found = [] if self.bad is None else [self.bad]
        for label, frame in self.frames:
            struct = core_struct(frame.schema)
            refused = rejected_rows(frame, struct, self.conflicts, label)
            found += [] if refused is None else [refused]
            if everything is not None:
                found.append(_as_json(label, accepted_rows(frame, struct, self.conflicts), everything))
        return reduce(lambda a, b: a.union(b), found) if found else None

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
            return VOID
        case _ if kind in _TYPES:
            return Primitive(_TYPES[kind])
        case _:
            raise UsageError(
                f"{dotted(path)}: type {kind} has no place in a table", hint="cast it, or drop the column"
            )


def _as_json(label: str, frame: DataFrame, reason: str) -> DataFrame:
    from pyspark.sql import functions as F

    return frame.select(
        *rejected_columns(
            raw=F.to_json(F.struct("*")), reason=F.lit(reason), source=F.expr(ROW_FILE if label else "null")
        )
    )


def _without_refused(shape: RecordShape, conflicts: Iterable[Conflict]) -> RecordShape:
    """The shape of the rows that are left: without the facets whose every value was refused."""
    for conflict in conflicts:
        if conflict.facet is not None and conflict.inexact is None:
            _forget(shape.fields, conflict.path, conflict.facet)
    return shape


def _forget(fields: dict[str, FieldShape], path: Path, facet: Facet) -> None:
    key, *rest = path
    field = fields.get(key)
    if field is None:
        return
    below = tuple(rest)
    while below[:1] == ("element",):
        below = below[1:]
    if not below:
        field.facets.pop(facet, None)
        return
    for seen in field.facets.values():
        if seen.record is not None:
            _forget(seen.record.fields, below, facet)
        if seen.value is not None and below[0] == "value":
            _forget({"value": seen.value}, below, facet)
