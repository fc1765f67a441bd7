"""The index of a pandas frame: its levels by name, and ranges beside the data of a Parquet file."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa


@dataclass(frozen=True, slots=True)
class NamedRange:
    """An index with a name whose values are a range: pandas writes their rule into the file, and no column.

    ``pd.DataFrame(…).set_index("id")`` has one where the ids follow each other.
    """

    name: str
    start: int
    step: int

    @property
    def field(self) -> pa.Field:
        """Its column."""
        return pa.field(self.name, pa.int64())

    def values(self, row: int, count: int) -> pa.Array:
        """Its values in ``count`` rows from ``row`` on, counted from 0."""
        start = self.start + row * self.step
        return pa.array(range(start, start + count * self.step, self.step), pa.int64())


def named_range(
    metadata: Mapping[bytes, bytes] | None, columns: Collection[str], rows: int
) -> NamedRange | None:
    """The range beside the data of a file; None where there is none, or it was made for other rows."""
    try:
        (index,) = json.loads((metadata or {})[b"pandas"])["index_columns"]
        name, start, stop, step = (index[key] for key in ("name", "start", "stop", "step"))
        fits = len(range(start, stop, step)) == rows
    except (KeyError, TypeError, ValueError, OverflowError):  # no frame of pandas, or a column is its index
        return None
    return NamedRange(name, start, step) if isinstance(name, str) and name not in columns and fits else None


def levels(frame: Any) -> list[tuple[str, Any]]:
    """The levels of a frame's index that hold values, named as pandas names them in a file.

    Positions, a range without a name, are none.
    """
    index = frame.index
    if index.nlevels == 1 and index.name is None and type(index).__name__ == "RangeIndex":
        return []
    columns = set(column_names(frame.columns))
    out: list[tuple[str, Any]] = []
    for number, name in enumerate(index.names):
        (text,) = column_names([name])
        taken = name is None or text in columns or text in dict(out)
        out.append((f"__index_level_{number}__" if taken else text, index.get_level_values(number)))
    return out


def column_names(names: Sequence[Any]) -> list[str]:
    """Names of columns as texts: `('p', 1)` is `('p', '1')`, as pandas has it in a file."""
    return [_text(name) for name in names]


def _text(name: Any) -> str:
    if isinstance(name, bytes):
        return name.decode(errors="backslashreplace")
    return str(tuple(map(_text, name)) if isinstance(name, tuple) else name)
