"""Drops columns that came with drift and in which no row has a value; `undo` takes it back."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, TypedDict

from driftline.core.changes import DropColumn, apply
from driftline.core.columns.unused import DriftColumn, drift_columns, droppable
from driftline.core.history.entries import of_compact
from driftline.core.schema.schema_json import type_name
from driftline.core.schema.types import Field, Path, Primitive, Schema, Type, dotted
from driftline.core.settings.properties import from_properties
from driftline.core.support import as_json
from driftline.formats.commit import Retry
from driftline.operations import history
from driftline.operations.alter import notes, of_any_record
from driftline.operations.value_counts import ColumnCounter

if TYPE_CHECKING:
    from driftline.core.schema.definition import Definition
    from driftline.formats.base import CatalogTable

# Those who change columns because a person asked for it; a batch does by its rules.
_PEOPLE = frozenset({"alter", "resolve", "promote", "undo", "outside"})
_OF_COLUMN = ".column."  # in the names of properties, before a column's path


class UnusedColumnJson(TypedDict):
    """A column that was dropped, or would be. ``then``: what the next value of its type does."""

    path: str
    type: str
    why: str
    then: str


@dataclass(frozen=True, slots=True)
class UnusedColumn:
    """A column that was dropped, or would be.

    Attributes:
        why: what it was.
        then: what becomes of the next value that it would have taken.
    """

    path: Path
    type: Type
    why: str
    then: str

    def to_dict(self) -> UnusedColumnJson:
        """The form that JSON output has."""
        return as_json(UnusedColumnJson, self, path=dotted(self.path), type=type_name(self.type))


@dataclass(frozen=True, slots=True)
class Unused:
    """The columns of a table that came with drift, and in which no row has a value.

    Attributes:
        dropped: those that were dropped, or would be.
        kept: the reasons for others to stay, by path; those alone are looked at whose metadata say enough.
        in_use: those that came with drift and have values.
        forgotten: the number of remembered deletes that were past their time.
        asked: True if these columns were to go.
    """

    dropped: tuple[UnusedColumn, ...] = ()
    kept: Mapping[Path, str] = field(default_factory=dict)
    in_use: tuple[Path, ...] = ()
    forgotten: int = 0
    asked: bool = False


def drop_unused(table: CatalogTable, *, dry_run: bool, progress: Callable[[str], None]) -> Unused:
    """Drop the columns in one commit; if another writer changes the table meanwhile, look again.

    Raises DataError; the table is then as it was.
    """
    counter = ColumnCounter(table)
    return Retry(table.name, progress).run(lambda: _drop_unused(table, counter, dry_run=dry_run))


def _drop_unused(table: CatalogTable, counter: ColumnCounter, *, dry_run: bool) -> Unused:
    # All that is looked at from here on is of this version or later, and the commit holds for this one alone.
    alteration = table.alteration()
    counter.refresh()
    before = alteration.before
    settings = from_properties(before.properties)
    columns = drift_columns(before, settings, _needed(table, before))
    key = settings.row_key
    span = key.delete_memory if key is not None and key.remembers else None
    forgotten = 0 if span is None else alteration.outdated_deletes(span)
    stated = _Stated(table, before.schema, columns)
    free = [column for column in columns if not column.needed]
    counts = counter.hidden(before.schema, [column.path for column in free], stated.counts)
    empty = [column for column, values in zip(free, counts, strict=True) if not values.count]
    unused = droppable(before.schema, empty)
    kept = {c.path: c.needed for c in columns if c.needed and stated.counts().get(c.path) == 0}
    kept |= {c.path: "a struct needs a field" for c in empty if _is_spared(c, unused)}
    drops = [DropColumn(column.path) for column in unused]
    after = replace(before, schema=apply(before.schema, drops))
    described = tuple(_described(before, after, column) for column in unused)
    in_use = tuple(column.path for column, values in zip(free, counts, strict=True) if values.count)
    outcome = Unused(described, kept, in_use, forgotten, asked=True)
    if (unused or forgotten) and not dry_run:
        record = of_compact("--drop-unused") if unused else {}  # which tells of a change of the definition
        alteration.change(after, record, pinned=True, span=span).commit()
    return outcome


def _is_spared(column: DriftColumn, unused: Sequence[DriftColumn]) -> bool:
    """True if an empty column stays by itself, and does not go with one around it."""
    return all(column.path[: len(gone.path)] != gone.path for gone in unused)


def _described(before: Definition, after: Definition, column: DriftColumn) -> UnusedColumn:
    change = [DropColumn(column.path)]
    then = "; ".join(notes(before.schema, after.schema, change, of_any_record(after)))
    return UnusedColumn(column.path, column.column.type, column.why, then)


@dataclass(slots=True)
class _Stated:
    """The numbers of values of columns, as far as metadata state those of live rows."""

    table: CatalogTable
    schema: Schema
    columns: Sequence[DriftColumn]
    _counts: dict[Path, int] | None = None

    def counts(self) -> dict[Path, int]:
        """The numbers by path, read once."""
        if self._counts is None:
            self._counts = self._read()
        return self._counts

    def _read(self) -> dict[Path, int]:
        statistics = self.table.statistics(self.schema)
        out: dict[Path, int] = {}
        for column in self.columns:
            # Lists, maps and structs have no counts of their own, and an empty one is in a row nevertheless.
            if not isinstance(column.column.type, Primitive):
                continue
            values = statistics.counts.numbers(column.column.id).values
            # Of deleted rows metadata do not say which values they had.
            if values is not None and (values == 0 or not statistics.deleted):
                out[column.path] = values
        return out


def _needed(table: CatalogTable, definition: Definition) -> dict[int, str]:
    """The reasons for columns to stay that lie in what others have done, by column id."""
    readable = {f.id for _, f in table.readable(definition.schema).walk()}
    columns = {f.id: path for path, f in definition.schema.walk()}
    needed = {id_: "Spark cannot read its values" for id_ in columns if id_ not in readable}
    ends = {_OF_COLUMN + dotted(path): id_ for id_, path in columns.items()}
    for key in definition.properties:
        for place in (key.find(_OF_COLUMN), key.rfind(_OF_COLUMN)):
            if place > 0 and (id_ := ends.get(key[place:])) is not None:
                needed[id_] = f"the property {key} names it"
    for branch, ids in table.branches().items():
        needed |= dict.fromkeys(ids & columns.keys(), f"branch {branch} was written with it")
    return needed | dict.fromkeys(_changed_by_people(table), "a person made or changed it")


def _changed_by_people(table: CatalogTable) -> set[int]:
    """The columns that a person has declared or changed, as far as the table's history reaches."""
    ids: set[int] = set()
    for entry in history.history(table).entries:
        if entry.by not in _PEOPLE:
            continue
        before = entry.before.definition.schema if entry.before else Schema()
        was = {f.id: _plain(path, f) for path, f in before.walk()}
        now = {f.id: _plain(path, f) for path, f in entry.after.definition.schema.walk()}
        ids |= {id_ for id_, column in now.items() if was.get(id_) != column}
    return ids


def _plain(path: Path, column: Field) -> tuple[object, ...]:
    """The properties of a column that a person may change, without those of the columns inside it."""
    type_ = column.type if isinstance(column.type, Primitive) else type(column.type)
    return path[-1], type_, column.doc, column.required, column.initial_default, column.write_default
