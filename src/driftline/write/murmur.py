"""Iceberg's hash of a column's values (Iceberg spec, appendix B): 32
bits of Murmur3, a whole column at a time.
"""

from __future__ import annotations

from decimal import Decimal
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from driftline.core.schema.types import Primitive

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Words = NDArray[np.uint32]

_C1, _C2 = np.uint32(0xCC9E2D51), np.uint32(0x1B873593)
_WORD = 4  # bytes


def hashes(column: pa.Array, type_: Primitive) -> NDArray[np.int64]:
    """The hash of each value, from 0 to 2**31 - 1; of a null it is any.

    >>> hashes(pa.array([34], pa.int32()), Primitive("int")).tolist()
    [2017239379]
    """
    match type_.name:
        case "int" | "date":
            words = _of_longs(column.cast(pa.int32()).fill_null(0).to_numpy().astype(np.int64))
        case "long" | "time" | "timestamp" | "timestamp_ntz":
            words = _of_longs(column.cast(pa.int64()).fill_null(0).to_numpy())
        case "decimal":
            words = _of_bytes(pa.array([_minimal(value) for value in column.to_pylist()], pa.binary()))
        case _:
            words = _of_bytes(column.cast(pa.binary()))
    return (words & np.uint32(0x7FFFFFFF)).astype(np.int64)


def _of_longs(values: NDArray[np.int64]) -> Words:
    halves = values.view(np.uint64)
    out = np.zeros(len(values), np.uint32)
    for half in (halves & np.uint64(0xFFFFFFFF), halves >> np.uint64(32)):
        out = _mixed(out, half.astype(np.uint32))
    return _finished(out, np.full(len(values), 8, np.uint32))


def _of_bytes(column: pa.Array) -> Words:
    column = column.fill_null(b"")
    _, offsets, data = column.buffers()
    starts = np.frombuffer(offsets, np.int32)[column.offset : column.offset + len(column) + 1].astype(
        np.int64
    )
    lengths = np.diff(starts)
    # Behind the last value there are zeros, as behind the end of each value's last word.
    values = np.concatenate([np.frombuffer(data or b"", np.uint8), np.zeros(_WORD, np.uint8)])
    out = np.zeros(len(column), np.uint32)
    for place in range(0, int(lengths.max(initial=0)), _WORD):
        rows = np.flatnonzero(lengths > place)
        at, left = starts[rows] + place, lengths[rows] - place
        word = np.zeros(len(rows), np.uint32)
        for i in range(_WORD):
            byte = np.where(left > i, values[at + i], 0).astype(np.uint32)
            word |= byte << np.uint32(8 * i)
        whole = left >= _WORD
        out[rows] = np.where(whole, _mixed(out[rows], word), out[rows] ^ _scrambled(word))
    return _finished(out, lengths.astype(np.uint32))


def _scrambled(word: Words) -> Words:
    return _rotated(word * _C1, 15) * _C2


def _mixed(state: Words, word: Words) -> Words:
    return _rotated(state ^ _scrambled(word), 13) * np.uint32(5) + np.uint32(0xE6546B64)


def _finished(state: Words, lengths: Words) -> Words:
    state = state ^ lengths
    state = (state ^ (state >> np.uint32(16))) * np.uint32(0x85EBCA6B)
    state = (state ^ (state >> np.uint32(13))) * np.uint32(0xC2B2AE35)
    return state ^ (state >> np.uint32(16))


def _rotated(word: Words, bits: int) -> Words:
    return (word << np.uint32(bits)) | (word >> np.uint32(32 - bits))


def unscaled(value: Decimal) -> int:
    """A decimal's digits as an integer.

    >>> unscaled(Decimal("-1.50"))
    -150
    """
    sign, digits, _ = value.as_tuple()
    return int("".join(map(str, digits))) * (-1 if sign else 1)


def _minimal(value: Decimal | None) -> bytes | None:
    """The unscaled value in as few bytes as hold it, the highest first."""
    if value is None:
        return None
    integer = unscaled(value)
    return integer.to_bytes((integer + (integer < 0)).bit_length() // 8 + 1, "big", signed=True)
