"""Opens a person's data as a source: DataFrames, files, pipes, Python rows."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException

from driftline.core.schema.types import name_text
from driftline.errors import DataError, UsageError
from driftline.files.text import LineRange
from driftline.readers.columnar.message_files import row_messages
from driftline.readers.columnar.parquet import parquet_readers
from driftline.readers.rejects import OF_PYTHON
from driftline.runtime.failure import WHOLE, explained
from driftline.runtime.session import must_be_classic
from driftline.runtime.spark_conf import FILES, configured, literally
from driftline.sources.column_files import ColumnFiles
from driftline.sources.files import Stamp, expand, stamps
from driftline.sources.frames import TypedFrames, with_texts
from driftline.sources.in_memory import written, written_as_text
from driftline.sources.inputs import (
    Data,
    column_of_no_frame,
    format_of_no_files,
    is_pandas,
    is_table,
    paths_or_rows,
)
from driftline.sources.json_files import JsonFiles
from driftline.sources.listing import PathTexts, path_texts
from driftline.sources.scan import Source
from driftline.sources.spooled import is_pipe, is_url, place_of, spooled, told_where
from driftline.sources.texts import json_column as of_column

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession


@dataclass(frozen=True, slots=True)
class Messages:
    """Python records that are messages in an envelope; they are read as JSON texts."""

    data: Any


@dataclass(frozen=True, slots=True)
class FileParts:
    """Files of which some are read in part: the lines in ``ranges``, by path."""

    files: Sequence[str]
    ranges: Mapping[str, LineRange]


@contextmanager
def opened(
    spark: SparkSession,
    data: Data | Messages | FileParts,
    *,
    format: str | None = None,  # noqa: A002
    json_column: str | None = None,
    strings: bool = False,
    shared: str | None = None,
) -> Iterator[Source]:
    """Open one batch of data. Temporary files exist as long as the source is used.

    Args:
        spark: the session.
        data: a Spark DataFrame, files or parts of them, a pipe, an archive, or Python rows.
        format: the format of files; by default judged by their endings.
        json_column: a frame's column of JSON records.
        strings: CSV cells and texts of Python records stay text.
        shared: the lake's folder, which all tasks see, if known.

    Raises UsageError, DataError.
    """
    if hasattr(data, "selectExpr"):
        must_be_classic(data)
        if format is not None:
            raise format_of_no_files(format)
        yield of_frame(cast("DataFrame", data), json_column)
        return
    if json_column is not None:
        raise column_of_no_frame()
    messages, ranges = isinstance(data, Messages), dict[str, LineRange]()
    if isinstance(data, FileParts):
        ranges, data = dict(data.ranges), list(data.files)
    paths, rows = paths_or_rows(data.data if isinstance(data, Messages) else data)
    room = place_of(spark, shared)
    if rows is not None:
        if format is not None:
            raise format_of_no_files(format)
        with (
            told_where(spark, room),
            _of_rows(spark, rows, room, messages=messages, strings=strings) as source,
        ):
            yield source
        return
    kind, inputs = expand(paths, format, shared)
    # Around all that reads: tasks on other machines may not see the files, and their error gets its advice
    # here.
    with told_where(spark, room), spooled(inputs, kind, room) as (files, names):
        # The ledger knows files as a person named them, not their copies.
        originals = stamps(file for file in inputs if not (is_pipe(file) or is_url(file))) if names else None
        yield _of_files(spark, kind, Named(files, names, originals), strings=strings, ranges=ranges)


@contextmanager
def _of_rows(
    spark: SparkSession, rows: Any, room: Path | None, *, messages: bool, strings: bool
) -> Iterator[Source]:
    """Open Python rows. Records of JSON values are read like JSON lines.

    Args:
        messages: records are messages in an envelope, which only JSON can spell.
        strings: texts stay text.
    """
    has_columns = is_pandas(rows) or is_table(rows)
    with ExitStack() as stack:
        if not has_columns and (messages or not strings):
            file, others = stack.enter_context(written_as_text(rows, room))
            if others is None:
                yield JsonFiles(spark=spark, files=[file], names={file: OF_PYTHON}, originals={})
                return
            if messages:
                raise UsageError(
                    "a message holds a value that JSON does not have", "pass messages as they came, as JSON"
                )
            rows = others
        readers = stack.enter_context(written(rows, room))
        yield ColumnFiles(
            spark=spark,
            found=readers,
            in_order=len(readers) < 2,
            tells_absent=has_columns,
            messages=row_messages,
        )


def of_frame(frame: DataFrame, json_column: str | None = None) -> Source:
    """Open a Spark DataFrame as one batch.

    Args:
        json_column: its column of JSON records.
    """
    return TypedFrames(frames=[("", frame)]) if json_column is None else of_column(frame, json_column)


class Named(NamedTuple):
    """The present files, with the ``names`` and original versions of those that were copied."""

    files: Sequence[str]
    names: Mapping[str, str] = {}
    originals: Mapping[str, Stamp] | None = None

    def texts(self) -> PathTexts:
        """Return the texts in the files' paths."""
        named = {file: self.names.get(file, file) for file in self.files}
        return {file: path_texts(name) if "=" in name else {} for file, name in named.items()}


