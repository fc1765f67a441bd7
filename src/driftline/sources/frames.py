"""DataFrames as typed sources; facets come from their schema (rules 2.3)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial, reduce
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from driftline.convert import Converter
from driftline.convert.declared import VOID, Declared
from driftline.convert.rest import row_texts
from driftline.core.schema.types import Field, List, Map, Primitive, Schema, Struct, Type, decimal, dotted
from driftline.core.settings.table import TableSettings
from driftline.errors import UsageError
from driftline.observe.json_lines import Why
from driftline.observe.observation import Observation, Tally, merge_observations
from driftline.readers.columnar.rows import (
    AcceptedRows,
    ColumnGroup,
    OpenRows,
    Rows,
    RowsObserver,
    declared,
    has_required,
    read_checked,
    together,
)
from driftline.readers.columnar.split import read_resolved, resolved_columns, split_struct
from driftline.readers.json.rows import Run
from driftline.readers.rejects import Origin, Reject
from driftline.readers.task import AdmissionTerms, TaskReader
from driftline.runtime.spark_conf import PLAIN, configured
from driftline.sources.files import ROW_FILE
from driftline.sources.listing import PathTexts, path_fields
from driftline.sources.scan import BatchScan, Observed, Source
from driftline.sources.texts import JsonFrame, PlainTexts, TextScan
from driftline.sql.quoting import literal
from driftline.tasks.run import numbered
from driftline.tasks.written import batches_of, written_parts
from driftline.write import FrameTasks

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import DataType

# Of a task: the number of the frame, and what its rows are
_Seen = tuple[int, Observation]

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


@dataclass(frozen=True, kw_only=True)
class TypedFrames(Source):
    """DataFrames of one batch, each with a schema of its own and a label for reports.

    The label is the first of its files, or empty. ``partitioned``: the same, with the texts in the files'
    paths.
    """

    frames: Sequence[tuple[str, DataFrame]]
    partitioned: Sequence[tuple[str, DataFrame]] = ()
    conf: Mapping[str, str] = field(default_factory=lambda: dict(PLAIN))

    def open(
        self, schema: Schema, settings: TableSettings, before: BatchScan | None = None
    ) -> FrameScan | TextScan:
        """Open the frames for a table. Messages in an envelope are read as texts, those of a DataFrame."""
        row_key = settings.row_key
        # A patch tells an absent field from a null one, which columns do not.
        if row_key is not None and row_key.envelope and not row_key.patch and not self.files:
            ((_, frame),) = self.frames
            texts = _RowTexts(frame.columns)
            return JsonFrame(frame=numbered(frame), texts=texts, conf=self.conf).open(schema, settings)
        request = self.request(schema, settings)
        frames = self.partitioned if settings.hive and self.partitioned else self.frames
        return FrameScan(request, request.terms, frames)

    @property
    def spark(self) -> SparkSession:
        """The session of the frames."""
        return self.frames[0][1].sparkSession

    def written(self, folder: Path, *, hive: bool) -> list[WrittenRows]:
        """Read all rows in tasks, and write them to files in a folder; returns a reader of each frame's.

        ``hive``: with the texts in the files' paths. Raises UsageError for a type that no table holds.
        """
        frames = self.partitioned if hive and self.partitioned else self.frames
        for _, frame in frames:
            core_struct(frame.schema)
        with configured(self.spark, self.conf):
            written = [
                (label, frame.columns, written_parts(numbered(frame), folder)) for label, frame in frames
            ]
        return [WrittenRows.of(label, names, files) for label, names, files in written if files]

    def at_fault(self) -> str | None:
        """The first file that Spark cannot read, and its first such column, by reading each alone."""
        # Spark's own error may not name the file; each is read once more, alone, only after such an error.
        for label, frame in self.frames if self.files else ():
            if not _is_readable(frame, self.conf):
                columns = [(name, frame.select(f"`{name.replace('`', '``')}`")) for name in frame.columns]
                name = next((name for name, column in columns if not _is_readable(column, self.conf)), None)
                return label if name is None else f"{label}: {name}"
        return None


def _is_readable(frame: DataFrame, conf: Mapping[str, str]) -> bool:
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException

    try:
        with configured(frame.sparkSession, conf):
            # Spark reads all rows, and writes none.
            frame.write.format("noop").mode("overwrite").save()
    except (PySparkException, Py4JError):
        return False
    return True


@dataclass(frozen=True, slots=True)
class WrittenRows:
    """Reads the rows of a frame that were written to files.

    Attributes:
        label: the file that the frame is of, or empty.
        names: of the frame's columns.
        written: the files, in the order of the rows.
    """

    struct: Struct
    label: str
    names: Sequence[str]
    written: Sequence[str]

    @classmethod
    def of(cls, label: str, names: Sequence[str], written: Sequence[str]) -> WrittenRows:
        """The reader of files, whose columns are typed by the first one."""
        with pa.memory_map(written[0]) as file:
            schema = pa.ipc.open_file(file).schema
        fields = [f.with_name(name) for f, name in zip(schema, names, strict=True)]
        return cls(Declared(pa.schema(fields)).struct, label, names, written)

    @property
    def sizes(self) -> Sequence[int]:
        """The bytes of each file."""
        return [Path(file).stat().st_size for file in self.written]

    @property
    def paths(self) -> Sequence[str]:
        """The file that the rows of each part are of."""
        return [self.label] * len(self.written)

    def rows(self, part: int) -> Iterator[Rows]:
        """Yield the rows of a file."""
        for batch in batches_of(self.written[part]):
            yield _rows(batch, self.names, self.label)[0]


@dataclass(slots=True)
class _RowTexts(PlainTexts):
    """Rows of a frame as texts of JSON.

    Attributes:
        line: the number, from 1, of the next row in its partition.
    """

    names: Sequence[str]
    line: int = field(default=1)

    def runs(self, batch: pa.RecordBatch) -> Iterator[Run]:
        """The rows of a batch as one run."""
        rows, struct = _rows(batch, self.names, "")
        lines = row_texts(rows.batch, struct, points=True)
        reject = partial(_rejected, lines)
        yield Run(lines, "", self.line, reject)
        self.line += len(lines)


def _rejected(lines: Sequence[bytes], row: int, why: Why) -> Reject:
    return Reject(Origin(), lines[row], why)


@dataclass(frozen=True, slots=True)
class FrameScan(BatchScan):
    """DataFrames of typed columns, each with its label."""

    frames: Sequence[tuple[str, DataFrame]]

    def _tasks(self, conversion: Converter | None) -> FrameTasks:
        return FrameTasks(
            [
                (
                    _with_file(frame, label),
                    FrameReader(number, label, frame.columns, self.terms, conversion),
                )
                for number, (label, frame) in enumerate(self.frames)
            ]
        )

    def _guess(self, last: Observation | None) -> Observed | None:
        """The observation of the table's last batch if it covers the frames' schemas, or else these schemas.

        Returns None if the table has required columns. The schemas count as one record.
        """
        if has_required(self.schema):
            return None
        # One record, as a guess without records counts as none (`BatchScan.guess`).
        declared = replace(self._merged([], converted=False).observation, tally=Tally(records=1))
        covered = last is not None and last.shape.covers(declared.shape)
        return Observed(self, last if last is not None and covered else declared)

    def _merged(self, parts: Sequence[_Seen | None], *, converted: bool) -> Observed:
        observed = [part for part in parts if part is not None]
        return Observed(
            self,
            merge_observations(
                self._of_frame(number, [observation for frame, observation in observed if frame == number])
                for number in range(len(self.frames))
            ),
        )

    def _of_frame(self, number: int, parts: Sequence[Observation]) -> Observation:
        """Merge the observations of a frame's tasks, which know its columns as Arrow has them."""
        label, frame = self.frames[number]
        struct = core_struct(frame.schema)
        struct = split_struct(struct, resolved_columns(struct, self.terms))
        return together([declared(struct, label, self.terms), *parts], struct, label, self.terms)


