"""The limit of a packed file's contents."""

from __future__ import annotations

import os

from driftline.errors import DataError, UsageError

LIMIT = "DRIFTLINE_MAX_UNPACKED"
_LIMIT = 64 * 2**30  # bytes


def largest() -> int:
    """The number of bytes a packed file may contain. Raises UsageError if the setting is not a number."""
    text = os.environ.get(LIMIT, "")
    if text and not text.isdecimal():
        raise UsageError(f"{LIMIT} = {text!r} is not a whole number of bytes")
    return int(text or _LIMIT)


def too_large(path: str, limit: int) -> DataError:
    """The error for a file that contains more."""
    return DataError(f"{path}: holds more than {limit} bytes", hint=f"if that is intended, raise {LIMIT}")
