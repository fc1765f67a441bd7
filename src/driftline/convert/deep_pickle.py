"""Pickling of values nested deeper than Python expects."""

from __future__ import annotations

import pickle
import sys
from collections.abc import Iterator
from contextlib import contextmanager

_FRAMES = 20  # of the interpreter, for one level of a record


def pickled(value: object, levels: int) -> bytes:
    """Pickle a value. ``levels``: of records and lists that it may describe."""
    with deep_recursion(levels):
        return pickle.dumps(value)


@contextmanager
def deep_recursion(levels: int) -> Iterator[None]:
    """Allow recursion for this many levels, however deep the caller is."""
    limit = sys.getrecursionlimit()
    sys.setrecursionlimit(limit + _FRAMES * levels)
    try:
        yield
    finally:
        sys.setrecursionlimit(limit)
