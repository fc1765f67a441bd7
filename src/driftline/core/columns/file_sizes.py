"""The sizes of a table's data files, by partition."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from typing import Any, TypedDict

from driftline.core.schema.definition import VOID, PartitionField
from driftline.core.support import as_json

LARGEST = 10  # partitions that are listed
# Small files that become one: a row is rewritten only a few times until its file is large
MANY = 8
_EPOCH = datetime(1970, 1, 1)
_MONTHS = 12


def small_below(target: int) -> int:
    """The bytes below which a file is small, in a table whose files should have ``target`` bytes."""
    return target // 4


def are_enough(count: int, size: int, target: int | None, many: int = MANY) -> bool:
    """True if so many small files of a partition, of ``size`` bytes together, are worth writing anew.

    >>> are_enough(8, 80, 1000), are_enough(2, 1200, 1000), are_enough(2, 1200, None)
    (True, True, False)
    """
    return count >= many or (target is not None and size >= target)


class PartitionSizeJson(TypedDict):
    """The data files of one partition. ``small_files``: those that a compaction gathers."""

    partition: str
    files: int
    bytes: int
    small_files: int


@dataclass(frozen=True, slots=True)
class PartitionSize:
    """The data files of one partition.

    Attributes:
        partition: its values by the names of the partition fields; empty for files of no partition.
        small: the number of files that a compaction gathers.
    """

    partition: str
    files: int
    bytes: int
    small: int

    def to_dict(self) -> PartitionSizeJson:
        """The form that `--json` prints."""
        return as_json(PartitionSizeJson, self, small_files=self.small)


@dataclass(frozen=True, slots=True)
class FileSizes:
    """The data files of a table.

    Attributes:
        small: the number of files that a compaction gathers.
        partitions: the number of partitions with files; 0 if the table has none.
        largest: the partitions with the most bytes, at most `LARGEST`.
    """

    small: int = 0
    partitions: int = 0
    largest: tuple[PartitionSize, ...] = ()


def partition_name(fields: Sequence[PartitionField], values: Sequence[Any]) -> str:
    """Name a partition by its values, as folders of Hive are named.

    >>> from driftline.core.schema.definition import Transform
    >>> fields = PartitionField("day", 1, Transform("day")), PartitionField("kind", 2)
    >>> partition_name(fields, (20454, None))
    'day=2026-01-01/kind=null'
    """
    pairs = zip(fields, values, strict=False)
    return "/".join(f"{f.name}={_spelled(f, value)}" for f, value in pairs if f.transform != VOID)


def _spelled(field: PartitionField, value: Any) -> str:
    """A value of a partition field, as Iceberg counts years, months, days and hours since 1970.

    >>> from driftline.core.schema.definition import Transform
    >>> [_spelled(PartitionField("", 1, Transform(unit)), 24) for unit in ("year", "month", "hour")]
    ['1994', '1972-01', '1970-01-02-00']
    """
    if value is None:
        return "null"
    if not isinstance(value, int) or isinstance(value, bool):
        return str(value)
    match field.transform.name:
        case "year":
            return str(_EPOCH.year + value)
        case "month":
            return f"{_EPOCH.year + value // _MONTHS}-{value % _MONTHS + 1:02}"
        case "day":
            return str(date(1970, 1, 1) + timedelta(days=value))
        case "hour":
            return f"{_EPOCH + timedelta(hours=value):%Y-%m-%d-%H}"
        case _:
            return str(value)
