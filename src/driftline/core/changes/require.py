"""Required columns: a column becomes required only if no existing row can be null in it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

from driftline.core.schema.types import Field, Path, dotted
from driftline.errors import DataError

WAY_OUT = "add a column that is NOT NULL with a DEFAULT"


@dataclass(frozen=True, slots=True)
class NullCount:
    """The rows in which a column is null, by the statistics, and the ``unknown`` rest.

    Deleted rows that are still in files count too.

    >>> NullCount(1, 2) + NullCount(3)
    NullCount(nulls=4, unknown=2)
    """

    nulls: int = 0
    unknown: int = 0

    def __add__(self, other: NullCount) -> NullCount:
        return NullCount(self.nulls + other.nulls, self.unknown + other.unknown)


NullsOf: TypeAlias = Callable[[Path, Field], NullCount]


def require(path: Path, column: Field, nulls_of: NullsOf | None) -> None:
    """Raise DataError if the column contains nulls, or may."""
    refusal = f"{dotted(path)} is optional, and cannot become required"
    if nulls_of is None:
        raise DataError(refusal, f"existing rows may be null; {WAY_OUT}")
    count = nulls_of(path, column)
    if count.nulls:
        raise DataError(
            f"{refusal}: it is null in {_rows(count.nulls)}", f"give these rows a value, or {WAY_OUT}"
        )
    if count.unknown:
        raise DataError(
            f"{refusal}: whether it is null in {_rows(count.unknown)} is not known, for there are no statistics of it",
            f"rewritten files have them, except inside structs, lists and maps; or {WAY_OUT}",
        )


def _rows(n: int) -> str:
    return "1 row" if n == 1 else f"{n} rows"
