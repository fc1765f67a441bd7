"""`evolved`: a table's definition after the changes that a person requests, each checked first."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

from driftline.core.changes.apply import SchemaDraft, longest_rising
from driftline.core.changes.check import Checker, NullsOf, clashes, meant, missing, spelled
from driftline.core.changes.text import PartsOf, sort_key
from driftline.core.changes.values import (
    AddColumn,
    AddPartitionField,
    ColumnChange,
    DropColumn,
    DropPartitionField,
    MoveColumn,
    Position,
    RenameColumn,
    RenameTable,
    ReplaceColumns,
    ReplacePartitionField,
    RequireColumn,
    SetDistribution,
    SetDoc,
    SetPartitioning,
    SetProperties,
    SetSortOrder,
    TableChange,
    Term,
    UnsetProperties,
    WidenColumn,
)
from driftline.core.schema.definition import (
    COUNTED,
    DISTRIBUTION,
    IDENTITY,
    MOST,
    VOID,
    Definition,
    PartitionField,
)
from driftline.core.schema.naming import MARK, nearest, unmarked
from driftline.core.schema.schema_json import type_name
from driftline.core.schema.text import storable
from driftline.core.schema.types import Field, List, Map, Path, Struct, Type, children, dotted
from driftline.errors import DataError, DriftlineError, UsageError

VERSION = "format-version"
OURS = frozenset(
    {
        "driftline.batch",
        "driftline.change",
        "driftline.changes",
        "driftline.expired",
        "driftline.expired-compactions",
        "driftline.expiring",
        "driftline.files",
        "driftline.readings",
        "driftline.seen",
        "driftline.thinned",
    }
)
RESERVED = OURS | {
    "uuid", "snapshot-count", "current-snapshot-id", "current-snapshot-summary", "current-snapshot-timestamp-ms",
    "current-schema", "default-partition-spec", "default-sort-order", "provider", "location", "sort-order",
    "identifier-fields",
}  # fmt: skip


class Refused(Exception):
    """A change that cannot be made: its index in the list, from 0, and the reason."""

    def __init__(self, step: int, error: DriftlineError) -> None:
        super().__init__(str(error))
        self.step = step
        self.error = error


def evolved(
    before: Definition,
    changes: Sequence[TableChange],
    *,
    mark: str = MARK,
    upgrade: bool = False,
    nulls_of: NullsOf | None = None,
    parts_of: PartsOf | None = None,
) -> tuple[Definition, tuple[TableChange, ...]]:
    """Apply all changes in order.

    Names may clash on the way, so two columns can be swapped, but not at the end.

    Args:
        before: the table's definition.
        changes: the changes.
        mark: the prefix of docs of evolved columns.
        upgrade: to format v3.
        nulls_of: returns the null count of a column.
        parts_of: reads sort expressions; None if the format has none.

    Returns:
        The definition, and the single changes with names as the table has them.

    Raises:
        Refused: a change cannot be made.
    """
    evolution = _Evolution(before, mark, upgrade, nulls_of, parts_of)
    for step, change in enumerate(changes):
        try:
            evolution.make(step, change)
        except DriftlineError as error:
            raise Refused(step, error) from error
    return evolution.end(), tuple(evolution.done)


@dataclass(slots=True)
class _Evolution:
    now: Definition
    mark: str
    upgrade: bool
    nulls_of: NullsOf | None
    parts_of: PartsOf | None
    draft: SchemaDraft = field(init=False)
    # Ids of columns to the step that named or dropped them
    named: dict[int, int] = field(default_factory=dict)
    dropped: dict[int, int] = field(default_factory=dict)
    done: list[TableChange] = field(default_factory=list)

    def __post_init__(self) -> None:
        # An id is never given twice: files may still hold values of a column that was dropped.
        last = max(self.now.last_column, self.now.schema.highest_id())
        self.draft = SchemaDraft(self.now.schema, last, self.mark)
        if self.upgrade:
            self.now = replace(self.now, format_version=max(3, self.now.format_version))

    def make(self, step: int, change: TableChange) -> None:
        """Check a change, and make it as one or several changes of columns. Raises UsageError, DataError."""
        # By the draft, as a change may name a column that one before it has made.
        change = spelled(self.draft, change)
        match change:
            case WidenColumn(path, type_) if children(type_):
                for column_change in list(reshaped(path, self.checker().at(path).type, type_)):
                    self.column(step, column_change)
            # By name, so that ids stay: Spark gives each column a new one, and what was there reads as
            # null.
            case ReplaceColumns(columns):
                for column_change in list(replaced(self.draft.schema.struct, columns)):
                    self.column(step, column_change)
            case RenameTable():
                raise UsageError(
                    "RENAME TO must be the only change: the name is the catalog's, and not of the same commit"
                )
            case _ if isinstance(change, ColumnChange):
                self.column(step, change)
            case _:
                self.table(change)
                self.done.append(change)

    def table(self, change: TableChange) -> None:
        """Make a change to the layout or the properties."""
        match change:
            case AddPartitionField() | DropPartitionField() | ReplacePartitionField() | SetPartitioning():
                self.now = replace(self.now, partition=self.partitioned(change))
            case SetSortOrder(terms):
                keys = (sort_key(t, self.draft.schema, self.source, self.parts_of) for t in terms)
                self.now = replace(self.now, sort=tuple(keys))
            case SetDistribution(mode):
                self.now = replace(self.now, properties={**self.now.properties, DISTRIBUTION: mode})
            case SetProperties():
                self.set(change)
            case UnsetProperties():
                self.unset(change)
            case _:
                raise AssertionError(change)

    def checker(self) -> Checker:
        """A checker for changes to the present draft."""
        return Checker(self.draft, self.now.format_version, self.nulls_of)

    def column(self, step: int, change: ColumnChange) -> None:
        """Check a change to columns, and make it."""
        checked = self.checker().check(change)
        if checked is None:
            return
        if isinstance(checked, DropColumn):
            gone = self.draft.find(checked.path)
            self.dropped |= {f.id: step for _, f in replace(self.now.schema, struct=Struct((gone,))).walk()}
        last = self.draft.last
        if isinstance(checked, RenameColumn):
            self.named[self.draft.find(checked.path).id] = step
        self.draft.make(checked)
        self.done.append(checked)
        if isinstance(checked, AddColumn):
            # A new column has the next id, and what is in it those behind.
            self.named[last + 1] = step

    def end(self) -> Definition:
        """The definition, if it is consistent."""
        schema = self.draft.schema
        # Clashes count at the end alone, so that one call can swap two names.
        for path, twins in clashes(schema.struct):
            steps = [self.named[f.id] for f in twins if f.id in self.named]
            # Twins that were there before are the table's own affair.
            if steps:
                names = sorted({f.name for f in twins})
                alike = f", and engines do not tell {' and '.join(names)} apart" if len(names) > 1 else ""
                raise Refused(max(steps), DataError(f"there is a column {dotted(path)} already{alike}"))
        if not schema.struct.fields and self.dropped:
            raise Refused(max(self.dropped.values()), DataError("a table must keep at least one column"))
        after = replace(self.now, schema=schema, last_column=self.draft.last)
        # After all changes, so a column and what uses it can go in one call.
        for column, use in after.column_uses().items():
            if column in self.dropped:
                refusal = f"{dotted(self.path_before(column))} cannot be dropped: {use.why}"
                error = DataError(refusal, f"{use.way_out} first, or in the same call")
                raise Refused(self.dropped[column], error)
        return after

    def path_before(self, column: int) -> tuple[str, ...]:
        """The path of a column before all changes; empty for a new one."""
        return self.now.path_of(column) or ()

    def partitioned(self, change: TableChange) -> tuple[PartitionField, ...]:
        """The table's partition fields after the change. Raises UsageError, DataError."""
        fields = self.now.partition
        match change:
            case AddPartitionField(term, name):
                new = self.field(term, name, fields)
                return (*(f for f in fields if f.name != new.name), new)  # but a void one, which says nothing
            case DropPartitionField(old):
                gone = self.existing(old)
                return tuple(f for f in fields if f is not gone)
            case ReplacePartitionField(old, term, name):
                gone = self.existing(old)
                remaining = tuple(f for f in fields if f is not gone)
                new = self.field(term, name, remaining)
                return tuple(new if f is gone else f for f in fields)
            case SetPartitioning(terms):
                partitioning: tuple[PartitionField, ...] = ()
                for term in terms:
                    partitioning = (*partitioning, self.field(term, "", partitioning))
                return partitioning
        raise AssertionError(change)

    def field(self, term: Term, name: str, among: tuple[PartitionField, ...]) -> PartitionField:
        """The partition field for a term, under ``name`` or the usual name.

        Raises DataError if one of the fields ``among`` has the term or the name, or another column has the
        name.
        """
        source = self.source(term)
        name = name or term.transform.field_name(dotted(term.path))
        for existing in among:
            if (existing.source, existing.transform) == (source, term.transform):
                raise DataError(f"the table is partitioned by {shown(term)} already, as {existing.name}")
            if existing.name == name and existing.transform != VOID:
                raise DataError(f"there is a partition field {name} already", "name it with AS")
        twin = next((f for f in self.draft.schema.struct.fields if f.name == name), None)
        if twin is not None and not (twin.id == source and term.transform.name == "identity"):
            raise DataError(f"{name} is a column, and cannot name a partition field too", "name it with AS")
        return PartitionField(name, source, term.transform)

    def source(self, term: Term) -> int:
        """The id of a term's column, if the transform accepts it."""
        try:
            column = self.draft.find(term.path)
        except KeyError:
            raise missing(self.draft.schema, term.path) from None
        if any(not isinstance(self.draft.find(term.path[:i]).type, Struct) for i in range(len(term.path))):
            raise DataError(f"{dotted(term.path)} is inside a list or a map, and so has many values a row")
        transform = term.transform
        if transform.name in COUNTED and not 0 < (transform.n or 0) <= MOST:
            raise UsageError(
                f"{transform.name} needs a number from 1 to {MOST}",
                f"write {transform.name}(8, {dotted(term.path)})",
            )
        if not transform.takes(column.type):
            raise DataError(
                f"cannot partition or sort by {transform.of(dotted(term.path))}: "
                f"{dotted(term.path)} is a {type_name(column.type)}"
            )
        return column.id

    def existing(self, reference: str | Term) -> PartitionField:
        """The partition field that a person names, by its name, its column or its term. Raises UsageError."""
        if isinstance(reference, Term):
            source = self.source(reference)
            fields = [
                f for f in self.now.partition if (f.source, f.transform) == (source, reference.transform)
            ]
        else:
            columns = {dotted(path): f.id for path, f in self.draft.schema.walk()}
            source = columns.get(meant(reference, columns) or "", 0)
            name = meant(reference, (f.name for f in self.now.partition))
            fields = [f for f in self.now.partition if f.name == name]
            fields += [f for f in self.now.partition if (f.source, f.transform) == (source, IDENTITY)]
        if fields:
            return fields[0]
        names = [f.name for f in self.now.partition]
        text = reference if isinstance(reference, str) else shown(reference)
        raise UsageError(
            f"there is no partition field {text}",
            nearest(text, names)
            or (f"there are {', '.join(names)}" if names else "the table is not partitioned"),
        )

    def set(self, change: SetProperties) -> None:
        """Set properties, and the format version. Raises DataError for an older version."""
        properties = dict(change.properties)
        _not_reserved(properties)
        version = properties.pop(VERSION, None)
        if version is not None:
            if not version.isdecimal() or int(version) < self.now.format_version:
                raise DataError(
                    f"format-version {version} is not possible: the table is v{self.now.format_version}, and cannot be downgraded"
                )
            self.now = replace(self.now, format_version=int(version))
        self.now = replace(self.now, properties={**self.now.properties, **properties})

    def unset(self, change: UnsetProperties) -> None:
        """Remove properties. Raises UsageError for one that is not set."""
        _not_reserved(change.keys)
        absent = [key for key in change.keys if key not in self.now.properties]
        if absent and not change.if_exists:
            raise UsageError(
                f"there is no property {absent[0]}",
                nearest(absent[0], list(self.now.properties))
                or "UNSET TBLPROPERTIES IF EXISTS passes over it",
            )
        properties = {key: value for key, value in self.now.properties.items() if key not in change.keys}
        self.now = replace(self.now, properties=properties)


