"""Writes data files anew: chooses those of which too little is left, or which are too small or of an old
layout, and reads the rows that are left of them, for tasks to write again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyroaring import BitMap64

from driftline.core.columns.file_sizes import MANY, are_enough, small_below
from driftline.keys.stored import StoredRows
from driftline.write.positions import CHANGED_COLUMN, ROW_ID_COLUMN

if TYPE_CHECKING:
    from numpy.typing import NDArray

# At a third, at most two rows are rewritten for each one removed, however many batches there are, and a
# reader skips at most one row for two that it reads.
_WORN = 3  # parts of a file, of which one is gone
_MANY = MANY
# Files of one age wear out together. Without a bound, one commit would rewrite the whole table.
_ALWAYS = 64 * 2**20  # bytes that any batch may rewrite
# Micro-batches leave small files, and each costs every later batch a deletion vector.
_SMALL = 2**20  # bytes of a file that a batch takes for small
_LEVELED = 8 * 2**20  # bytes of a file that is gathered with others of its level
_ROWS_OF_LEVEL = 3  # bits of the number of rows, by which the next level has more
_WHOLE = 8 * 2**20  # bytes of a file that is not cut into parts, for several tasks
_GROUP = 512 * 2**20  # bytes of a commit of a compaction


@dataclass(frozen=True, slots=True)
class RewriteCandidate:
    """A data file that may leave the table, while its rows stay.

    Attributes:
        rows: the number of its rows.
        size: bytes.
        dead: the positions of deleted rows.
        first_id: the id of its first row, where rows have ids.
        changed: the sequence number of its rows.
        spec: the id of the partition spec that it was written by.
        partition: the values of its partition, as text; empty where its folder tells.
        sort_order: the id of the order that its rows are sorted by; None if unknown.
    """

    path: str
    rows: int
    size: int
    dead: BitMap64
    first_id: int | None = None
    changed: int | None = None
    spec: int = 0
    partition: str = ""
    sort_order: int | None = None

    @property
    def place(self) -> tuple[int, str]:
        """The partition spec and the partition: files of different ones could never become one."""
        return self.spec, self.partition or self.path.rpartition("/")[0]

    @property
    def level(self) -> int:
        """The power of eight that the number of rows left has reached: 0 up to 7 rows, 1 up to 63."""
        return max(self.left.bit_length() - 1, 0) // _ROWS_OF_LEVEL

    @property
    def is_worn(self) -> bool:
        """True if a third of the rows is deleted, or more."""
        return len(self.dead) * _WORN >= self.rows

    @property
    def left(self) -> int:
        """The number of rows that are left."""
        return self.rows - len(self.dead)

    @property
    def bytes_left(self) -> int:
        """The bytes of the rows that are left, about."""
        return self.size * self.left // max(self.rows, 1)

    def part(self, begin: int, end: int) -> RewriteCandidate:
        """The file with the rows of these positions alone, as if the others were deleted."""
        outside = BitMap64()
        outside.add_range(0, begin)
        outside.add_range(end, self.rows)
        return replace(self, dead=self.dead | outside)

    def positions(self) -> NDArray[np.int64]:
        """The positions of the rows that are left, ascending."""
        remaining = np.ones(self.rows, np.bool_)
        remaining[np.array(self.dead.to_array(), np.int64)] = False
        return np.flatnonzero(remaining)


@dataclass(frozen=True, slots=True)
class RewriteBudget:
    """The limits of writing files anew.

    Attributes:
        most: bytes that are left in the files of a group.
        small: bytes of a file that is not small any more.
        enough: bytes of small files that are worth it, though the files are few; None if they never are.
        spec: the id of the partition spec that all files should have; None if any is right.
        sort_order: the id of the order that all files should be sorted by; None if any is right.
        once: what does not fit into one group waits.
        by_level: only files of one level go together, so that a row is written anew about once each time
            that there are eight times as many.
    """

    most: int
    small: int
    enough: int | None = None
    spec: int | None = None
    sort_order: int | None = None
    once: bool = False
    by_level: bool = False

    @classmethod
    def behind_batch(cls) -> RewriteBudget:
        """Return what is written anew behind a batch."""
        return cls(_ALWAYS, _LEVELED, by_level=True)

    @classmethod
    def of_batch(cls, size: int) -> RewriteBudget:
        """Return what a batch of ``size`` bytes may write anew in its own commit."""
        return cls(size + _ALWAYS, _SMALL, once=True)

    @classmethod
    def of_compaction(cls, target: int, spec: int, sort_order: int | None = None) -> RewriteBudget:
        """Return what a compaction may write anew, of a table whose files should have ``target`` bytes."""
        return cls(_GROUP, small_below(target), target, spec, sort_order)

    def wants(self, file: RewriteCandidate) -> bool:
        """True if a file is worth writing anew, whatever other files there are."""
        is_unsorted = self.sort_order is not None and file.sort_order != self.sort_order
        return file.is_worn or is_unsorted or (self.spec is not None and file.spec != self.spec)


def choose(
    files: Iterable[RewriteCandidate], budget: RewriteBudget, can_move: Callable[[str], bool] = lambda _: True
) -> list[list[RewriteCandidate]]:
    """Choose the files that are written anew, in groups, each for one commit.

    Args:
        files: of a table.
        budget: the limits.
        can_move: returns False for the path of a file whose values another file would change.
    """
    by_place: dict[tuple[object, ...], list[RewriteCandidate]] = {}
    for file in files:
        level = file.level if budget.by_level else 0
        by_place.setdefault((*file.place, level), []).append(file)
    worth = [list(_worth(of_place, budget)) for of_place in by_place.values()]
    if budget.by_level:
        movable = ([file for file in of_place if can_move(file.path)] for of_place in worth)
        return [
            group for of_place in movable if len(of_place) >= _MANY for group in _groups(of_place, budget)
        ]
    if budget.once:
        group = _fitting([file for of_place in worth for file in of_place], budget.most, can_move)
        return [group] if group else []
    return [group for of_place in worth for group in _groups(of_place, budget)]


def _worth(files: Sequence[RewriteCandidate], budget: RewriteBudget) -> Iterator[RewriteCandidate]:
    """Yield those among the files of a partition that are worth writing anew."""
    small = [file.size for file in files if file.size < budget.small]
    gathers = are_enough(len(small), sum(small), budget.enough, _MANY)
    for file in files:
        if budget.wants(file) or (gathers and file.size < budget.small):
            yield file


def _fitting(
    files: Sequence[RewriteCandidate], most: int, can_move: Callable[[str], bool]
) -> list[RewriteCandidate]:
    """Choose what fits into one group; those with the least left for each deleted row come first."""
    spare, taken = most, []
    # A file that has to wait is taken with the next change of its rows: only files that a batch touches are
    # looked at.
    for file in sorted(files, key=lambda file: file.left / max(len(file.dead), 1)):
        # A file without rows costs nothing, and no value of it has to move.
        if file.bytes_left <= spare and (not file.left or can_move(file.path)):
            taken.append(file)
            spare -= file.bytes_left
    return taken


def _groups(files: Iterable[RewriteCandidate], budget: RewriteBudget) -> Iterator[list[RewriteCandidate]]:
    """Yield the files of a partition in groups, in their order."""
    group: list[RewriteCandidate] = []
    size = 0
    for file in files:
        if group and size + file.bytes_left > budget.most:
            yield group
            group, size = [], 0
        group.append(file)
        size += file.bytes_left
    # A small file that is left alone would be written anew as it is.
    if len(group) > 1 or any(map(budget.wants, group)):
        yield group


@dataclass(frozen=True, slots=True)
class RowsLeft:
    """Reads the rows that are left of rewritten files; it is sent to tasks.

    Attributes:
        with_ids: after the columns, rows have their ids, and the sequence numbers of their last changes where
            the format has such.
    """

    stored: StoredRows
    files: Sequence[RewriteCandidate]
    with_ids: bool

    def __len__(self) -> int:
        return sum(file.left for file in self.files)

    @property
    def size(self) -> int:
        """The bytes of the rows, about."""
        return sum(file.bytes_left for file in self.files)

    def shares(self, count: int) -> list[RowsLeft]:
        """The files in so many shares, of about the same size; those larger than a share are cut."""
        shares: list[list[RewriteCandidate]] = [[] for _ in range(count)]
        load = [0] * count
        most = max(self.size // count, _WHOLE)
        parts = (part for file in self.files for part in self._parts(file, most) if part.left)
        for file in sorted(parts, key=lambda part: -part.bytes_left):
            least = load.index(min(load))
            shares[least].append(file)
            load[least] += file.bytes_left
        return [RowsLeft(self.stored, share, self.with_ids) for share in shares]

    def _parts(self, file: RewriteCandidate, most: int) -> Iterator[RewriteCandidate]:
        """Yield a file, or parts of about ``most`` bytes, of its row groups."""
        if file.bytes_left <= most or file.path in self.stored.inlined:
            yield file
            return
        ends = np.cumsum(self.stored.row_groups(file.path))
        pieces = min(len(ends), -(-file.bytes_left // most))
        begin = 0
        for groups in np.array_split(ends, pieces):
            yield file.part(begin, int(groups[-1]))
            begin = int(groups[-1])

    def read(self) -> Iterator[pa.RecordBatch]:
        """The rows, file by file."""
        for file in self.files:
            positions, begin = file.positions(), 0
            for rows in self.stored.of(file.path, positions):
                positions_of_batch = positions[begin : (begin := begin + len(rows))]
                batch = self._with_ids(rows, file, positions_of_batch) if self.with_ids else rows
                yield from batch.combine_chunks().to_batches()

    def _with_ids(self, rows: pa.Table, file: RewriteCandidate, positions: NDArray[np.int64]) -> pa.Table:
        """The rows with what the table gave them where their file says nothing."""
        assigned_values = {
            ROW_ID_COLUMN: None if file.first_id is None else pa.array(positions + file.first_id),
            CHANGED_COLUMN: None
            if file.changed is None
            else pa.repeat(file.changed, len(rows)).cast(pa.int64()),
        }
        for place, column in enumerate(self.stored.struct.fields):
            values = assigned_values.get(column.id)
            if values is not None:
                assigned = rows.column(place).combine_chunks()
                # A row that moves has not changed: it keeps its id, and the sequence number of its last
                # change, which Iceberg's spec asks to write where a file's own would be wrong.
                rows = rows.set_column(place, column.name, pc.coalesce(assigned, values))
        return rows
