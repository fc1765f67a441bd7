"""Counts in sentences."""

from __future__ import annotations


def counted(count: int, singular: str, plural: str = "") -> str:
    """A count with its noun. ``plural``: the noun's plural, unless that is ``singular`` plus an s.

    >>> counted(1, "record"), counted(0, "record"), counted(2, "batch", "batches")
    ('1 record', '0 records', '2 batches')
    """
    return f"{count} {noun(count, singular, plural)}"


def noun(count: int, singular: str, plural: str = "") -> str:
    """The noun alone, in the form that follows the count."""
    return singular if count == 1 else plural or f"{singular}s"
