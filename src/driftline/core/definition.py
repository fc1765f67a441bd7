"""What a table is defined as: everything that `alter` changes and `undo` restores."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from driftline.core.layout import PartitionField, SortField
from driftline.core.types import Field, Path, Schema, Struct

DISTRIBUTION = "write.distribution-mode"


@dataclass(frozen=True, slots=True)
class Use:
    """What needs a column. ``why``: the end of a sentence that refuses something; ``way_out``: what frees the column.

    >>> Use("the sort order is made of it", "WRITE UNORDERED").why
    'the sort order is made of it'
    """

    why: str
    way_out: str


@dataclass(frozen=True, slots=True)
class Definition:
    """A table without its rows. ``last_column`` is the highest id that any of its columns ever had.

    ``sort_expressions``: by the id of each column that they name, those of DuckDB's by which the table is sorted, where
    ``sort`` cannot tell it.
    """

    schema: Schema = field(default_factory=Schema)
    partition: tuple[PartitionField, ...] = ()
    sort: tuple[SortField, ...] = ()
    properties: Mapping[str, str] = field(default_factory=dict)
    format_version: int = 2
    last_column: int = 0
    sort_expressions: Mapping[int, str] = field(default_factory=dict)

    def path_of(self, column: int) -> Path | None:
        """Where the column of this id is."""
        return next((path for path, f in self.schema.walk() if f.id == column), None)

    def column_uses(self) -> dict[int, Use]:
        """What needs each column, by its id: it can be neither dropped nor replaced meanwhile."""
        expressions = {
            column: Use(f"the sort expression {text} is made of it", "RESET SORTED BY in DuckDB")
            for column, text in self.sort_expressions.items()
        }
        identifiers = dict.fromkeys(
            self.schema.identifiers, Use("it is an identifier field", "DROP IDENTIFIER FIELDS")
        )
        sort = {f.source: Use("the sort order is made of it", "WRITE UNORDERED") for f in self.sort}
        partition = {
            f.source: Use(f"the partition field {f.name} is made of it", f"DROP PARTITION FIELD {f.name}")
            for f in self.partition
            if f.transform.name != "void"
        }
        return expressions | identifiers | sort | partition

    def use_of(self, column: Field) -> Use | None:
        """What needs the column, or a field inside it."""
        uses = self.column_uses()
        inside = Schema(Struct((column,))).walk()
        return next((uses[f.id] for _, f in inside if f.id in uses), None)
