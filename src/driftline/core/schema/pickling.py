"""Pickling of what Python pickles slowly or not at all: dataclasses with slots, of which a wide table has
very many, and values nested deeper than it expects.
"""

from __future__ import annotations

import pickle
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import fields
from operator import attrgetter
from typing import Any, TypeVar

_Class = TypeVar("_Class")


def pickled_by_fields(cls: type[_Class]) -> type[_Class]:
    """Pickle a dataclass as a call with its fields.

    By itself a dataclass with slots takes ten times as long.

    >>> import pickle
    >>> from driftline.core.schema.types import LONG
    >>> pickle.loads(pickle.dumps(LONG))
    Primitive(name='long', args=())
    """
    names = [field.name for field in fields(cls)]  # type: ignore[arg-type]
    values = attrgetter(*names)

    def reduced(instance: Any) -> tuple[type, tuple[Any, ...]]:
        """The call that makes an equal object: the class, and the values of its fields."""
        return cls, values(instance) if len(names) > 1 else (values(instance),)

    cls.__reduce__ = reduced  # type: ignore[assignment]
    return cls


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
