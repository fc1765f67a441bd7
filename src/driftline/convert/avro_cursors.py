"""Cursors over binary Avro records: each step reads a value in all of them at once."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray

Numbers: TypeAlias = "NDArray[np.int64]"
Mask: TypeAlias = "NDArray[np.bool_]"

PADDING = 16  # bytes behind the last record: a number that is cut off is read beyond it
_LAST_SHIFT = 63  # of the tenth byte of a number, the last of which has room in it


class Undecodable(Exception):
    """Some records have to be read one by one. ``ends``: where these end."""

    def __init__(self, ends: Numbers) -> None:
        super().__init__()
        self.ends = ends


@dataclass(slots=True)
class Cursors:
    """The positions of values in ``data``, which reading advances.

    ``ends``: of the record of each.
    """

    data: NDArray[np.uint8]
    positions: Numbers
    ends: Numbers

    def select(self, chosen: NDArray[Any]) -> Cursors:
        """The cursors under a mask, or with these numbers."""
        return Cursors(self.data, self.positions[chosen], self.ends[chosen])

    def check(self, fine: Mask) -> None:
        """Leave the others to be read one by one."""
        if not fine.all():
            raise Undecodable(self.ends[~fine])

    def moved(self, sizes: Numbers | int) -> Numbers:
        """Advance by these sizes; returns the former positions."""
        starts = self.positions
        self.check((sizes >= 0) & (sizes <= self.ends - starts))
        self.positions = starts + sizes
        return starts

    def longs(self) -> Numbers:
        """Read a number of variable length from each."""
        byte = self.data[self.positions]
        numbers, positions = (byte & 0x7F).astype(np.uint64), self.positions + 1
        unfinished, shift = np.flatnonzero(byte > 0x7F), 7
        while len(unfinished):
            byte = self.data[positions[unfinished]]
            numbers[unfinished] |= (byte & 0x7F).astype(np.uint64) << np.uint64(shift)
            positions[unfinished] += 1
            if shift == _LAST_SHIFT and (byte > 1).any():  # more than 64 bits
                raise Undecodable(self.ends[unfinished[byte > 1]])
            unfinished, shift = unfinished[byte > 0x7F], shift + 7
        self.check(positions <= self.ends)
        self.positions = positions
        return (numbers >> np.uint64(1)).view(np.int64) ^ -(numbers & np.uint64(1)).view(np.int64)

    def within(self, low: int, high: int) -> Numbers:
        """Read such numbers, which must lie between these two."""
        numbers = self.longs()
        self.check((numbers >= low) & (numbers <= high))
        return numbers

    def windows(self, size: int) -> NDArray[np.uint8]:
        """Read this many bytes from each, a row each."""
        return sliding_window_view(self.data, size)[self.moved(size)]

    def bytes(self, sizes: Numbers) -> pa.Array:
        """Read these many bytes from each, as binary values."""
        starts = self.moved(sizes)
        if not len(starts):
            return pa.array([], pa.binary())
        # What is between two values is a value, too, and left out.
        offsets = np.column_stack((starts, self.positions)).astype(np.int32).ravel()
        buffers = [None, pa.py_buffer(offsets), pa.py_buffer(self.data)]
        parts = pa.Array.from_buffers(pa.binary(), len(offsets) - 1, buffers)
        return parts.take(pa.array(np.arange(0, len(offsets), 2)))
