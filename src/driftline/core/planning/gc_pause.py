"""Python's search for reference cycles, put off while very many objects are made that are in none."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def no_search() -> Iterator[None]:
    """No search for cycles meanwhile, as a context or a decorator: each goes through all
    that a table of ten thousand columns has, and takes as long as the work itself. For what
    takes seconds at most, and waits for nothing.
    """
    searched = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if searched:
            gc.enable()
