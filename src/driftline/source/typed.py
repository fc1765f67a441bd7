"""Typed sources: DataFrames, and files that carry a schema. The facets come from the schema (rules 2.3)."""

from __future__ import annotations

import pickle
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial, reduce
from typing import TYPE_CHECKING, Any

from driftline.convert import Converter
from driftline.convert.declared import VOID, Declared
from driftline.core.planning.admission import Judge
from driftline.core.planning.routes import Conflict, Plan, Settings, lean
from driftline.core.schema.types import (
    Field,
    List,
    Map,
    Primitive,
    Schema,
    Struct,
    Type,
    decimal,
    dotted,
)
from driftline.errors import UsageError
from driftline.observe.expect import Expect, expect
from driftline.observe.observation import Observation, merge_observations
from driftline.runtime.spark_conf import PLAIN
from driftline.source.base import REJECTED
from driftline.source.column_rows import (
    Rows,
    RowsObserver,
    Terms,
    converted_rows,
    rejected_rows,
    together,
)
from driftline.source.files import ROW_FILE
from driftline.write.frame import mapped, numbered

if TYPE_CHECKING:
    import pyarrow as pa
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
    conflicts: tuple[Conflict, ...] = ()
    conf: Mapping[str, str] = field(default_factory=lambda: dict(PLAIN))
    files: Sequence[str] = ()
    known: Expect = field(default_factory=Expect)

    def observe(self, schema: Schema, settings: Settings) -> Observation:
        self.known = expect(schema, settings)
        terms = Terms(self.known, settings, self.conflicts)
        seen = []
        for label, frame in self.frames:
            struct = core_struct(frame.schema)
            observe = partial(_observed, label, terms, frame.columns)
            parts = numbered(frame).mapInArrow(observe, "seen binary").collect()
            found = [pickle.loads(row.seen) for row in parts]  # noqa: S301  our own bytes
            seen.append(together(found, struct, label, terms))
        return merge_observations(seen)

    def refuse(self, judge: Judge, conflicts: Sequence[Conflict]) -> None:
        self.conflicts += tuple(conflicts)

    def rows(self, plan: Plan, struct: Struct, settings: Settings) -> DataFrame:
        terms = Terms(self.known, settings, self.conflicts)
        converter = Converter(struct, lean(plan.route), settings)
        out = []
        for _, frame in self.frames:
            convert = partial(_converted, terms, converter, frame.columns)
            out.append(mapped(numbered(frame), convert, struct))
        return reduce(lambda a, b: a.union(b), out)

    def rejected(self, everything: str | None = None) -> DataFrame | None:
        from pyspark.sql import functions as F

        terms, found = Terms(self.known, Settings(), self.conflicts), []
        for label, frame in self.frames:
            file = F.expr(ROW_FILE if label else "cast(null as string)")
            reject = partial(_rejected, terms, everything, frame.columns)
            found.append(numbered(frame.select("*", file)).mapInArrow(reject, REJECTED))
        return reduce(lambda a, b: a.union(b), found)


def _rows(batch: pa.RecordBatch, names: Sequence[str], source: str = "") -> tuple[Rows, Struct]:
    declared = Declared(batch.rename_columns(list(names)).schema)
    return Rows(declared.read(batch.columns), source), declared.struct


def _observed(
    label: str, terms: Terms, names: Sequence[str], batches: Iterable[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    import pyarrow as pa

    observer: RowsObserver | None = None
    for batch in batches:
        rows, struct = _rows(batch, names)
        observer = observer or RowsObserver(struct, label, terms)
        observer.feed(rows)
    if observer is not None:
        yield pa.RecordBatch.from_arrays([pa.array([pickle.dumps(observer.result())], pa.binary())], ["seen"])


def _converted(
    terms: Terms, converter: Converter, names: Sequence[str], batches: Iterable[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        rows, struct = _rows(batch, names)
        yield from converted_rows([rows], struct, terms, converter)


def _rejected(
    terms: Terms, everything: str | None, names: Sequence[str], batches: Iterable[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """The last column of the batches is the file that each row came from."""
    for batch in batches:
        for file, some in _by_file(batch):
            rows, struct = _rows(some, names, file)
            yield from rejected_rows(rows, struct, terms, everything)


def _by_file(batch: pa.RecordBatch) -> Iterator[tuple[str, pa.RecordBatch]]:
    """The rows of each file, without the column that names it."""
    import pyarrow.compute as pc

    *columns, files = batch.columns
    rows = batch.select(list(range(len(columns))))
    for file in files.unique().to_pylist():
        of_file = files.is_null() if file is None else pc.equal(files, file)
        yield file or "", rows.filter(of_file)


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
