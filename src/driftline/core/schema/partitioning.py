"""The layout of a table's files: partition fields and sort fields, by the ids of their columns."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

from driftline.core.schema.types import Primitive, Type

_TEXT = re.compile(r"(\w+)(?:\[(\d+)\])?")
_TIMES = frozenset({"date", "timestamp", "timestamp_ntz", "timestamp_ns", "timestamptz_ns"})
_BUCKETED = _TIMES | {"int", "long", "decimal", "time", "string", "uuid", "fixed", "binary"}
# What each transform takes; None: any primitive type.
TAKES: dict[str, frozenset[str] | None] = {
    "identity": None,
    "void": None,
    "bucket": frozenset(_BUCKETED),
    "truncate": frozenset({"int", "long", "decimal", "string", "binary"}),
    "year": _TIMES,
    "month": _TIMES,
    "day": _TIMES,
    "hour": _TIMES - {"date"},
}
COUNTED = ("bucket", "truncate")  # have a number
MOST = 2**31 - 1  # which is an int of Java's
TIMES = ("year", "month", "day", "hour")


@dataclass(frozen=True, slots=True)
class Transform:
    """The function of a value by which rows are partitioned or sorted; ``n`` is of a bucket or a truncate.

    >>> str(Transform("bucket", 8)), Transform.read("truncate[4]"), str(Transform())
    ('bucket[8]', Transform(name='truncate', n=4), 'identity')
    """

    name: str = "identity"
    n: int | None = None

    def __str__(self) -> str:
        return self.name if self.n is None else f"{self.name}[{self.n}]"

    @classmethod
    def read(cls, text: str) -> Transform:
        """A transform in Iceberg's spelling."""
        match = _TEXT.fullmatch(text)
        return cls(match[1], int(match[2]) if match[2] else None) if match else cls(text)

    def takes(self, type_: Type) -> bool:
        """True if values of the type can go through it."""
        if not isinstance(type_, Primitive) or type_.name in ("variant", "unknown", "geometry", "geography"):
            return False
        allowed = TAKES.get(self.name, frozenset())
        return allowed is None or type_.name in allowed

    def field_name(self, column: str) -> str:
        """Iceberg's name of a column's partition field.

        >>> Transform("bucket", 8).field_name("id"), Transform("day").field_name("at")
        ('id_bucket_8', 'at_day')
        """
        match self.name:
            case "identity":
                return column
            case "bucket":
                return f"{column}_bucket_{self.n}"
            case "truncate":
                return f"{column}_trunc_{self.n}"
            case "void":
                return f"{column}_null"
            case _:
                return f"{column}_{self.name}"

    def of(self, column: str) -> str:
        """The transform of a column, as SQL has it.

        >>> Transform("bucket", 8).of("id"), Transform().of("id")
        ('bucket(8, id)', 'id')
        """
        if self.name == "identity":
            return column
        return f"{self.name}({column})" if self.n is None else f"{self.name}({self.n}, {column})"


IDENTITY = Transform()
VOID = Transform("void")


@dataclass(frozen=True, slots=True)
class PartitionField:
    """``source`` is the id of the column."""

    name: str
    source: int
    transform: Transform = IDENTITY


@dataclass(frozen=True, slots=True)
class SortField:
    """``source`` is the id of the column."""

    source: int
    transform: Transform = IDENTITY
    descending: bool = False
    nulls_first: bool = True

    @property
    def columns(self) -> tuple[int, ...]:
        """The ids of the columns that the field sorts by."""
        return (self.source,)


@dataclass(frozen=True, slots=True)
class SortExpression:
    """An expression of DuckDB's. ``parts``: its text, with a column's id wherever it names one.

    >>> SortExpression(("lower(", 7, ")")).text({7: "name"}.__getitem__)
    'lower(name)'
    """

    parts: tuple[str | int, ...]
    descending: bool = False
    nulls_first: bool = True

    @property
    def columns(self) -> tuple[int, ...]:
        """The ids of the columns that the expression names, in its order."""
        return tuple(part for part in self.parts if isinstance(part, int))

    def text(self, name_of: Callable[[int], str]) -> str:
        """The expression with the columns' names."""
        return "".join(part if isinstance(part, str) else name_of(part) for part in self.parts)


SortKey: TypeAlias = SortField | SortExpression


@dataclass(frozen=True, slots=True)
class Laid:
    """The data files of one partition spec, in numbers.

    ``bytes``: their size. ``current``: new files follow this spec.
    """

    spec: int
    fields: tuple[PartitionField, ...]
    files: int
    records: int
    bytes: int
    current: bool