@dataclass(frozen=True, slots=True)
class FrameReader(TaskReader["Iterator[pa.RecordBatch]", ColumnGroup, AcceptedRows, "_Seen | None"]):
    """Reads the rows of a frame, whose last column is the file of each."""

    number: int
    label: str
    names: Sequence[str]
    terms: AdmissionTerms
    converter: Converter | None = None

    @property
    def converts(self) -> bool:
        """True if there is a plan."""
        return self.converter is not None

    def open(self, batches: Iterator[pa.RecordBatch]) -> OpenFrame:
        """Open the batches of one task."""
        return OpenFrame(self, batches)


class OpenFrame(OpenRows):
    """The rows of a frame in one task."""

    def __init__(self, reader: FrameReader, batches: Iterable[pa.RecordBatch]) -> None:
        super().__init__(reader.terms, reader.converter)
        self._reader, self._batches = reader, batches
        self._observer: RowsObserver | None = None

    def groups(self) -> Iterator[ColumnGroup]:
        """Read the rows file by file."""
        reader = self._reader
        for batch in self._batches:
            for file, rows_of_file in _by_file(batch):
                rows, struct = _rows(rows_of_file, reader.names, file)
                rows, struct = read_resolved(rows, struct, reader.terms)
                # One observer for all files of the frame: they share its schema.
                self._observer = self._observer or RowsObserver(struct, reader.label, reader.terms)
                yield ColumnGroup(self._observer, [rows])

    def observed(self) -> _Seen | None:
        """The frame's number, and the observation; None without rows."""
        return None if self._observer is None else (self._reader.number, self._observer.result())


