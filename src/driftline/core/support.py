"""Helpers for Python itself: pickling, recursion, garbage collection, an LRU cache; and JSON forms."""

from __future__ import annotations

import gc
import pickle
import re
import sys
from bisect import bisect_right
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import fields
from functools import cache
from itertools import accumulate
from operator import attrgetter
from threading import Lock
from typing import Any, Generic, NotRequired, TypeVar, get_origin, get_type_hints

_Class = TypeVar("_Class")
_Form = TypeVar("_Form")


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
    """Pickle a value.

    Args:
        levels: of records and lists that it may describe.
    """
    with deep_recursion(levels):
        return pickle.dumps(value)


class _Blocks:
    """The open blocks, of all threads, that change a setting of the process.

    Whoever leaves first may not take it back from the others. ``own``: the value of the setting without them.
    """

    def __init__(self) -> None:
        self.lock = Lock()
        self.count = 0
        self.own = 0


_deep, _paused = _Blocks(), _Blocks()


@contextmanager
def deep_recursion(levels: int) -> Iterator[None]:
    """Allow recursion for this many levels, however deep the caller is."""
    more = _FRAMES * levels
    with _deep.lock:
        # Added to the limit that holds: another block around this one, or a user, may have raised it.
        limit = sys.getrecursionlimit()
        if not _deep.count:
            _deep.own = limit
        sys.setrecursionlimit(limit + more)
        _deep.count += 1
    try:
        yield
    finally:
        with _deep.lock:
            _deep.count -= 1
            sys.setrecursionlimit(sys.getrecursionlimit() - more if _deep.count else _deep.own)


@contextmanager
def gc_paused() -> Iterator[None]:
    """Pause the collection, as a context or a decorator.

    Each collection walks all objects of a table of ten thousand columns, which takes as long as the work
    itself. Use it around work of seconds that waits for nothing.
    """
    with _paused.lock:
        if not _paused.count:
            _paused.own = gc.isenabled()
        gc.disable()
        _paused.count += 1
    try:
        yield
    finally:
        with _paused.lock:
            _paused.count -= 1
            # A block inside another, or in another thread, may not switch it on early.
            if _paused.own and not _paused.count:
                gc.enable()


def lines_with(lines: Sequence[bytes], patterns: Mapping[bytes, bytes]) -> list[int]:
    """The places of lines in which a regular expression is found, by one search over all of them.

    Args:
        lines: the lines.
        patterns: the expressions, each by a text that is wherever it is found.

    >>> lines_with([b"ab", b"", b"ba", b"b"], {b"a": b"a", b"b": b"ba"})
    [0, 2]
    """
    text = b"\n".join(lines)
    # Python tells that a text is nowhere faster than an expression does.
    wanted = [pattern for part, pattern in patterns.items() if part in text]
    starts = [match.start() for pattern in wanted for match in re.finditer(pattern, text)]
    return sorted(lines_at(lines, starts))


def lines_at(lines: Sequence[bytes], positions: Collection[int]) -> set[int]:
    """The places of the lines at some positions of the text that line feeds join them to.

    >>> lines_at([b"ab", b"", b"ba"], [0, 1, 5])
    {0, 2}
    """
    if not positions:
        return set()
    ends = list(accumulate(len(line) + 1 for line in lines))
    return {bisect_right(ends, position) for position in positions}


K = TypeVar("K")
V = TypeVar("V")


class LruCache(Generic[K, V]):
    """Values by keys that need only be comparable; the least recently used go. Threads may share it.

    A key too deep to compare has no value.

    >>> cache = LruCache[str, int](most=2)
    >>> for number, key in enumerate("abac"):
    ...     cache.put(key, number)
    >>> cache.get("a"), cache.get("b"), cache.get("c")
    (2, None, 3)
    """

    def __init__(self, most: int) -> None:
        self._most = most
        # A list, as keys such as schemas have no cheap hash; caches hold a few entries.
        self._items: list[tuple[K, V]] = []  # the latest first
        self._lock = Lock()

    def get(self, key: K) -> V | None:
        """The value of a key, if it is still cached."""
        with self._lock:
            for place, (cached_key, value) in enumerate(self._items):
                if _same(cached_key, key):
                    self._items.insert(0, self._items.pop(place))
                    return value
        return None

    def put(self, key: K, value: V) -> None:
        """Remember a value."""
        with self._lock:
            older = [item for item in self._items if not _same(item[0], key)]
            self._items = [(key, value), *older[: self._most - 1]]


def _same(key: object, cached_key: object) -> bool:
    try:
        return key == cached_key
    except RecursionError:
        return False


def as_json(form: type[_Form], value: object, **items: object) -> _Form:
    """Return a value in its JSON form, a TypedDict: of the value's attributes, or ``items`` for other keys.

    A key that need not be there is left out if its item is None.

    >>> from types import SimpleNamespace
    >>> from typing import TypedDict
    >>> class PairJson(TypedDict):
    ...     names: list[str]
    ...     count: int
    ...     note: NotRequired[str]
    >>> as_json(PairJson, SimpleNamespace(names=("a", "b")), count=2)
    {'names': ['a', 'b'], 'count': 2}
    """
    out: dict[str, object] = {}
    for key, is_optional in _keys(form).items():  # type: ignore[arg-type]  # a class has a hash
        if key in items:
            item = items.pop(key)
        else:
            item = getattr(value, key, None) if is_optional else getattr(value, key)
        if not (is_optional and item is None):
            out[key] = _plain(item)
    if items:
        raise TypeError(f"{form.__name__} has no {', '.join(items)}")
    return out  # type: ignore[return-value]


@cache
def _keys(form: type) -> Mapping[str, bool]:
    """The keys of a TypedDict, each with whether it may be missing."""
    hints = get_type_hints(form, include_extras=True)
    return {key: get_origin(type_) is NotRequired for key, type_ in hints.items()}


def _plain(item: Any) -> object:
    """The item of a JSON form: lists in place of tuples, and the JSON form of values that have one."""
    if isinstance(item, tuple | list):
        return [_plain(element) for element in item]
    if isinstance(item, dict):
        return dict(item)
    return item.to_dict() if hasattr(item, "to_dict") else item
