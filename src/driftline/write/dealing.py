"""Divides rows among the partitions of a table, and sorts them, by way of files between two rounds of tasks.

A task of the first round writes its rows in runs, each ordered by partition and sort keys, and reports each
slice: the rows of one partition in one run. The driver forms parts of even size, and a task of the second
round reads the slices of its parts.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import total_ordering
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from driftline.tasks.batch_folder import BatchFolder
from driftline.write.keys import Key

_RUN = 32 * 2**20  # bytes of rows that are sorted at a time
_MARK = 2**20  # bytes of a slice for each recorded sort key
_PIECE = 64 * 2**20  # bytes of rows that are sorted in the second round
_LEAST = 16 * 2**20  # bytes for which a task of the second round pays

Partition: TypeAlias = tuple[Any, ...]
# The sort key of a row. Its last part is unique, so that no two rows are equal.
SortKey: TypeAlias = tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class Slice:
    """Rows of one partition: the batch of this ``number`` in a file. ``marks``: sort keys of rows at
    even distances, from the first to the last.
    """

    file: str
    number: int
    bytes: int
    partition: Partition
    marks: tuple[SortKey, ...] = ()


@dataclass(slots=True)
class PartitionSlices:
    """Rows of one partition for one task, as pieces of slices, in the order of the sort keys.

    ``bounds``: of each piece the sort key of its first row, and that of the next one's; None without end.
    """

    partition: Partition
    slices: list[Slice] = field(default_factory=list)
    bounds: list[tuple[SortKey | None, SortKey | None]] = field(default_factory=lambda: [(None, None)])
    bytes: int = 0


@dataclass(frozen=True, slots=True)
class Distribution:
    """The keys by which rows are dealt out, and sorted."""

    partition: tuple[Key, ...] = ()
    sort: tuple[Key, ...] = ()

    @property
    def known(self) -> bool:
        """True if rows can be divided and sorted by all of the keys."""
        return all(key.parts for key in self.partition) and all(key.sorts for key in self.sort)

    def deal(self, batches: Iterable[pa.RecordBatch], folder: BatchFolder, name: str) -> list[Slice]:
        """Write the rows into a file of the ``folder``, in runs; returns its slices."""
        slices: list[Slice] = []
        file = writer = None
        try:
            for rows in _runs(batches):
                if writer is None:
                    file = folder.create(name)
                    writer = pa.ipc.new_file(file, rows.schema)
                for partition, part in self._parted(rows):
                    place = (name, len(slices))
                    slices.append(Slice(*place, part.nbytes, partition, self._marks(part, place)))
                    writer.write_batch(part)
        finally:
            if writer is not None:
                writer.close()
            if file is not None:
                file.close()
        return slices

    def parts(self, slices: Iterable[Slice], tasks: int) -> list[list[PartitionSlices]]:
        """Divide the slices among the tasks of the second round: at most this many ``tasks``, of about the
        same size.
        """
        by_partition: dict[Partition, list[Slice]] = {}
        for one in slices:
            by_partition.setdefault(one.partition, []).append(one)
        total = sum(one.bytes for slices_of_key in by_partition.values() for one in slices_of_key)
        most = max(_LEAST, -(-total // tasks))
        parts = [
            part
            for key, slices_of_key in by_partition.items()
            for part in self._cut(key, slices_of_key, most)
        ]
        shares: list[list[PartitionSlices]] = [
            [] for _ in range(min(tasks, max(1, total // _LEAST), len(parts)))
        ]
        laden = [0] * len(shares)
        for part in sorted(parts, key=lambda part: -part.bytes):
            least = laden.index(min(laden))
            shares[least].append(part)
            laden[least] += part.bytes
        return shares

    def rows(self, part: PartitionSlices, folder: BatchFolder) -> Iterator[pa.RecordBatch]:
        """The rows of a part, whose slices are in the ``folder``, in their order."""
        files = {name: pa.ipc.open_file(folder.open(name)) for name in {one.file for one in part.slices}}
        for low, high in part.bounds:
            batches = (
                self._between(files[one.file].get_batch(one.number), one, low, high)
                for one in part.slices
                if not self.sort or _overlap(one.marks, low, high)
            )
            if self.sort:
                yield from self._sorted(list(batches))
            else:
                yield from batches

    def _parted(self, rows: pa.Table) -> Iterator[tuple[Partition, pa.RecordBatch]]:
        """The rows by partition, in their order."""
        keys = [key.values(rows) for key in self.partition]
        codes = _codes(keys, len(rows))
        order = self._order(rows, codes)
        if order is not None:
            rows, codes = rows.take(pa.array(order)), codes[order]
        rows = rows.combine_chunks()
        starts = [0, *(np.flatnonzero(np.diff(codes)) + 1).tolist()]
        first = pa.array(starts if order is None else order[starts])
        values = zip(*(key.take(first).to_pylist() for key in keys), strict=True) if keys else [()]
        for start, end, partition in zip(starts, [*starts[1:], len(rows)], values, strict=True):
            (batch,) = rows.slice(start, end - start).to_batches()
            yield partition, batch

    def _order(self, rows: pa.Table, codes: np.ndarray[Any, Any]) -> np.ndarray[Any, Any] | None:
        """The positions that the sorted rows come from; None if they are sorted already."""
        if self.sort:
            columns = {"partition": pa.array(codes), **self._sort_columns(rows)}
            return _sorted_indices(columns)
        return None if (np.diff(codes) >= 0).all() else np.argsort(codes, kind="stable")

    def _sort_columns(self, rows: pa.Table | pa.RecordBatch) -> dict[str, pa.Array]:
        """Columns that sort the rows, the first one first: where nulls are,
        and the values, ascending or descending.
        """
        out: dict[str, pa.Array] = {}
        for number, key in enumerate(self.sort):
            values = key.values(rows)
            out[f"ascending {number}"] = pc.xor(values.is_null(), key.nulls_first)
            out[f"{'descending' if key.descending else 'ascending'} {number} value"] = values
        return out

    def _sorted(self, batches: Sequence[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        rows = pa.Table.from_batches(batches) if batches else None
        if rows is not None and len(rows):
            yield from (
                rows.take(pa.array(_sorted_indices(self._sort_columns(rows)))).combine_chunks().to_batches()
            )

    def _marks(self, rows: pa.RecordBatch, place: tuple[str, int]) -> tuple[SortKey, ...]:
        if not self.sort:
            return ()
        count = max(2, rows.nbytes // _MARK + 1)
        numbers = np.linspace(0, len(rows) - 1, count).astype(np.int64)
        return tuple(map(self._key_of(rows, place), numbers.tolist()))

    def _key_of(self, rows: pa.RecordBatch, place: tuple[str, int]) -> Callable[[int], SortKey]:
        """The sort key of a row, by its number, of the slice at ``place``."""
        columns = [(key, key.values(rows)) for key in self.sort]
        return lambda row: (*(_comparable(key, values[row].as_py()) for key, values in columns), *place, row)

    def _between(
        self, rows: pa.RecordBatch, one: Slice, low: SortKey | None, high: SortKey | None
    ) -> pa.RecordBatch:
        """The rows of a slice whose key is not less than ``low``, and less than ``high``."""
        key_of, numbers = self._key_of(rows, (one.file, one.number)), range(len(rows))
        start = 0 if low is None else bisect_left(numbers, low, key=key_of)
        end = len(rows) if high is None else bisect_left(numbers, high, key=key_of)
        return rows.slice(start, end - start)

    def _cut(self, partition: Partition, slices: Sequence[Slice], most: int) -> list[PartitionSlices]:
        """Cut a partition's slices into parts of about this many bytes at most."""
        if not self.sort:
            return _filled(partition, slices, most)
        total = sum(one.bytes for one in slices)
        marks = sorted(mark for one in slices for mark in one.marks)
        pieces = min(-(-total // min(most, _PIECE)), len(marks))
        cuts = sorted({marks[len(marks) * i // pieces] for i in range(1, pieces)})
        bounds = list(zip([None, *cuts], [*cuts, None], strict=True))
        count = min(-(-total // most), len(bounds))
        return [
            PartitionSlices(partition, list(slices), bounds[len(bounds) * i // count : len(bounds) * (i + 1) // count], total // count)
            for i in range(count)
        ]  # fmt: skip


def _runs(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.Table]:
    gathered: list[pa.RecordBatch] = []
    size = 0
    for batch in batches:
        if batch.num_rows:
            gathered.append(batch)
            size += batch.nbytes
            if size >= _RUN:
                yield pa.Table.from_batches(gathered)
                gathered, size = [], 0
    if gathered:
        yield pa.Table.from_batches(gathered)


def _codes(keys: Sequence[pa.Array], count: int) -> np.ndarray[Any, Any]:
    """A number for each row, the same where all keys are."""
    codes = np.zeros(count, np.int64)
    for key in keys:
        encoded = key.dictionary_encode("encode")
        codes = codes * len(encoded.dictionary) + encoded.indices.to_numpy()
        codes = np.unique(codes, return_inverse=True)[1]
    return codes


def _sorted_indices(columns: dict[str, pa.Array]) -> np.ndarray[Any, Any]:
    keys = [(name, "descending" if name.startswith("descending") else "ascending") for name in columns]
    return pc.sort_indices(pa.table(columns), sort_keys=keys).to_numpy()  # type: ignore[no-any-return]


def _filled(partition: Partition, slices: Iterable[Slice], most: int) -> list[PartitionSlices]:
    parts = [PartitionSlices(partition)]
    for one in slices:
        if parts[-1].slices and parts[-1].bytes + one.bytes > most:
            parts.append(PartitionSlices(partition))
        parts[-1].slices.append(one)
        parts[-1].bytes += one.bytes
    return parts


def _overlap(marks: Sequence[SortKey], low: SortKey | None, high: SortKey | None) -> bool:
    return (low is None or marks[-1] >= low) and (high is None or marks[0] < high)


@total_ordering
@dataclass(frozen=True, slots=True)
class _Descending:
    value: Any

    def __lt__(self, other: _Descending) -> bool:
        return bool(other.value < self.value)


def _comparable(key: Key, value: Any) -> tuple[Any, ...]:
    """A value of a sort key, so that it compares as it sorts; texts as their bytes."""
    if value is None:
        return (not key.nulls_first,)
    value = value.encode() if isinstance(value, str) else value
    return (key.nulls_first, _Descending(value) if key.descending else value)
