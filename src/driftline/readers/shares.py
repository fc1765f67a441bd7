"""Parts of a batch: dealt out to tasks, and gathered in them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TypeVar

T = TypeVar("T")

# Rows that are converted at once, or bytes of them: each column of a batch
# costs some time, however few rows there are.
_MANY, _LARGE = 4_000, 32 * 2**20


def dealt(sizes: Sequence[int], tasks: int) -> list[list[int]]:
    """The numbers of parts of these sizes, for so many tasks at most, the largest first to
    the least laden; in order within a task.

    >>> dealt([5, 9, 4], 2)
    [[1], [0, 2]]
    """
    shares: list[list[int]] = [[] for _ in range(max(1, min(tasks, len(sizes))))]
    laden = [0] * len(shares)
    for number in sorted(range(len(sizes)), key=lambda number: -sizes[number]):
        least = laden.index(min(laden))
        shares[least].append(number)
        laden[least] += sizes[number]
    return [sorted(share) for share in shares]


def in_runs(sizes: Sequence[int], tasks: int) -> list[list[int]]:
    """The numbers of parts of these sizes, in order: those of a task follow one another.

    >>> in_runs([5, 9, 4], 2)
    [[0], [1, 2]]
    """
    total = 2 * sum(sizes) or 1
    shares: list[list[int]] = [[] for _ in range(tasks)]
    begin = 0
    for number, size in enumerate(sizes):
        middle = 2 * begin + size
        shares[min(middle * tasks // total, tasks - 1)].append(number)
        begin += size
    return [share for share in shares if share] or [[]]


def gathered(parts: Iterable[T], weigh: Callable[[T], tuple[int, int]]) -> Iterator[list[T]]:
    """Some parts at a time, which are converted at once. ``weigh``: the rows of one, and their bytes."""
    group: list[T] = []
    rows = size = 0
    for part in parts:
        group.append(part)
        rows_of_part, size_of_part = weigh(part)
        rows, size = rows + rows_of_part, size + size_of_part
        if rows >= _MANY or size >= _LARGE:
            yield group
            group, rows, size = [], 0, 0
    if group:
        yield group
