"""The rows of a batch in slices: Arrow files of its folder, one for each task, until it is known which count.

Of a slice only the columns that are asked for are read here; tasks make the rows that live of the slices.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from driftline.errors import DataError
from driftline.write import BatchFolder, PartTasks, Reported, RowTasks, SetAside
from driftline.write.run import number_and_attempt

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from pyspark.sql import SparkSession


DELETES = "\0deletes"  # of a slice, the column that flags rows which delete; no table has one of this name


@dataclass(frozen=True, slots=True)
class RowSlice:
    """A file of rows in a batch's folder; ``size``: bytes in memory."""

    name: str
    rows: int
    size: int


@dataclass(frozen=True, slots=True)
class Slices:
    """The rows of a batch, in the order of its tasks: that of files, lines and offsets."""

    folder: BatchFolder
    parts: Sequence[RowSlice]

    @classmethod
    def of(cls, tasks: RowTasks, folder: BatchFolder | None, table: str) -> Slices:
        """Have the tasks write their rows. Raises DataError where they see no common folder."""
        if folder is None:
            raise DataError(
                f"{table}: rows by key need a folder that all tasks see",
                "keep the table on a disk that all workers share, or in a store that they reach",
            )
        written = tasks.run(partial(_write, folder), folder)
        return cls(folder, [part for part in written if part is not None])

    @property
    def rows(self) -> int:
        """The number of rows."""
        return sum(part.rows for part in self.parts)

    def read(self, names: Sequence[str]) -> pa.Table:
        """Some columns of all rows."""
        return pa.concat_tables(_columns(self.folder, part, names) for part in self.parts)

    def tasks(
        self, spark: SparkSession, live: NDArray[np.int64], order: pa.Array | None, column: int | None
    ) -> PartTasks:
        """Tasks that make the rows that are ``live``, ascending, with their ``order`` in this ``column``."""
        ends = np.cumsum([0, *(part.rows for part in self.parts)])
        live_parts: list[tuple[RowSlice, str]] = []
        for number, part in enumerate(self.parts):
            low, high = np.searchsorted(live, ends[number : number + 2])
            if low == high:
                continue
            rows_of_part = pa.array(live[low:high] - ends[number])
            texts = pa.nulls(high - low, pa.string()) if order is None else order.slice(low, high - low)
            name = f"{number:05d}-0-2.arrow"
            with self.folder.create(name) as file:
                table = pa.table({"row": rows_of_part, "order": texts})
                with pa.ipc.new_file(file, table.schema) as writer:
                    writer.write_table(table)
            live_parts.append((part, name))
        sizes = [part.size for part, _ in live_parts]
        return PartTasks(spark, sizes, _LiveRows(self.folder, live_parts, column))


def _write(folder: BatchFolder, rows: Iterable[pa.RecordBatch]) -> RowSlice | None:
    """In a task: write its rows; None if there are none."""
    number, attempt = number_and_attempt(folder)
    name = f"{number:05d}-{attempt}-1.arrow"
    writer, count, size = None, 0, 0
    with folder.create(name) as file:
        try:
            for batch in rows:
                writer = writer or pa.ipc.new_file(file, batch.schema)
                writer.write_batch(batch)
                count, size = count + batch.num_rows, size + batch.nbytes
        finally:
            if writer is not None:
                writer.close()
    return RowSlice(name, count, size) if count else None


def _columns(folder: BatchFolder, part: RowSlice, names: Sequence[str]) -> pa.Table:
    with folder.open(part.name) as file:
        schema = pa.ipc.open_file(file).schema
        fields = [schema.get_field_index(name) for name in names]
        options = pa.ipc.IpcReadOptions(included_fields=fields)
        return pa.ipc.open_file(file, options=options).read_all().select(names)


def _of_table(batch: pa.RecordBatch) -> pa.RecordBatch:
    """The columns of a slice that the table has."""
    return batch.drop_columns([DELETES]) if DELETES in batch.schema.names else batch


@dataclass(frozen=True, slots=True)
class _LiveRows:
    """Makes the rows of slices that live. ``parts``: each slice, with the file that names its rows."""

    folder: BatchFolder
    parts: Sequence[tuple[RowSlice, str]]
    column: int | None

    def rows(self, number: int, set_aside: SetAside) -> Generator[pa.RecordBatch, None, Reported[None]]:
        """Yield the rows that live of one slice."""
        del set_aside
        part, live_file = self.parts[number]
        with self.folder.open(live_file) as file:
            named = pa.ipc.open_file(file).read_all().combine_chunks()
        live, order = named["row"].to_numpy(), named["order"].combine_chunks()
        with self.folder.open(part.name) as file:
            reader, begin = pa.ipc.open_file(file), 0
            for batch_number in range(reader.num_record_batches):
                batch = reader.get_batch(batch_number)
                low, high = np.searchsorted(live, [begin, begin + batch.num_rows])
                if low < high:
                    rows = _of_table(batch).take(pa.array(live[low:high] - begin))
                    yield self._ordered(rows, order.slice(low, high - low))
                begin += batch.num_rows
        return Reported(None)

    def _ordered(self, rows: pa.RecordBatch, order: pa.Array) -> pa.RecordBatch:
        if self.column is None:
            return rows
        return rows.set_column(self.column, rows.schema.field(self.column), order)
