"""Parts of a batch dealt out to tasks."""

from __future__ import annotations

from collections.abc import Sequence


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
