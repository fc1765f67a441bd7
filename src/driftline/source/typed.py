"""Typed sources: DataFrames, and files that carry a schema. The facets come from the schema (rules 2.3)."""

from __future__ import annotations

import pickle
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial, reduce
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from driftline.convert import Converter
from driftline.convert.declared import Declared
from driftline.convert.leaf_readings import VOID
from driftline.core.planning.admission import AdmissionCheck
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
from driftline.observe.expect import ExpectedField, expect
from driftline.observe.observation import Observation, Tally, merge_observations
from driftline.runtime.spark_conf import PLAIN
from driftline.source.base import REJECTED
from driftline.source.column_rows import (
    Rows,
    RowsObserver,
    RowTerms,
    converted_rows,
    has_required,
    rejected_rows,
    together,
)
from driftline.source.faulty_values import checked
from driftline.source.files import ROW_FILE
from driftline.source.hive import PathTexts, path_fields
from driftline.source.likely import likely, remember
from driftline.source.set_aside import Rejects
from driftline.write import FrameTasks, RowTasks, SetAside, observed_by
from driftline.write.frame import numbered

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.types import DataType

_Seen = tuple[int, Observation]  # of a task: the number of the frame, and what its rows are

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
    """DataFrames of one batch, each with a schema of its own and a label for reports.

    The label is the first of its files, or empty. ``partitioned``: the same, with the texts in the files'
    paths.
    """

    frames: Sequence[tuple[str, DataFrame]]
    conflicts: tuple[Conflict, ...] = ()
    conf: Mapping[str, str] = field(default_factory=lambda: dict(PLAIN))
    files: Sequence[str] = ()
    partitioned: Sequence[tuple[str, DataFrame]] = ()
    known: ExpectedField = field(default_factory=ExpectedField)
    asked: tuple[Schema, Settings] | None = None
    begun: FrameTasks | None = None

    def guess(self, schema: Schema, settings: Settings) -> Observation | None:
        """The observation of the table's last batch if it covers the frames' schemas, or else these schemas.

        Returns None if the table has required columns. The schemas count as one record.
        """
        self._ask(schema, settings)
        if has_required(schema):
            return None
        declared = replace(self._together([], settings), tally=Tally(records=1))
        last = likely(schema, settings)
        return last if last is not None and last.shape.covers(declared.shape) else declared

    def observe(self, schema: Schema, settings: Settings) -> Observation:
        """Observe all rows; observations of tasks for the same schema and settings are reused."""
        same = self.asked == (schema, settings) and not self.conflicts
        observed = observed_by(self.begun) if same else None
        parts = None if observed is None else [part for part in observed if part is not None]
        if parts is None:
            self._ask(schema, settings)
            terms = RowTerms(self.known, settings, self.conflicts)
            parts = [part for number in range(len(self.frames)) for part in self._observed(number, terms)]
        seen = self._together(parts, settings)
        remember(schema, settings, seen)
        return seen

    def refuse(self, judge: AdmissionCheck, conflicts: Sequence[Conflict]) -> None:
        """Reject rows by the conflicts alone, without the ``judge``."""
        self.conflicts += tuple(conflicts)

    def tasks(self, plan: Plan, struct: Struct, settings: Settings) -> RowTasks:
        """Tasks that convert the rows of each frame by the plan, and observe them."""
        terms = RowTerms(self.known, settings, self.conflicts)
        converter = Converter(struct, lean(plan.route), settings)
        self.begun = FrameTasks(
            [
                (_with_file(frame, label), _FrameRows(number, label, terms, converter, frame.columns))
                for number, (label, frame) in enumerate(self.frames)
            ]
        )
        return self.begun

    def set_aside(self) -> Rejects | None:
        """The rows that the tasks set aside; None if they have not run."""
        return None if self.begun is None else Rejects.of(self.begun)

    def rejected(self, everything: str | None = None) -> DataFrame | None:
        """Read the frames once more for the rejected rows."""
        terms, frames = RowTerms(self.known, Settings(), self.conflicts), []
        for label, frame in self.frames:
            reject = partial(_rejected, terms, everything, frame.columns)
            frames.append(_with_file(frame, label).mapInArrow(reject, REJECTED))
        return reduce(lambda a, b: a.union(b), frames)

    def _ask(self, schema: Schema, settings: Settings) -> None:
        self.known, self.asked, self.begun = expect(schema, settings), (schema, settings), None
        if settings.hive and self.partitioned:
            self.frames = self.partitioned

    def _observed(self, number: int, terms: RowTerms) -> list[_Seen]:
        label, frame = self.frames[number]
        observe = partial(_observed, label, terms, frame.columns)
        parts = numbered(frame).mapInArrow(observe, "seen binary").collect()
        return [(number, pickle.loads(row.seen)) for row in parts]  # noqa: S301  our own bytes

    def _together(self, parts: Sequence[_Seen], settings: Settings) -> Observation:
        """One observation of all parts."""
        terms = RowTerms(self.known, settings, self.conflicts)
        return merge_observations(
            together([seen for at, seen in parts if at == number], core_struct(frame.schema), label, terms)
            for number, (label, frame) in enumerate(self.frames)
        )


