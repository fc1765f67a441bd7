"""Counts in sentences."""

from __future__ import annotations


def counted(count: int, one: str, several: str = "") -> str:
    """A count with its noun. ``several``: the noun's plural, unless that is ``one`` plus an s.

    >>> counted(1, "record"), counted(0, "record"), counted(2, "batch", "batches")
    ('1 record', '0 records', '2 batches')
    """
    return f"{count} {noun(count, one, several)}"


def noun(count: int, one: str, several: str = "") -> str:
    """The noun alone, in the form that follows the count."""
    return one if count == 1 else several or f"{one}s"
