"""Differences between a row and a record, and values as people read them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, TypeAlias

Steps: TypeAlias = "tuple[str | int, ...]"


@dataclass(frozen=True, slots=True)
class RowDifference:
    """A difference between a row and a record.

    ``steps``: keys, and positions in lists. ``value``: the record's. ``lost``: no column holds it.
    ``invented``: a column holds something that does not come from it. ``unproven``: a list without a value is
    missing, which is lawful if its column is younger than the row (2.4).
    """

    steps: Steps
    value: Any
    why: str
    lost: bool = True
    invented: bool = False
    unproven: bool = False

    @property
    def keys(self) -> tuple[str, ...]:
        """The steps, without those into lists."""
        return tuple(step for step in self.steps if isinstance(step, str))

    @property
    def path(self) -> str:
        """The path, a list's element as ``element``.

        >>> RowDifference(("items", 3, "price"), 1, "").path
        'items.element.price'
        """
        return ".".join("element" if isinstance(step, int) else step for step in self.steps)


def shown(v: Any, limit: int = 80) -> str:
    """A value as people read it, cut to ``limit``."""
    match v:
        case None:
            text = "null"
        case bool():
            text = str(v).lower()
        case str():
            text = repr(str(v)) if len(v) <= limit else f"{str(v)[:limit]!r}"
        case dict():
            text = "{" + ", ".join(f"{k}: {shown(x, limit)}" for k, x in _first(v.items())) + "}"
        case list():
            text = "[" + ", ".join(shown(x, limit) for x in _first(v)) + "]"
        case _:
            text = str(v)
    return text if len(text) <= limit else text[:limit] + "…"


def _first(items: Iterable[Any], limit: int = 10) -> Iterable[Any]:
    return (x for x, _ in zip(items, range(limit), strict=False))
