"""Rejected records with their reasons, and the origins of all records."""

from __future__ import annotations

from collections.abc import Generator, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from driftline.convert import arrow_schema
from driftline.convert.types import arrow_field, arrow_type
from driftline.core.planning.own_columns import SOURCE_KIND, own_column
from driftline.core.planning.plan import Conflict
from driftline.core.schema.types import Field, SourceLocation, Struct, dotted, name_text
from driftline.core.settings.table import PLACE
from driftline.readers.task import assign_parts
from driftline.write import AsideFile, PartTasks, Reported, RowTasks, SetAside, TaskResult, is_small

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# The columns in which a source gives what is not accepted;
# `driftline.quarantine.table` adds the batch and the time.
REJECTED = (
    "raw string, raw_bytes binary, reason string, path string, table_type string, incoming_type string, "
    "source string, line bigint, topic string, partition int, offset bigint, key string, key_bytes binary"
)
_TYPES: dict[str, str] = dict(tuple(pair.split()) for pair in REJECTED.split(", "))  # type: ignore[misc]


class Origin(NamedTuple):
    """The origin of one record: a line of a file, or an offset of a topic's partition.

    Attributes:
        key: the key of its message, if the table reads it.
    """

    source: str | None = None
    line: int | None = None
    topic: str | None = None
    partition: int | None = None
    offset: int | None = None
    key: bytes | None = None

    @property
    def location(self) -> SourceLocation:
        """The place that reports show."""
        if self.topic is not None:
            return SourceLocation(f"{self.topic}/{self.partition}", self.offset or 0)
        return SourceLocation(self.source or "", self.line or 0)


class Reject(NamedTuple):
    """A rejected record.

    Attributes:
        raw: its text, or its bytes if they are no text; None for a null value.
    """

    origin: Origin
    raw: bytes | None
    why: str | Conflict


def reject_batch(rejects: Iterable[Reject]) -> pa.RecordBatch:
    """Put rejects into the columns of `REJECTED`."""
    arrow = {"string": pa.string(), "binary": pa.binary(), "bigint": pa.int64(), "int": pa.int32()}
    rows = [_row(reject) for reject in rejects]
    columns = zip(*rows, strict=True) if rows else ((),) * len(_TYPES)
    arrays = [pa.array(v, arrow[t]) for v, t in zip(columns, _TYPES.values(), strict=True)]
    return pa.RecordBatch.from_arrays(arrays, list(_TYPES))


def _row(reject: Reject) -> tuple[Any, ...]:
    why = reject.why
    reason = (
        (why, None, None, None)
        if isinstance(why, str)
        else (why.why, dotted(why.path), why.table_type, why.incoming_type)
    )
    source, *place, key = reject.origin
    file = None if source is None else name_text(source)
    return *_text_and_bytes(reject.raw), *reason, file, *place, *_text_and_bytes(key)


def _text_and_bytes(raw: bytes | None) -> tuple[str | None, bytes | None]:
    """Return bytes as text, and also as bytes if they are no text."""
    if raw is None:
        return None, None
    text = raw.decode(errors="backslashreplace").replace("\0", "\\x00")
    # A NUL is UTF-8, and yet nothing that every database has in a text.
    return text, None if text.encode() == raw else raw


# A task does not know the lines before its part, so the quarantine's own tasks add them from the driver.
PART = "part"  # the column with the number of the part that a line was counted in


@dataclass(frozen=True, slots=True)
class Rejects:
    """Files of rejects, with the columns of `driftline.readers.rejects.REJECTED`, and perhaps a `PART`.

    Attributes:
        lines: the number of lines before each part in its file.
        names: other names for files.
    """

    files: Sequence[AsideFile]
    lines: Sequence[int] = ()
    names: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def of(cls, results: Sequence[TaskResult[Any]]) -> Rejects:
        """Collect the rejects of tasks."""
        return cls([result.aside for result in results if result.aside is not None])

    @property
    def rows(self) -> int:
        """The number of rejects."""
        return sum(file.rows for file in self.files)

    def tasks(self, spark: SparkSession, struct: Struct, constants: Mapping[str, Any]) -> RowTasks:
        """Return tasks that make rows of ``struct``.

        Args:
            constants: the values of further columns.
        """
        sizes, context = [file.size for file in self.files], spark.sparkContext
        shares = assign_parts(sizes, 1 if is_small(context, sum(sizes)) else context.defaultParallelism)
        totals = [sum(sizes[number] for number in share) for share in shares]
        return PartTasks(spark, totals, _RejectRows(self, shares, struct, constants))


