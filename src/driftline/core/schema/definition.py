"""A table's definition: everything that `alter` changes and `undo` restores."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from driftline.core.schema.partitioning import PartitionField, SortExpression, SortKey
from driftline.core.schema.types import Field, Path, Schema, Struct, dotted

DISTRIBUTION = "write.distribution-mode"
KEY_PROPERTY = "driftline.key"
ORDER_PROPERTY = "driftline.order-by"
DELETES_PROPERTY = "driftline.deletes"
MERGE_PROPERTY = "driftline.merge"
ENVELOPE_PROPERTY = "driftline.envelope"
EPOCH_PROPERTY = "driftline.epoch"
TRUNCATED_PROPERTY = "driftline.truncated"  # the position of the last truncate: older changes are late
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
)  # settings that come and go with the key
HARD, SOFT = "hard", "soft"  # what a delete does: removes the row, or marks it
REPLACE, PATCH = "replace", "patch"  # what a record does to its row: is it, or changes fields of it
CHANGE = "_change"  # of records in an envelope: the field with what it says of the change
OPERATION, POSITION = (CHANGE, "op"), (CHANGE, "position")
ARRIVAL = "_arrival"  # in place of an order: of the changes of a row the last to come counts
UNAVAILABLE = (CHANGE, "unavailable")  # the names of fields whose values the message does not have
WITH_VECTORS = 3  # the version of Iceberg's format that removes rows by deletion vectors


@dataclass(frozen=True, slots=True)
class Use:
    """A reason to keep a column.

    ``why``: the end of a sentence that refuses something; ``way_out``: how to free the column.

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