def _of_files(
    spark: SparkSession, kind: str, named: Named, *, strings: bool, ranges: Mapping[str, LineRange]
) -> Source:
    """Open files as a source."""
    try:
        return _of_kind(spark, kind, named, strings=strings, ranges=ranges)
    except (PySparkException, Py4JError, OSError) as error:
        raise DataError(*explained(error)) from error


def _of_kind(
    spark: SparkSession, kind: str, named: Named, *, strings: bool, ranges: Mapping[str, LineRange]
) -> Source:
    files, texts, common = named.files, named.texts(), {**named._asdict(), "format": kind}
    match kind:
        case "json":
            return JsonFiles(spark=spark, texts=texts, ranges=ranges, **common)
        case "excel":
            return JsonFiles(spark=spark, texts=texts, workbooks=True, **common)
        case "csv":
            from driftline.readers.csv.reader import CsvFiles  # late: with the first file of its kind

            return ColumnFiles(
                spark=spark, found=CsvFiles(spark, files, strings, ranges), texts=texts, **common
            )
        case "parquet":
            found = parquet_readers(files)
            return ColumnFiles(spark=spark, found=found, texts=texts, messages=row_messages, **common)
        case "avro":
            from driftline.readers.avro.files import (  # late: with the first file
                AvroFiles,
                avro_found,
                avro_messages,
            )

            blocks = AvroFiles(avro_found(files))
            return ColumnFiles(spark=spark, found=blocks, texts=texts, messages=avro_messages, **common)
        case _:
            from driftline.readers.columnar.orc import check_timestamps  # late: with the first file

            if odd := next((name for file in files if (name := name_text(file)) != file), None):
                raise UsageError(f"{odd}: Spark reads {kind} files by names in UTF-8 only", "rename the file")
            # Before Spark reads them: it cuts nanoseconds without a word.
            check_timestamps(spark, files)
            with configured(spark, FILES):
                frames = [(file, _load(spark, kind, file)) for file in files]
                partitioned = with_texts(frames, texts)
            return TypedFrames(frames=frames, partitioned=partitioned, conf=FILES, **common)


def _load(spark: SparkSession, kind: str, file: str) -> DataFrame:
    try:
        return spark.read.format(kind).load(literally(file))
    except (PySparkException, Py4JError) as error:  # the latter of a file whose end is missing
        message, hint = explained(error)
        cause = message.removeprefix(f"{file}: ").removeprefix("cannot be read").removeprefix(": ")
        raise UsageError(f"{file}: cannot be read as {kind}: {cause}", hint or WHOLE) from error