@dataclass(frozen=True, slots=True)
class _RejectRows:
    rejects: Rejects
    shares: Sequence[Sequence[int]]
    struct: Struct
    constants: Mapping[str, Any]

    def rows(self, task_input: int, set_aside: SetAside) -> Generator[pa.RecordBatch, None, Reported[None]]:
        """Read the reject files of one task's share as rows of the quarantine. Nothing is set aside here."""
        for number in self.shares[task_input]:
            with self.rejects.files[number].open() as file:
                reader = pa.ipc.open_file(file)
                for batch in range(reader.num_record_batches):
                    yield self._row_batch(reader.get_batch(batch))
        return Reported(None)

    def _row_batch(self, rejects: pa.RecordBatch) -> pa.RecordBatch:
        schema = arrow_schema(self.struct)
        origins = {"source": self._sources(rejects), "line": self._lines(rejects)}
        columns = []
        for f in schema:
            if f.name in origins:
                columns.append(origins[f.name].cast(f.type))
            elif f.name in rejects.schema.names:
                columns.append(rejects.column(f.name).cast(f.type))
            else:
                columns.append(pa.array([self.constants.get(f.name)] * len(rejects), f.type))
        return pa.RecordBatch.from_arrays(columns, schema=schema)

    def _sources(self, rejects: pa.RecordBatch) -> pa.Array:
        sources = rejects.column("source")
        if not self.rejects.names:
            return sources
        return pa.array([self.rejects.names.get(path, path) for path in sources.to_pylist()], pa.string())

    def _lines(self, rejects: pa.RecordBatch) -> pa.Array:
        lines = rejects.column("line")
        if PART not in rejects.schema.names:
            return lines
        return pc.add(lines, pa.array(self.rejects.lines, pa.int64()).take(rejects.column(PART)))


# The column that has it, until the rows have their `_source`; no table has one of this name
ORIGIN = "\0origin"
# In reports, the place of records that Python holds: no file, so rows name none
OF_PYTHON = "records"
_PLACE_TYPES = {name: arrow_type(type_) for name, type_ in PLACE.items()}

Numbers: TypeAlias = (
    "int | Sequence[int | None] | NDArray[np.int64] | None"  # of the first of some records, or of each
)


class Origins(NamedTuple):
    """The origins of several records.

    Attributes:
        shared: the part that they have in common.
        numbers: their lines or offsets, None if unknown.
    """

    shared: Origin
    numbers: Numbers = None


def origin_array(parts: Sequence[tuple[int, Origins]]) -> pa.StructArray:
    """Build the origins of records in parts, each with its number of records.

    >>> origin_array([(2, Origins(Origin("a.json"), 7))]).to_pylist()[1]["line"]
    8
    """
    counts = [count for count, _ in parts]
    shared = [origins.shared for _, origins in parts]
    part_of = pa.array(np.repeat(np.arange(len(parts)), counts))
    numbers = pa.concat_arrays([_numbers(count, origins.numbers) for count, origins in parts])
    topics = pa.array([origin.topic for origin in shared], _PLACE_TYPES["topic"]).take(part_of)
    in_topic, none = topics.is_valid(), pa.scalar(None, pa.int64())
    columns: dict[str, Any] = {
        "file": pa.array([_file(origin) for origin in shared], _PLACE_TYPES["file"]).take(part_of),
        "line": pc.if_else(in_topic, none, numbers),
        "topic": topics,
        "partition": pa.array([origin.partition for origin in shared], _PLACE_TYPES["partition"]).take(
            part_of
        ),
        "offset": pc.if_else(in_topic, numbers, none),
    }
    return pa.StructArray.from_arrays(
        [columns[name].cast(type_) for name, type_ in _PLACE_TYPES.items()], list(_PLACE_TYPES)
    )


def _file(origin: Origin) -> str | None:
    return None if origin.source is None else name_text(origin.source)


def _numbers(count: int, numbers: Numbers) -> pa.Array:
    if numbers is None:
        return pa.nulls(count, pa.int64())
    return pa.array(np.arange(numbers, numbers + count) if isinstance(numbers, int) else numbers, pa.int64())


@dataclass(frozen=True, slots=True)
class OriginOfRows:
    """Fills the table's ``column``, if it has one, in rows of a batch; it is sent to tasks.

    Attributes:
        names: the fields that the setting asks for; others of the column are null.
        files: the names of files as a person used them.
    """

    column: Field | None
    names: Sequence[str]
    batch: str
    time: datetime
    files: Mapping[str, str]

    @classmethod
    def of(
        cls, struct: Struct, names: Sequence[str], batch: str, time: datetime, files: Mapping[str, str]
    ) -> OriginOfRows:
        """Create it for rows of ``struct``."""
        return cls(own_column(struct, SOURCE_KIND), names, batch, time, files)

    def __call__(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """Fill the column in the rows, and drop the column with their origins."""
        origins: pa.StructArray | None = None
        if ORIGIN in rows.schema.names:
            origins, rows = rows.column(ORIGIN), rows.drop_columns([ORIGIN])
        if self.column is None:
            return rows
        column = arrow_field(self.column)
        arrays = [self._values(f, origins, rows.num_rows) for f in column.type]
        filled = pa.StructArray.from_arrays(arrays, fields=list(column.type))
        return rows.set_column(rows.schema.get_field_index(self.column.name), column, filled)

    def _values(self, f: pa.Field, origins: pa.StructArray | None, count: int) -> pa.Array:
        constants = {"batch": self.batch, "time": self.time}
        if f.name not in self.names:
            return pa.nulls(count, f.type)
        if f.name in constants:
            return pa.repeat(pa.scalar(constants[f.name], f.type), count)
        if origins is None or OF_PYTHON in self.files.values():
            return pa.nulls(count, f.type)
        values = origins.field(f.name)
        return (self._named(values) if f.name == "file" and self.files else values).cast(f.type)

    def _named(self, paths: pa.Array) -> pa.Array:
        """Replace file paths by the names that a person used."""
        coded = paths.dictionary_encode()
        names = [name_text(self.files.get(path, path)) for path in coded.dictionary.to_pylist()]
        return pa.array(names, pa.string()).take(coded.indices)