def shown(term: Term) -> str:
    """A term in SQL.

    >>> from driftline.core.schema.definition import Transform
    >>> shown(Term(("at",), Transform("day")))
    'day(at)'
    """
    return term.transform.of(dotted(term.path))


def _not_reserved(keys: Sequence[str] | dict[str, str]) -> None:
    for key in keys:
        if key in RESERVED:
            raise UsageError(f"{key} cannot be set by hand: driftline keeps it")


def reshaped(path: Path, old: Type, new: Type) -> Iterator[ColumnChange]:
    """The changes from ``old``, the type at ``path``, to the new type, as DuckDB makes them.

    Fields of the same name keep their places and get the wider type, new ones come last, and missing ones are
    dropped. Raises UsageError for an ambiguous name, DataError for another map key.
    """
    match old, new:
        case Struct(fields), Struct(wanted):
            twins = paired(fields, wanted, path)
            for f in wanted:
                twin = twins.get(f.name)
                if twin is None:
                    yield AddColumn(path, storable_field(f))
                else:
                    yield from _of_field((*path, twin.name), twin, f)
            staying = {twin.name for twin in twins.values()}
            yield from (DropColumn((*path, f.name)) for f in fields if f.name not in staying)
        case List(element), List(wanted_element):
            yield from reshaped((*path, "element"), element, wanted_element)
        case Map(key, value), Map(wanted_key, wanted_value):
            if type_name(key) != type_name(storable(wanted_key)):
                raise DataError(
                    f"{'.'.join(path)}.key: the keys of a map cannot change", f"they are {type_name(key)}"
                )
            yield from reshaped((*path, "value"), value, wanted_value)
        case _:
            if old != new:
                yield WidenColumn(path, new)


