"""Rejects that tasks wrote while they made rows: read again, as rows of a quarantine."""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from driftline.convert import arrow_schema
from driftline.core.schema.types import Struct
from driftline.readers.shares import dealt
from driftline.write import AsideFile, PartTasks, Reported, RowTasks, SetAside, TaskResult, is_small

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PART = "part"  # the column with the number of the part that a line was counted in


@dataclass(frozen=True, slots=True)
class Rejects:
    """Files with the columns of `driftline.readers.rejects.REJECTED`, and perhaps a `PART`.

    ``lines``: the number of lines before each part in its file; ``names``: other names for files.
    """

    files: Sequence[AsideFile]
    lines: Sequence[int] = ()
    names: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def of(cls, results: Sequence[TaskResult[Any]]) -> Rejects:
        """The rejects of tasks."""
        return cls([result.aside for result in results if result.aside is not None])

    @property
    def rows(self) -> int:
        """The number of rejects."""
        return sum(file.rows for file in self.files)

    def tasks(self, spark: SparkSession, struct: Struct, constants: Mapping[str, Any]) -> RowTasks:
        """Tasks that make rows of ``struct``: ``constants`` are the values of further columns."""
        sizes, context = [file.size for file in self.files], spark.sparkContext
        shares = dealt(sizes, 1 if is_small(context, sum(sizes)) else context.defaultParallelism)
        totals = [sum(sizes[number] for number in share) for share in shares]
        return PartTasks(spark, totals, _RejectRows(self, shares, struct, constants))


@dataclass(frozen=True, slots=True)
class _RejectRows:
    rejects: Rejects
    shares: Sequence[Sequence[int]]
    struct: Struct
    constants: Mapping[str, Any]

    def rows(self, given: int, set_aside: SetAside) -> Generator[pa.RecordBatch, None, Reported[None]]:
        """Read the reject files of one task's share as rows of the quarantine. Nothing is set aside here."""
        for number in self.shares[given]:
            with self.rejects.files[number].open() as file:
                reader = pa.ipc.open_file(file)
                for batch in range(reader.num_record_batches):
                    yield self._row_batch(reader.get_batch(batch))
        return Reported(None)

    def _row_batch(self, rejects: pa.RecordBatch) -> pa.RecordBatch:
        schema = arrow_schema(self.struct)
        own = {"source": self._sources(rejects), "line": self._lines(rejects)}
        columns = []
        for f in schema:
            if f.name in own:
                columns.append(own[f.name].cast(f.type))
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
