"""A split of records by the values of a field: one table of each value, and the cells that these have."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from shlex import quote
from statistics import median
from typing import TypeAlias, TypedDict

from driftline.core.schema.types import Path, dotted
from driftline.core.settings.fields import spelled_path
from driftline.core.support import as_json
from driftline.ingest.assignment import MAX_TABLES

MOST = MAX_TABLES  # that a split may make
FIRST = 5000  # records that are looked at
FEW = 30  # columns that are no burden in one table
_PRESENT = 0.95  # the share of records that have a field, at least
SAVED = 0.5  # the share of cells that a split saves, at least
_RECORDS = 4  # of a table, on average, at least
DEPTH = 2  # of fields that may split

# Records and columns by value; None without one
Groups: TypeAlias = Mapping[str | None, tuple[int, int]]


class SplitByFieldJson(TypedDict):
    """The tables that the values of a field would make of one: ``columns`` is the median, ``cells`` the share
    of the one table's cells that they would have, by so many of its ``records``.
    """

    field: str
    tables: int
    columns: int
    cells: float
    records: int


@dataclass(frozen=True, slots=True)
class SplitByField:
    """A split of records by the values of a field.

    Attributes:
        columns: of a table, the median.
        cells: the share of the cells, records by columns, of one table for all.
        records: those that were looked at.
    """

    field: Path
    tables: int
    columns: int
    cells: float
    records: int

    @property
    def spelled(self) -> str:
        """The field, as a pattern has it in braces."""
        return spelled_path(self.field)

    @property
    def outcome(self) -> str:
        """The tables that it makes, for people."""
        return f"{self.tables} tables of {self.columns} columns (median), with {self.cells:.0%} of the cells"

    def command(self, table: str) -> str:
        """The command that makes the tables of a table's rows."""
        return f"driftline split {quote(table)} --by {quote(self.spelled)}"

    def to_dict(self) -> SplitByFieldJson:
        """The form that `--json` prints."""
        return as_json(SplitByFieldJson, self, field=dotted(self.field))


def is_frequent(values: int, records: int) -> bool:
    """True if enough of the records have a value in a field by which they may be split."""
    return values >= _PRESENT * records


def best_of(groups: Iterable[tuple[Path, Groups]], width: int) -> SplitByField | None:
    """The split with the fewest cells; None if none saves half of them.

    Args:
        groups: the records of each value of a field, by fields.
        width: the number of columns of one table for all.
    """
    if width < FEW:
        return None
    splits = (_split(field, of_values, width) for field, of_values in groups)
    possible = [split for split in splits if split is not None and split.cells <= SAVED]
    return min(possible, key=lambda split: (split.cells, split.tables), default=None)


def _split(field: Path, of_values: Groups, width: int) -> SplitByField | None:
    """A split by a field; None if too few records have it, or it tells each from the others."""
    records = sum(count for count, _ in of_values.values())
    absent, _ = of_values.get(None, (0, 0))
    if not is_frequent(records - absent, records) or len(of_values.keys() - {None}) < 2:
        return None
    if records < _RECORDS * len(of_values):  # as a field that identifies records does
        return None
    cells = sum(count * columns for count, columns in of_values.values())
    columns = round(median(columns for _, columns in of_values.values()))
    return SplitByField(field, len(of_values), columns, cells / (records * width), records)