@dataclass(frozen=True, slots=True)
class _FrameRows:
    """The row maker of a frame's rows, whose last column is the file of each."""

    number: int
    label: str
    terms: RowTerms
    converter: Converter
    names: Sequence[str]

    def rows(
        self, given: Iterator[pa.RecordBatch], set_aside: SetAside
    ) -> Generator[pa.RecordBatch, None, _Seen | None]:
        """Convert the rows file by file; returns the frame's number and observation, None without rows."""
        observer: RowsObserver | None = None
        for batch in given:
            for file, some in _by_file(batch):
                rows, struct = _rows(some, self.names, file)
                observer = observer or RowsObserver(struct, self.label, self.terms)
                yield from converted_rows([rows], observer, self.converter, set_aside)
        return None if observer is None else (self.number, observer.result())


def with_texts(frames: Sequence[tuple[str, DataFrame]], texts: PathTexts) -> list[tuple[str, DataFrame]]:
    """Frames of a file each, with columns for the texts in the files' paths.

    If a file has such a column, that counts; nulls are filled in, and other values fail the batch.
    """
    fields = path_fields(texts)
    return [(file, reduce(partial(_with_text, file, texts[file]), fields, frame)) for file, frame in frames]


def _with_text(file: str, texts: Mapping[str, str | None], frame: DataFrame, field: Field) -> DataFrame:
    from pyspark.sql import functions as F

    said = texts.get(field.name)
    text = F.lit(said)
    if field.name not in frame.columns:
        return frame.select("*", text.cast(str(field.type)).alias(field.name))
    if said is None:
        return frame
    own = F.col(f"`{field.name.replace('`', '``')}`")
    value = text.try_cast(frame.schema[field.name].dataType)
    agrees = own.isNull() | own.eqNullSafe(value) | own.cast("string").startswith(said)
    message = F.concat(
        F.lit(f"{file}: {field.name} is "), own.cast("string"), F.lit(f" in a row, and {said} in the path")
    )
    return frame.withColumn(
        field.name, F.when(agrees, F.coalesce(own, value)).otherwise(F.raise_error(message))
    )


def _with_file(frame: DataFrame, label: str) -> DataFrame:
    """The frame with the file of each row as its last column, null if there is none."""
    from pyspark.sql import functions as F

    return numbered(frame.select("*", F.expr(ROW_FILE if label else "cast(null as string)")))


def _rows(batch: pa.RecordBatch, names: Sequence[str], source: str = "") -> tuple[Rows, Struct]:
    declared = Declared(batch.rename_columns(list(names)).schema)
    return checked(declared.read(batch.columns), declared.struct, source), declared.struct


def _observed(
    label: str, terms: RowTerms, names: Sequence[str], batches: Iterable[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    observer: RowsObserver | None = None
    for batch in batches:
        rows, struct = _rows(batch, names)
        observer = observer or RowsObserver(struct, label, terms)
        observer.feed(rows)
    if observer is not None:
        yield pa.RecordBatch.from_arrays([pa.array([pickle.dumps(observer.result())], pa.binary())], ["seen"])


def _rejected(
    terms: RowTerms, everything: str | None, names: Sequence[str], batches: Iterable[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """The last column of the batches is the file that each row came from."""
    for batch in batches:
        for file, some in _by_file(batch):
            rows, struct = _rows(some, names, file)
            yield from rejected_rows(rows, struct, terms, everything)


def _by_file(batch: pa.RecordBatch) -> Iterator[tuple[str, pa.RecordBatch]]:
    """The rows of each file, without the column that names it."""
    *columns, files = batch.columns
    rows = batch.select(list(range(len(columns))))
    if files.null_count == len(files):
        yield "", rows
        return
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
