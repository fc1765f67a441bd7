"""The definition of a table: all that `alter` changes and `undo` restores."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple, TypeAlias

from driftline.core.schema.types import Field, Path, Primitive, Schema, Struct, Type, dotted

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
    """An expression of DuckDB's.

    Attributes:
        parts: its text, with a column's id wherever it names one.

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

    Attributes:
        bytes: their size.
        current: new files follow this spec.
    """

    spec: int
    fields: tuple[PartitionField, ...]
    files: int
    records: int
    bytes: int
    current: bool


DISTRIBUTION = "write.distribution-mode"
KEY_PROPERTY = "driftline.key"
ORDER_PROPERTY = "driftline.order-by"
DELETES_PROPERTY = "driftline.deletes"
MERGE_PROPERTY = "driftline.merge"
ENVELOPE_PROPERTY = "driftline.envelope"
EPOCH_PROPERTY = "driftline.epoch"
# The position of the last truncate: older changes are late
TRUNCATED_PROPERTY = "driftline.truncated"
# Settings that come and go with the key
ROW_KEY = (
    KEY_PROPERTY,
    ORDER_PROPERTY,
    DELETES_PROPERTY,
    MERGE_PROPERTY,
    ENVELOPE_PROPERTY,
    EPOCH_PROPERTY,
    TRUNCATED_PROPERTY,
    "driftline.unavailable-value",
    "driftline.on-snapshot",
    "driftline.delete-when",
    "driftline.delete-memory",
    "driftline.key-cache",
)
HARD, SOFT = "hard", "soft"  # what a delete does: removes the row, or marks it
# What a record does to its row: is it, changes fields of it, or nothing, as the first record stays.
REPLACE, PATCH, KEEP = "replace", "patch", "keep"
# Of records in an envelope: the field with what it says of the change
CHANGE = "_change"
OPERATION, POSITION = (CHANGE, "op"), (CHANGE, "position")
# In place of an order: of the changes of a row the last to come counts
ARRIVAL = "_arrival"
# The names of fields whose values the message does not have
UNAVAILABLE = (CHANGE, "unavailable")
# The version of Iceberg's format that removes rows by deletion vectors
WITH_VECTORS = 3


@dataclass(frozen=True, slots=True)
class Use:
    """A reason to keep a column.

    Attributes:
        why: the end of a sentence that refuses something.
        way_out: how to free the column.

    >>> Use("the sort order is made of it", "WRITE UNORDERED").why
    'the sort order is made of it'
    """

    why: str
    way_out: str


class RowsKnownBy(NamedTuple):
    """The settings by which a table knows its rows, as a person wrote them; empty where it does not."""

    key: str
    order_by: str
    deletes: str
    merge: str
    envelope: str


def known_by(properties: Mapping[str, str]) -> RowsKnownBy:
    """The settings among a table's properties by which it knows its rows."""
    names = (KEY_PROPERTY, ORDER_PROPERTY, DELETES_PROPERTY, MERGE_PROPERTY, ENVELOPE_PROPERTY)
    key, order, deletes, merge, envelope = (properties.get(name, "") for name in names)
    if not key:
        return RowsKnownBy("", order, "", "", "")
    by_position = ".".join(POSITION) if envelope else ""
    # An envelope orders by its own position, unless a person names another field.
    order = "" if order == ARRIVAL else order or by_position
    return RowsKnownBy(key, order, deletes or HARD, merge or REPLACE, envelope)


def forgets_deletes(before: Mapping[str, str], after: Mapping[str, str]) -> bool:
    """True if a table that remembers deletes by their order knows no order any more."""
    was, now = known_by(before), known_by(after)
    return bool(was.key and was.order_by) and not (now.key and now.order_by)


@dataclass(frozen=True, slots=True)
class Definition:
    """A table without its rows. ``last_column`` is the highest id that any of its columns ever had."""

    schema: Schema = field(default_factory=Schema)
    partition: tuple[PartitionField, ...] = ()
    sort: tuple[SortKey, ...] = ()
    properties: Mapping[str, str] = field(default_factory=dict)
    format_version: int = 2
    last_column: int = 0

    @property
    def known_by(self) -> RowsKnownBy:
        """The settings by which the table knows its rows."""
        return known_by(self.properties)

    def path_of(self, column: int) -> Path | None:
        """The path of the column with this id."""
        return next((path for path, f in self.schema.walk() if f.id == column), None)

    def name_of(self, column: int) -> str:
        """The column's path as text; its id if it is gone."""
        return dotted(self.path_of(column) or (f"#{column}",))

    def column_uses(self) -> dict[int, Use]:
        """The uses of columns, by id: a column in use can be neither dropped nor replaced."""
        identifiers = dict.fromkeys(
            self.schema.identifiers, Use("it is an identifier field", "DROP IDENTIFIER FIELDS")
        )
        sort = {column: self._sort_use(key) for key in self.sort for column in key.columns}
        partition = {
            f.source: Use(f"the partition field {f.name} is made of it", f"DROP PARTITION FIELD {f.name}")
            for f in self.partition
            # A void field is a partition field that v1 tables cannot remove: it uses nothing.
            if f.transform.name != "void"
        }
        return identifiers | sort | partition

    def _sort_use(self, key: SortKey) -> Use:
        if isinstance(key, SortExpression):
            return Use(f"the sort expression {key.text(self.name_of)} is made of it", "RESET SORTED BY")
        return Use("the sort order is made of it", "WRITE UNORDERED")

    def use_of(self, column: Field) -> Use | None:
        """The use of the column, or of a field inside it."""
        uses = self.column_uses()
        inside = Schema(Struct((column,))).walk()
        return next((uses[f.id] for _, f in inside if f.id in uses), None)
