"""Pairs rows with the records they hold, each row once: a largest matching within what met under one key."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from itertools import product


def pair(
    records: Sequence[int], rows: Sequence[int], holds: Callable[[int, int], int]
) -> tuple[list[int], list[int], dict[tuple[int, int], int]]:
    """Count how often each of ``records`` found no row, how often each of ``rows`` was left over, and how
    often a record, by position, has a row.

    Both are counts of equal ones; ``holds(row, record)`` is called once for each pair, by position: 0 not at
    all, 1 not wholly, so that another row is better, 2 wholly.

    >>> pair([1, 1], [1, 1], lambda row, record: 2 * (row == 0 or record == 0))[:2]
    ([0, 0], [0, 0])
    """
    fits = cache(holds)
    left = list(rows)
    given: dict[tuple[int, int], int] = {}

    def place(record: int, n: int, asked: set[int]) -> int:
        """Finds rows for up to ``n`` of a record, where need be by moving another record to another row."""
        for how, row in product((2, 1), range(len(left))):
            if row in asked or fits(row, record) != how:
                continue
            asked.add(row)
            got = min(n, left[row])
            left[row] -= got
            if not got:
                for other in range(len(records)):
                    if held := given.get((other, row), 0):
                        got = place(other, min(n, held), asked)
                        given[other, row] = held - got
                        if got:
                            break
            if got:
                given[record, row] = given.get((record, row), 0) + got
                return got
        return 0

    missing = []
    for record, n in enumerate(records):
        while n and (got := place(record, n, set())):
            n -= got
        missing.append(n)
    return missing, left, {at: n for at, n in given.items() if n}