def with_texts(frames: Sequence[tuple[str, DataFrame]], texts: PathTexts) -> list[tuple[str, DataFrame]]:
    """Frames of a file each, with columns for the texts in the files' paths.

    If a file has such a column, that counts; nulls are filled in, and other values fail the batch.
    """
    fields = path_fields(texts)
    return [(file, reduce(partial(_with_text, file, texts[file]), fields, frame)) for file, frame in frames]


def _with_text(file: str, texts: Mapping[str, str | None], frame: DataFrame, field: Field) -> DataFrame:
    from pyspark.sql import functions as F

    in_path = texts.get(field.name)
    text = F.lit(in_path)
    if field.name not in frame.columns:
        return frame.select("*", text.cast(str(field.type)).alias(field.name))
    if in_path is None:
        return frame
    column = F.col(f"`{field.name.replace('`', '``')}`")
    # In SQL, as Spark 3.5 has it there alone.
    value = F.expr(f"try_cast({literal(in_path)} as {frame.schema[field.name].dataType.simpleString()})")
    # A path may tell less than the column, as a day does of its timestamps.
    agrees = column.isNull() | column.eqNullSafe(value) | column.cast("string").startswith(in_path)
    message = F.concat(
        F.lit(f"{file}: {field.name} is "),
        column.cast("string"),
        F.lit(f" in a row, and {in_path} in the path"),
    )
    return frame.withColumn(
        field.name, F.when(agrees, F.coalesce(column, value)).otherwise(F.raise_error(message))
    )


def _with_file(frame: DataFrame, label: str) -> DataFrame:
    """The frame with the file of each row as its last column, null if there is none."""
    from pyspark.sql import functions as F

    return numbered(frame.select("*", F.expr(ROW_FILE if label else "cast(null as string)")))


def _rows(batch: pa.RecordBatch, names: Sequence[str], source: str) -> tuple[Rows, Struct]:
    declared = Declared(batch.rename_columns(list(names)).schema)
    return read_checked(declared, batch.columns, source), declared.struct


def _by_file(batch: pa.RecordBatch) -> Iterator[tuple[str, pa.RecordBatch]]:
    """The rows of each file, without the column that names it."""
    *columns, files = batch.columns
    rows = batch.select(list(range(len(columns))))
    if files.null_count == len(files):
        yield "", rows
        return
    for file in files.unique().to_pylist():
        # To compare with a null gives null, not true.
        of_file = files.is_null() if file is None else pc.equal(files, file)
        yield file or "", rows.filter(of_file)


def core_struct(schema: Any) -> Struct:
    """A Spark StructType as our types. Raises UsageError for a type that no table holds, with its path."""
    names = [f.name for f in schema.fields]
    twice = sorted({n for n in names if names.count(n) > 1})
    if twice:
        raise UsageError(
            f"the DataFrame has more than one column named {twice[0]!r}", hint="rename one of them"
        )
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
                f"{dotted(path)}: type {kind} cannot be stored in a table", hint="cast or drop the column"
            )
