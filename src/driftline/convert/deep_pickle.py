"""Pickling of what is nested deeper than Python expects."""

from __future__ import annotations

import pickle
import sys

_FRAMES = 20  # of the interpreter, for one level of a record


def pickled(value: object, levels: int) -> bytes:
    """The value's pickle; ``levels``: of records and lists that it may describe."""
    limit = sys.getrecursionlimit()
    sys.setrecursionlimit(limit + _FRAMES * levels)
    try:
        return pickle.dumps(value)
    finally:
        sys.setrecursionlimit(limit)
