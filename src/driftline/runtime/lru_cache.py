"""A small cache: the least recently used entries go first."""

from __future__ import annotations

from typing import Generic, TypeVar

K = TypeVar("K")
V = TypeVar("V")


class LruCache(Generic[K, V]):
    """Values by keys that need only be comparable; the least recently used go. A key too deep to compare has
    no value.

    >>> cache = LruCache[str, int](most=2)
    >>> for number, key in enumerate("abac"):
    ...     cache.put(key, number)
    >>> cache.get("a"), cache.get("b"), cache.get("c")
    (2, None, 3)
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._items: list[tuple[K, V]] = []  # the latest first

    def get(self, key: K) -> V | None:
        """The value of a key, if it is still cached."""
        for place, (cached_key, value) in enumerate(self._items):
            if _same(cached_key, key):
                self._items.insert(0, self._items.pop(place))
                return value
        return None

    def put(self, key: K, value: V) -> None:
        """Remember a value."""
        older = [item for item in self._items if not _same(item[0], key)]
        self._items = [(key, value), *older[: self._most - 1]]


def _same(key: object, cached_key: object) -> bool:
    try:
        return key == cached_key
    except RecursionError:
        return False
