"""Numbers with a unit, as people write them: spans of time, sizes in memory."""

from __future__ import annotations

import re

_SPAN = re.compile(r"(\d+(?:\.\d+)?) *(ms|[smhd])")
_SECONDS = {"ms": 0.001, "s": 1, "m": 60, "h": 3_600, "d": 86_400}
_SIZE = re.compile(r"(\d+) *([kmg]b)?")
_BYTES = {"": 1, "kb": 2**10, "mb": 2**20, "gb": 2**30}


def parse_span(text: str) -> float:
    """The seconds of a span of time. Raises ValueError, without a unit too.

    >>> [parse_span(text) for text in ("500ms", "10s", "90m", "7d")]
    [0.5, 10.0, 5400.0, 604800.0]
    """
    match = _SPAN.fullmatch(text.strip())
    if match is None:
        raise ValueError(f"{text!r} is not a span of time: write 500ms, 10s, 5m, 36h, 7d")
    return float(match[1]) * _SECONDS[match[2]]


def parse_size(text: str) -> int:
    """The bytes of a size in memory. Raises ValueError.

    >>> parse_size("256mb"), parse_size("1 GB"), parse_size("0")
    (268435456, 1073741824, 0)
    """
    match = _SIZE.fullmatch(text.strip().lower())
    if match is None:
        raise ValueError(f"{text!r} is not a size: write 256mb, 1gb, 0")
    return int(match[1]) * _BYTES[match[2] or ""]
