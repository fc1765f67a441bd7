"""Spills the rows of a batch to Arrow files, one per task, until it is known which of them count.

Only the requested columns of a slice are read here; tasks make the live rows of the slices, and the
rows of data files that the batch writes anew.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import zip_longest
from typing import TYPE_CHECKING, Protocol, TypeAlias

import numpy as np
import pyarrow as pa

from driftline.errors import DataError
from driftline.keys.anew import RowsLeft
from driftline.keys.patch_fields import PRESENCE
from driftline.keys.stored import StoredRows, filled_columns
from driftline.tasks.run import RowMaker, number_and_attempt
from driftline.write import BatchFolder, PartTasks, Reported, RowTasks, SetAside
from driftline.write.positions import CHANGED, ROW_ID

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from pyspark.sql import SparkSession

_ALONE = 8 * 2**20  # bytes of files that one task rewrites

# Of a slice, the column that flags rows which delete; no table has one of this name
DELETE_FLAG = "\0deletes"


# Rows wait as Arrow files until the plan is confirmed and the table is searched: only rows that count become
# data files.
@dataclass(frozen=True, slots=True)
class RowSlice:
    """A file of rows in a batch's folder; ``size``: bytes in memory."""

    name: str
    rows: int
    size: int


def tasks_over(spark: SparkSession, rows_left: RowsLeft) -> PartTasks:
    """Return tasks that make the rows that are left of files."""
    shares = shares_of(spark, rows_left)
    return PartTasks(spark, [share.size for share in shares], _RowsOfFiles(shares))


def shares_of(spark: SparkSession, rows_left: RowsLeft) -> list[RowsLeft]:
    """The rows that are left of files, in a share for each task; none if there are no rows."""
    most = spark.sparkContext.defaultParallelism if rows_left.size > _ALONE else 1
    return [share for share in rows_left.shares(most) if share.files]


@dataclass(frozen=True, slots=True)
class _RowsOfFiles:
    """Makes the rows of ``shares`` of files, one in each task."""

    shares: Sequence[RowsLeft]

    def rows(self, number: int, set_aside: SetAside) -> Generator[pa.RecordBatch, None, Reported[None]]:
        """Yield the rows of one task."""
        del set_aside
        yield from self.shares[number].read()
        return Reported(None)


# Slices of which rows live, each with the file that names these.
LiveParts: TypeAlias = "Sequence[tuple[RowSlice, str]]"


class LiveRowMaker(Protocol):
    """Makes the rows of a table from a batch."""

    def maker(self, slices: Slices, parts: LiveParts) -> RowMaker[int]:
        """Return the maker of each part's live rows; it is sent to tasks."""
        ...


@dataclass(frozen=True, slots=True)
class Slices:
    """The rows of a batch, in the order of its tasks: that of files, lines and offsets."""

    folder: BatchFolder
    parts: Sequence[RowSlice]

    @classmethod
    def of(cls, tasks: RowTasks, folder: BatchFolder | None, table: str) -> Slices:
        """Have the tasks write their rows. Raises DataError if they see no common folder."""
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
        """Read some columns of all rows."""
        return pa.concat_tables(_columns(self.folder, part, names) for part in self.parts)

    def tasks(
        self, spark: SparkSession, live: pa.Table, rows: LiveRowMaker, rows_left: RowsLeft | None = None
    ) -> PartTasks:
        """Return tasks that make the ``live`` rows.

        ``live`` has their ascending numbers in its column ``row``, and what ``rows`` makes them of.
        ``rows_left``: rows of the table that the tasks rewrite.
        """
        live_parts = self._live_parts(live)
        sizes = [part.size for part, _ in live_parts]
        shares: list[RowsLeft] = []
        if rows_left is not None and len(rows_left):
            most = spark.sparkContext.defaultParallelism if rows_left.size > _ALONE else 1
            shares = rows_left.shares(max(len(live_parts), most))
            # A task may have live rows, rows left over, or both.
            sizes = [sum(both) for both in zip_longest(sizes, (share.size for share in shares), fillvalue=0)]
        maker = rows.maker(self, live_parts)
        if rows_left is not None:
            maker = _WithRowsLeft(maker, len(live_parts), shares)
        return PartTasks(spark, sizes, maker)

    def _live_parts(self, live: pa.Table) -> list[tuple[RowSlice, str]]:
        """The slices with rows that are ``live``, each with the file that names them."""
        numbers = live["row"].to_numpy()
        ends = np.cumsum([0, *(part.rows for part in self.parts)])
        live_parts: list[tuple[RowSlice, str]] = []
        for number, part in enumerate(self.parts):
            low, high = np.searchsorted(numbers, ends[number : number + 2])
            if low == high:
                continue
            # The middle of the name is no attempt here: the driver writes the file, before any task reads it.
            name = f"{number:05d}-0-2.arrow"
            rows_of_part = pa.array(numbers[low:high] - ends[number])
            table = live.slice(low, high - low).set_column(0, "row", rows_of_part)
            with self.folder.create(name) as file, pa.ipc.new_file(file, table.schema) as writer:
                writer.write_table(table)
            live_parts.append((part, name))
        return live_parts