def replaced(struct: Struct, requested: tuple[Field, ...]) -> Iterator[ColumnChange]:
    """The changes that make the requested columns those of the table, in their order.

    Raises as `reshaped` does.
    """
    twins = paired(struct.fields, requested, ())
    place = {f.name: i for i, f in enumerate(struct.fields)}
    # The fewest moves, as in `diff`: the longest run that is in order stays.
    staying = longest_rising([place[twins[f.name].name] for f in requested if f.name in twins])
    last: str | None = None
    for f in requested:
        twin = twins.get(f.name)
        if twin is None:
            yield AddColumn((), storable_field(f), to=Position(last))
            last = f.name
            continue
        yield from _of_field((twin.name,), twin, f)
        if place[twin.name] not in staying:
            yield MoveColumn((twin.name,), Position(last))
        last = twin.name
    staying_names = {twin.name for twin in twins.values()}
    yield from (DropColumn((f.name,)) for f in struct.fields if f.name not in staying_names)


def paired(fields: tuple[Field, ...], requested: tuple[Field, ...], within: Path) -> dict[str, Field]:
    """Pair requested fields with existing ones, by the requested name.

    A pair has the same spelling, or else is the only one in another letter case.
    """
    free = {f.name: f for f in fields}
    pairs = {f.name: free.pop(f.name) for f in requested if f.name in free}
    for f in requested:
        name = None if f.name in pairs else meant(f.name, free, within)
        if name is not None:
            pairs[f.name] = free.pop(name)
    return pairs


def storable_field(column: Field) -> Field:
    """A new column in the driftline type that holds the given one."""
    return replace(column, type=storable(column.type))


def _of_field(path: Path, old: Field, new: Field) -> Iterator[ColumnChange]:
    yield from reshaped(path, old.type, new.type)
    if new.required and not old.required:
        yield RequireColumn(path)
    if new.doc is not None and new.doc != unmarked(old.doc):
        yield SetDoc(path, new.doc)
