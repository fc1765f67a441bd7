"""Pauses Python's cyclic garbage collection while very many objects are made that form no cycles."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def gc_paused() -> Iterator[None]:
    """Pause the collection, as a context or a decorator.

    Each collection walks all objects of a table of ten thousand columns, which takes as long as the work
    itself. Use it around work of seconds that waits for nothing.
    """
    searched = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if searched:
            gc.enable()
