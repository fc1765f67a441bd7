"""Keys of data files that a capture has read, which its next batches need not read again.

Data files never change, so nothing here is ever wrong; which of their rows are deleted is asked of the table
each time. Without it, each batch reads the keys of all files that bounds do not rule out.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable, Sequence
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    import pyarrow as pa

KeyRows: TypeAlias = "Sequence[tuple[int, pa.Table]]"  # tables of a file, each with its first position


class KeyCache:
    """Columns of data files, at most ``most`` bytes of them; the least recently used files go.

    A file that the present look-up has used stays: where a table is larger than the cache, each look-up would
    else drop what the next one begins with.
    """

    def __init__(self) -> None:
        self.most = 0
        self._files: OrderedDict[Hashable, tuple[KeyRows, int]] = OrderedDict()
        self._used: set[Hashable] = set()
        self._size = 0

    def begin(self, most: int) -> None:
        """Begin a look-up, with at most this many bytes from now on."""
        self.most = most
        self._used.clear()
        self._shrink(most)

    def __contains__(self, key: Hashable) -> bool:
        return key in self._files

    def get(self, key: Hashable) -> KeyRows | None:
        """The columns of a file, if they are cached."""
        if key not in self._files:
            return None
        self._files.move_to_end(key)
        self._used.add(key)
        return self._files[key][0]

    def put(self, key: Hashable, rows: KeyRows) -> None:
        """Keep the columns of a file, if there is room."""
        size = sum(table.nbytes for _, table in rows)
        if size <= self.most and self._shrink(self.most - size):
            self._files[key] = rows, size
            self._size += size
            self._used.add(key)

    def _shrink(self, most: int) -> bool:
        """Drop files until they are within so many bytes; False if those in use are more."""
        for key in [key for key in self._files if key not in self._used]:
            if self._size <= most:
                break
            self._size -= self._files.pop(key)[1]
        return self._size <= most