@dataclass(frozen=True, slots=True)
class RowsOf:
    """Makes rows of a table, with their ids after the columns, out of a batch; it is sent to tasks.

    Attributes:
        columns: the positions of the columns that are set, by their names in ``live``.
        stored: reads the rows of the table whose values stay.
    """

    columns: Mapping[str, int]
    stored: StoredRows | None = None

    def maker(self, slices: Slices, parts: LiveParts) -> RowMaker[int]:
        """The maker of rows of which each is one of the batch, or keeps the table's values."""
        return _LiveRows(slices.folder, parts, self)

    def kept(self, live: pa.Table) -> pa.Table | None:
        """The rows of the table whose values stay."""
        if self.stored is None:
            return None
        places = live.filter(live["file"].is_valid()).combine_chunks()
        return self.stored.read(places["file"].combine_chunks(), places["position"].to_numpy())

    def made(self, rows: pa.RecordBatch, live: pa.Table, kept: pa.Table | None) -> pa.RecordBatch:
        """Return the rows as the table gets them.

        Args:
            rows: rows of the batch.
            live: the values to set in each row.
            kept: the rows of the table whose values stay, in the order of ``live``.
        """
        if kept is not None and len(kept):
            source, places = np.arange(len(rows)), np.flatnonzero(live["file"].is_valid())
            source[places] = len(rows) + np.arange(len(kept))
            stored = [pa.RecordBatch.from_arrays(b.columns, schema=rows.schema) for b in kept.to_batches()]
            (rows,) = (
                pa.Table.from_batches([rows, *stored]).take(pa.array(source)).combine_chunks().to_batches()
            )
        # The columns of `order_by` say when the row was written, `_order` when it was deleted. A delete's
        # batch may have the user's columns in another type.
        for name, column in self.columns.items():
            rows = rows.set_column(column, rows.schema.field(column), live[name].combine_chunks())
        return with_row_ids(rows, live)


def rows_at(folder: BatchFolder, part: RowSlice, numbers: NDArray[np.int64]) -> Iterator[pa.RecordBatch]:
    """The rows of a slice at ``numbers``, which ascend, some at a time."""
    with folder.open(part.name) as file:
        reader, begin = pa.ipc.open_file(file), 0
        for batch_number in range(reader.num_record_batches):
            batch = reader.get_batch(batch_number)
            low, high = np.searchsorted(numbers, [begin, begin + batch.num_rows])
            if low < high:
                yield batch.take(pa.array(numbers[low:high] - begin))
            begin += batch.num_rows


def with_row_ids(rows: pa.RecordBatch, live: pa.Table) -> pa.RecordBatch:
    """Rows with their ids in the table, if ``live`` has them: the commit that writes them changes them."""
    if ROW_ID not in live.column_names:
        return rows
    # An updated row keeps its id. Its sequence number is null, so it becomes that of this commit.
    rows = rows.append_column(ROW_ID, live[ROW_ID].combine_chunks())
    return rows.append_column(CHANGED, pa.nulls(len(rows), pa.int64()))


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
        # Only these columns are read: a slice has all columns of the batch, and the driver wants keys and
        # orders.
        options = pa.ipc.IpcReadOptions(included_fields=fields)
        return pa.ipc.open_file(file, options=options).read_all().select(names)


def of_table(batch: pa.RecordBatch) -> pa.RecordBatch:
    """The columns of a slice that the table has."""
    others = [name for name in (DELETE_FLAG, PRESENCE) if name in batch.schema.names]
    return batch.drop_columns(others) if others else batch


@dataclass(frozen=True, slots=True)
class _WithRowsLeft:
    """Makes rows of ``parts`` slices, each with a share of the rows that tasks rewrite.

    The tasks report the ids of columns that have values in rows of the slices, as `own_columns` reads them.
    """

    maker: RowMaker[int]
    parts: int
    left: Sequence[RowsLeft]

    def rows(
        self, number: int, set_aside: SetAside
    ) -> Generator[pa.RecordBatch, None, Reported[frozenset[int]]]:
        """Yield the rows of one task."""
        filled: set[int] = set()
        if number < self.parts:
            for rows in self.maker.rows(number, set_aside):
                filled |= filled_columns(rows)
                yield rows
        if number < len(self.left):
            yield from self.left[number].read()
        return Reported(frozenset(filled))


def own_columns(tasks: RowTasks) -> frozenset[int]:
    """Return the ids of columns that have values in a batch's own rows, of tasks that wrote others too."""
    return frozenset().union(*(result.observed or () for result in tasks.results or ()))


@dataclass(frozen=True, slots=True)
class _LiveRows:
    """Makes the rows of slices that live.

    Attributes:
        parts: each slice, with the file that names its rows.
    """

    folder: BatchFolder
    parts: LiveParts
    rows_of: RowsOf

    def rows(self, number: int, set_aside: SetAside) -> Generator[pa.RecordBatch, None, Reported[None]]:
        """Yield the rows that live of one slice."""
        del set_aside
        part, live_file = self.parts[number]
        with self.folder.open(live_file) as file:
            named = pa.ipc.open_file(file).read_all()
        kept_rows, rows_done, taken = self.rows_of.kept(named), 0, 0
        for rows in rows_at(self.folder, part, named["row"].to_numpy()):
            of_batch = named.slice(rows_done, len(rows))
            count = len(rows) - of_batch["file"].null_count
            kept_part = None if kept_rows is None else kept_rows.slice(taken, count)
            yield self.rows_of.made(of_table(rows), of_batch, kept_part)
            rows_done, taken = rows_done + len(rows), taken + count
        return Reported(None)
