"""Finds lines with a number that a decoder's double may not hold, for many lines at once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from driftline.core.schema.types import DOUBLE
from driftline.core.values import base_of

HUGE = 1e15  # from here on, doubles are judged by their text: so many digits may have no point
_LONGEST = 40  # characters of a number that is looked at; the line of a longer one is doubtful
_PAD = b"\n" * (_LONGEST + 1)


def doubtful(lines: Sequence[bytes]) -> list[int]:
    """The lines, by index, that hold a number which
    `driftline.core.values.base_of` finds more than a double.

    At most 15 digits without a negative exponent are a double, always, or `HUGE`; other numbers are judged by
    their text, and with them what looks like one inside a string.
    """
    text = b"\n".join((_PAD, *lines, _PAD))
    starts, ends = _suspects(np.frombuffer(text, np.uint8))
    if not len(starts):
        return []
    places = [
        start
        for start, end in zip(starts.tolist(), ends.tolist(), strict=True)
        if end - start >= _LONGEST or not _sure(text[start:end])
    ]
    if not places:
        return []
    line_ends = len(_PAD) + np.cumsum(np.fromiter(map(len, lines), np.int64, len(lines)) + 1)
    return sorted(set(np.searchsorted(line_ends, places, side="right").tolist()))


def _sure(number: bytes) -> bool:
    text = number.decode()
    try:
        return repr(float(text)) == text or base_of(text) == DOUBLE
    except ValueError:
        return True  # no number: it is in a string, or the line is malformed


def _table(chars: bytes) -> NDArray[np.bool_]:
    table = np.zeros(256, np.bool_)
    table[list(chars)] = True
    return table


_NUMBER = _table(b"0123456789.eE+-")
_BEFORE = _table(b"[,: \t\r\n")


def _digit(chars: NDArray[np.uint8]) -> NDArray[np.bool_]:
    return chars - ord("0") < 10  # wraps below "0"


def _digits(chars: NDArray[np.uint8], positions: NDArray[Any], steps: Sequence[int]) -> NDArray[np.bool_]:
    """True for positions with digits at all these distances."""
    are_digits = _digit(chars[positions + steps[0]])
    for step in steps[1:]:
        are_digits &= _digit(chars[positions + step])
    return are_digits


def _suspects(chars: NDArray[np.uint8]) -> tuple[NDArray[Any], NDArray[Any]]:
    """The first and last position, exclusive, of possible numbers of this kind."""
    dots = np.flatnonzero(chars == ord("."))
    # Sixteen digits have eight behind the point, or nine before it.
    behind = _digits(chars, dots, (1, 4, 8))
    before = _digits(chars, dots, (-1, -5, -9))
    minus = np.flatnonzero(chars == ord("-"))
    tiny = _digit(chars[minus - 2]) & ((chars[minus - 1] | 0x20) == ord("e"))
    starts = _run(chars, np.concatenate((dots[behind | before], minus[tiny])), -1)
    starts = np.unique(starts[_BEFORE[chars[starts - 1]]])
    return starts, _run(chars, starts, 1) + 1


def _run(chars: NDArray[np.uint8], positions: NDArray[Any], step: int) -> NDArray[Any]:
    """The extent of a number's characters in one direction."""
    positions, moving = positions.copy(), np.arange(len(positions))
    for _ in range(_LONGEST):
        moving = moving[_NUMBER[chars[positions[moving] + step]]]
        if not len(moving):
            break
        positions[moving] += step
    return positions
