"""Counts in sentences."""

from __future__ import annotations


def counted(count: int, one: str, several: str = "") -> str:
    """A count with its noun. ``several``: the noun's plural, where that is not ``one`` with an s.

    >>> counted(1, "record"), counted(0, "record"), counted(2, "batch", "batches")
    ('1 record', '0 records', '2 batches')
    """
    return f"{count} {noun(count, one, several)}"


def noun(count: int, one: str, several: str = "") -> str:
    """The noun alone, as it stands behind the count."""
    return one if count == 1 else several or f"{one}s"
