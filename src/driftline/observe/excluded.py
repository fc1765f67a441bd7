"""Counts of records that have a value at an excluded path."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from msgspec import DecodeError
from msgspec.json import Decoder

from driftline.core.schema.types import Path, dotted

_decode = Decoder(dict[str, object]).decode


class Excluded:
    """Counts, in ``counts``, the records that have a value at each of the paths."""

    def __init__(self, paths: Sequence[Path]) -> None:
        self.paths = paths
        self.counts: Counter[str] = Counter()

    def feed(self, lines: Iterable[bytes]) -> None:
        """Count in lines of JSON; a line that is no object has no such value."""
        for line in lines if self.paths else ():
            try:
                record = _decode(line)
            except (DecodeError, RecursionError, ValueError):
                continue
            for path in self.paths:
                if _has_value(record, path):
                    self.counts[dotted(path)] += 1


def _has_value(value: object, path: Path) -> bool:
    if isinstance(value, list):
        inside = path[1:] if path[:1] == ("element",) else path
        return any(_has_value(item, inside) for item in value)
    if not path:
        return value is not None
    if not isinstance(value, dict):
        return False
    if path[0] == "value" and "value" not in value:
        return any(_has_value(item, path[1:]) for item in value.values())
    return path[0] in value and _has_value(value[path[0]], path[1:])
