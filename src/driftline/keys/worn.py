"""Data files of which a batch leaves too little: the batch writes the rest of their rows anew.

A file is worn once a third of its rows are gone. So at most two rows are written anew for each that went, and
readers skip at most one row for each two that they read. Small files of which one batch removes rows are worn
where there are many in one folder: small batches leave such files, and each costs all later ones its deletes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from driftline.keys.stored import StoredRows
from driftline.write.positions import CHANGED, ROW_ID

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from pyroaring import BitMap64

_WORN = 3  # parts of a file, of which one is gone
_ALWAYS = 64 * 2**20  # bytes that any batch may write anew
_SMALL, _MANY = 2**20, 8  # bytes of a file, and how many become one


@dataclass(frozen=True, slots=True)
class WornFile:
    """A data file that leaves the table. ``rows``: their number, ``dead`` ones among them; ``size``: bytes.

    ``first_id``: the id of its first row, where rows have ids; ``changed``: the sequence number of its rows.
    """

    path: str
    rows: int
    size: int
    dead: BitMap64
    first_id: int | None = None
    changed: int | None = None

    @property
    def folder(self) -> str:
        """The folder of the file, which those of other partitions are not in."""
        return self.path.rpartition("/")[0]

    @property
    def left(self) -> int:
        """The number of rows that are left."""
        return self.rows - len(self.dead)

    @property
    def bytes_left(self) -> int:
        """The bytes of the rows that are left, about."""
        return self.size * self.left // max(self.rows, 1)

    def positions(self) -> NDArray[np.int64]:
        """The positions of the rows that are left, ascending."""
        remaining = np.ones(self.rows, np.bool_)
        remaining[np.array(self.dead.to_array(), np.int64)] = False
        return np.flatnonzero(remaining)


def worn(files: Iterable[WornFile], size: int, can_move: Callable[[str], bool]) -> list[WornFile]:
    """The files that a batch of ``size`` bytes writes anew: as many as have no more bytes left than that, and
    a constant; those with the least left for each row that is gone come first.

    ``can_move``: returns False for the path of a file whose values another file would not have as they are.
    """
    spare, taken, touched = size + _ALWAYS, [], list(files)
    small = Counter(file.folder for file in touched if file.size < _SMALL)
    candidates = (
        file
        for file in touched
        if len(file.dead) * _WORN >= file.rows or (file.size < _SMALL and small[file.folder] >= _MANY)
    )
    for file in sorted(candidates, key=lambda file: file.left / max(len(file.dead), 1)):
        if file.bytes_left <= spare and (not file.left or can_move(file.path)):
            taken.append(file)
            spare -= file.bytes_left
    return taken


@dataclass(frozen=True, slots=True)
class RowsLeft:
    """Reads the rows that are left of worn files; it is sent to tasks. ``with_ids``: rows have their ids, and
    the sequence numbers of their last changes, behind the columns.
    """

    stored: StoredRows
    files: Sequence[WornFile]
    with_ids: bool

    def __len__(self) -> int:
        return sum(file.left for file in self.files)

    @property
    def size(self) -> int:
        """The bytes of the rows, about."""
        return sum(file.bytes_left for file in self.files)

    def shares(self, count: int) -> list[RowsLeft]:
        """The files in so many shares, of about the same size."""
        shares: list[list[WornFile]] = [[] for _ in range(count)]
        laden = [0] * count
        for file in sorted((f for f in self.files if f.left), key=lambda file: -file.bytes_left):
            least = laden.index(min(laden))
            shares[least].append(file)
            laden[least] += file.bytes_left
        return [RowsLeft(self.stored, share, self.with_ids) for share in shares]

    def read(self) -> Iterator[pa.RecordBatch]:
        """The rows, file by file."""
        for file in self.files:
            positions, begin = file.positions(), 0
            for rows in self.stored.of(file.path, positions):
                positions_of_batch = positions[begin : (begin := begin + len(rows))]
                batch = _with_ids(rows, file, positions_of_batch) if self.with_ids else rows
                yield from batch.combine_chunks().to_batches()


def _with_ids(rows: pa.Table, file: WornFile, positions: NDArray[np.int64]) -> pa.Table:
    """The rows with what the table gave them where their file says nothing."""
    given = {
        ROW_ID: None if file.first_id is None else pa.array(positions + file.first_id),
        CHANGED: None if file.changed is None else pa.repeat(file.changed, len(rows)).cast(pa.int64()),
    }
    for name, values in given.items():
        if values is not None:
            place = rows.schema.get_field_index(name)
            assigned = rows.column(place).combine_chunks()
            rows = rows.set_column(place, name, pc.coalesce(assigned, values))
    return rows
