"""All changes to a table, each as a frozen value.

The planner makes the first four, `alter` parses SQL into any of them, `diff` finds them between two versions.
Paths name columns as they are when the change's turn comes; steps into lists and maps are ``element`` and
``value``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import date, datetime, time
from decimal import Decimal
from typing import TypeAlias
from uuid import UUID

from driftline.core.schema.definition import IDENTITY, Transform
from driftline.core.schema.naming import is_metadata
from driftline.core.schema.types import UNKNOWN, Expression, Field, Path, SourceLocation, Type

Literal: TypeAlias = (
    bool | int | float | Decimal | str | bytes | date | datetime | time | UUID | Expression | None
)


@dataclass(frozen=True, slots=True)
class Reason:
    """The cause of a change: the rule, in words, and the value that led to it.

    Attributes:
        location: where the value stood, as new columns are ordered by it.
        sampled: where exactly it stood in a typed source, for a report.
    """

    rule: str = ""
    why: str = ""
    field: Path = ()
    sample: str = ""
    location: SourceLocation | None = None
    sampled: SourceLocation | None = None

    @property
    def place(self) -> SourceLocation | None:
        """The place that a report shows beside the value."""
        return self.sampled or self.location


@dataclass(frozen=True, slots=True)
class Position:
    """First in its struct, or right ``after`` the field of this name."""

    after: str | None = None


@dataclass(frozen=True, slots=True)
class AddColumn:
    """Add a column.

    Attributes:
        parent: the struct that gets it.
        within: the struct is new and brings the column in its type; the change is listed to be seen.
        to: its position; None is the end.
        if_absent: only where no column has its name.
    """

    parent: Path
    column: Field
    reason: Reason = Reason()
    within: bool = False
    to: Position | None = None
    if_absent: bool = False

    action = "add"

    @property
    def path(self) -> Path:
        """The path of the new column."""
        return (*self.parent, self.column.name)

    @property
    def is_plain(self) -> bool:
        """True if the column has a field's own name, without a mark of another."""
        doc = self.column.doc
        return doc is None or (not is_metadata(doc) and self.reason.field[-1:] == (self.column.name,))

    @property
    def type(self) -> Type:
        """The type of the new column."""
        return self.column.type


@dataclass(frozen=True, slots=True)
class WidenColumn:
    """Widen the primitive at ``path`` to another type of its family."""

    path: Path
    type: Type
    reason: Reason = Reason()

    action = "widen"


@dataclass(frozen=True, slots=True)
class RelaxColumn:
    """Make a required column optional. ``type`` is what it has, for those who print it."""

    path: Path
    type: Type = UNKNOWN
    reason: Reason = Reason()

    action = "relax"


@dataclass(frozen=True, slots=True)
class RewriteColumn:
    """Give a column a type that only rewritten data can have.

    The new column has the same name and place, and an id of its own.
    """

    path: Path
    type: Type
    reason: Reason = Reason()

    action = "rewrite"


@dataclass(frozen=True, slots=True)
class DropColumn:
    """Take the column out of the schema; its values stay in the files, and read again after an undo."""

    path: Path
    if_exists: bool = False

    action = "drop"


@dataclass(frozen=True, slots=True)
class RenameColumn:
    """Give the column another name in its struct; its id and values stay."""

    path: Path
    name: str

    action = "rename"


@dataclass(frozen=True, slots=True)
class MoveColumn:
    """Move the column within its struct."""

    path: Path
    to: Position

    action = "move"


@dataclass(frozen=True, slots=True)
class RequireColumn:
    """Make the column required, if it is certain that no row is null there."""

    path: Path

    action = "require"


@dataclass(frozen=True, slots=True)
class ReplaceColumns:
    """Make exactly these the table's columns, in this order.

    Existing columns of the same name keep their ids, and so their values, in the given type; the others are
    dropped.
    """

    columns: tuple[Field, ...]

    action = "replace columns"


@dataclass(frozen=True, slots=True)
class SetDefault:
    """The value that new records without one get; None: none. Existing rows stay as they are."""

    path: Path
    value: Literal

    action = "default"


@dataclass(frozen=True, slots=True)
class SetDoc:
    """Change the comment. The mark of an evolved column stays, unless the comment has a mark of its own.

    Attributes:
        before: the former comment, if known.
    """

    path: Path
    doc: str | None
    before: str | None = field(default=None, compare=False)

    action = "comment"


@dataclass(frozen=True, slots=True)
class SetIdentifiers:
    """Make exactly these columns the identifier fields."""

    paths: tuple[Path, ...]

    action = "identifiers"


@dataclass(frozen=True, slots=True)
class DropIdentifiers:
    """Remove these columns from the identifier fields."""

    paths: tuple[Path, ...]

    action = "drop identifiers"


@dataclass(frozen=True, slots=True)
class Term:
    """A column through a transform, as partition specs and sort orders have it."""

    path: Path
    transform: Transform = IDENTITY


@dataclass(frozen=True, slots=True)
class SortTerm:
    """A sort key.

    Attributes:
        term: a text is an expression of DuckDB's.
    """

    term: Term | str
    descending: bool = False
    nulls_first: bool = True


@dataclass(frozen=True, slots=True)
class AddPartitionField:
    """Partition new files by ``term`` too. ``name`` empty: Iceberg's name."""

    term: Term
    name: str = ""

    action = "add partition field"


@dataclass(frozen=True, slots=True)
class DropPartitionField:
    """Stop partitioning new files by the field, given by its name or its term."""

    field: str | Term

    action = "drop partition field"


@dataclass(frozen=True, slots=True)
class ReplacePartitionField:
    """Replace one partition field by another; the same term under another name renames it."""

    old: str | Term
    term: Term
    name: str = ""

    action = "replace partition field"


@dataclass(frozen=True, slots=True)
class SetPartitioning:
    """Partition new files by exactly these terms; none: not at all."""

    terms: tuple[Term, ...] = ()

    action = "partition"


@dataclass(frozen=True, slots=True)
class SetSortOrder:
    """Sort new files by these terms; none: not at all."""

    terms: tuple[SortTerm, ...] = ()

    action = "sort"


@dataclass(frozen=True, slots=True)
class SetDistribution:
    """Distribute rows among the writing tasks by ``none``, ``hash`` (partition) or ``range`` (sort order)."""

    mode: str

    action = "distribute"


@dataclass(frozen=True, slots=True)
class SetProperties:
    properties: Mapping[str, str] = field(default_factory=dict)

    action = "set"


@dataclass(frozen=True, slots=True)
class UnsetProperties:
    keys: tuple[str, ...]
    if_exists: bool = False

    action = "unset"


@dataclass(frozen=True, slots=True)
class RenameTable:
    """Rename the table in the catalog, to ``table`` or ``namespace.table``.

    It stands alone, as no change of the table.
    """

    name: str

    action = "rename table"


Change: TypeAlias = AddColumn | WidenColumn | RelaxColumn | RewriteColumn
ColumnChange: TypeAlias = (
    Change
    | DropIdentifiers
    | DropColumn
    | RenameColumn
    | MoveColumn
    | RequireColumn
    | SetDefault
    | SetDoc
    | SetIdentifiers
)
LayoutChange: TypeAlias = (
    AddPartitionField
    | DropPartitionField
    | ReplacePartitionField
    | SetPartitioning
    | SetSortOrder
    | SetDistribution
)
TableChange: TypeAlias = (
    ColumnChange | ReplaceColumns | LayoutChange | SetProperties | UnsetProperties | RenameTable
)
