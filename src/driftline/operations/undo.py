"""`undo`: restores a table's previous definition in metadata; for a table with a key, its rows too."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise
from typing import NotRequired, TypedDict

from driftline.core.changes import ColumnChange, TableChangeJson, details, diff, in_words, reportable
from driftline.core.history.batch_properties import without_batch
from driftline.core.history.entries import (
    Entry,
    Version,
    Versions,
    key_text,
    of_undo,
    partition_text,
    sort_text,
    standing,
)
from driftline.core.history.restoring import Restoration, restoration
from driftline.core.planning.own_columns import own_column
from driftline.core.schema.definition import KEY_PROPERTY, Definition, forgets_deletes
from driftline.core.schema.text import counted
from driftline.core.schema.types import Path, Schema, dotted
from driftline.core.settings.row_key import DELETED_KIND, ORDER_KIND
from driftline.core.support import as_json
from driftline.errors import DataError
from driftline.formats.base import Alteration, CatalogTable, Draft, LastBatch
from driftline.formats.commit import Retry, check_branches
from driftline.operations import history
from driftline.operations.keyed import check_definition, check_remembered
from driftline.operations.rekeying import check_restored
from driftline.operations.replay import Replayed
from driftline.operations.value_counts import ColumnCounter, ValueCount, count_values
from driftline.runtime.shown import Shown


class UndoneBatchJson(TypedDict):
    """The batch whose rows were taken back."""

    id: str
    snapshot: int
    added: int
    removed: int


class UndoneJson(TypedDict):
    """The outcome of an undo. ``hidden``, ``back``, ``lost``: numbers of values, by path."""

    table: str
    undone: str
    changes: list[TableChangeJson]
    hidden: dict[str, int]
    back: dict[str, int]
    lost: dict[str, int]
    stays: list[str]
    layout: list[str]
    schema: int
    rows: NotRequired[UndoneBatchJson]


@dataclass(frozen=True, slots=True, repr=False)
class Undone(Shown):
    """The outcome of an undo. ``changes``: to the columns; ``stays``: what could not be taken back.
    ``batch``: with its rows, of a table with a key.
    """

    table: str
    undone: str
    changes: tuple[ColumnChange, ...]
    hidden: tuple[ValueCount, ...]
    back: tuple[ValueCount, ...]
    stays: tuple[str, ...]
    layout: tuple[str, ...]
    schema: int
    batch: LastBatch | None = None

    def to_dict(self) -> UndoneJson:
        """The form that `--json` prints."""
        return as_json(
            UndoneJson,
            self,
            changes=[details(change) for change in self.changes],
            hidden={v.path: v.count for v in self.hidden},
            back={v.path: v.count for v in self.back},
            lost={v.path: v.before - v.count for v in self.back if v.before and v.before > v.count},
            rows=None if self.batch is None else as_json(UndoneBatchJson, self.batch),
        )


def undo(table: CatalogTable, *, to: int | None = None, yes: bool = False) -> Undone:
    """Take back the last change of the table's definition, or all since schema version ``to``.

    Of a table with a key the last batch is such a change: its rows go, and those that it removed come back.
    The next call takes back what was before that batch, not the undo of it.
    ``yes``: also if that hides values, or rows. Raises UsageError, DataError with the reason; nothing is
    changed then.
    """
    counter = ColumnCounter(table)
    return Retry(table.name).run(lambda: _undo(table, to, counter, yes=yes))


def _undo(table: CatalogTable, to: int | None, counter: ColumnCounter, *, yes: bool) -> Undone:
    alteration = table.alteration()
    counter.refresh()
    versions = table.versions()
    now = alteration.before
    if to is None and now.properties.get(KEY_PROPERTY):
        last = _last_change(table.name, versions)
        if (batch := _last_batch(table, last)) is not None:
            return _without(table, alteration, versions, batch, last, yes=yes)
    change, then = _target(table.name, versions, now, to)
    plan = restoration(now, then, versions.schemas.values())
    if plan.changes_nothing:
        raise DataError(f"{table.name}: cannot undo {change}", "; ".join(plan.stays) or None)
    _possible(table, plan)
    just_rewritten = to is None and _just_rewritten(table, versions)
    if just_rewritten:  # then rows have their keys in the columns of before too
        check_remembered(table, now, plan.after)
    else:
        check_definition(table.name, now, plan.after)
    draft = alteration.restore(plan.after, of_undo(change))
    check_restored(table.name, now, plan.after, counter.rows, draft)
    if forgets_deletes(plan.after.properties, now.properties):
        plan = replace(plan, stays=(*plan.stays, "deletes that were remembered before stay forgotten"))
    # What a resolve folded, or a promote took, is in the columns that
    # come back, unless rows were written since.
    since = () if just_rewritten else _of_data(now, plan.hidden)
    hidden = _hidden(table, now, since, change, counter, yes=yes)
    back = _back(table, versions, draft, plan, counter)
    draft.commit()
    after = draft.definition
    changes = diff(now.schema, after.schema)
    layout = tuple(_layout(now, after))
    return Undone(table.name, change, changes, hidden, back, plan.stays, layout, after.schema.id)


def _of_data(definition: Definition, columns: Sequence[Path]) -> list[Path]:
    """The columns without those of the table's own for orders and deletes."""
    struct = definition.schema.struct
    kinds = {column.id for kind in (ORDER_KIND, DELETED_KIND) if (column := own_column(struct, kind))}
    return [path for path in columns if (f := definition.schema.find(path)) and f.id not in kinds]


def _last_batch(table: CatalogTable, last: Entry) -> LastBatch | None:
    """The batch whose rows are the last change of a table with a key; None if it was altered since.

    ``last``: the last change of the definition. Raises DataError if a batch made that, and rows have changed
    since otherwise than by a batch.
    """
    batch = table.last_batch()
    if batch is not None and (last.by == "batch" or not batch.made(last.after.snapshot)):
        return None if last.makes_table and batch.made(last.after.snapshot) else batch
    # Only the newest batch can go: others may have read its rows, or overtaken them.
    if batch is None and last.by == "batch" and not last.makes_table:
        raise DataError(
            f"{table.name}: batch {last.record.batch} cannot be undone: rows have changed since",
            "ingest corrected records instead",
        )
    return None


def _without(
    table: CatalogTable,
    alteration: Alteration,
    versions: Versions,
    batch: LastBatch,
    last: Entry,
    *,
    yes: bool,
) -> Undone:
    """Take back a batch of changes by key: its rows, and its changes of the definition.

    ``last``: the last change of that, which another batch may have made.
    """
    now = alteration.before
    # The rows go with the columns: to hide the columns alone would leave rows that no source has.
    made_by_batch = last.by == "batch" and last.record.batch == batch.id and last.before is not None
    then = last.before.definition if made_by_batch and last.before is not None else now
    plan = restoration(now, then, versions.schemas.values())
    _possible(table, plan)
    change = _what(last) if made_by_batch else f"batch {batch.id}"
    if not yes:
        raise DataError(
            f"{table.name}: undoing {change} would remove {counted(batch.added, 'row')} and restore "
            f"{counted(batch.removed, 'row')}",
            "pass --yes to do it; ingest its source again to reverse that",
        )
    replayed = Replayed.of(table, batch.id)
    properties = without_batch(plan.after.properties, batch.id)
    properties |= {} if replayed is None else replayed.before
    draft = alteration.revert(batch, replace(plan.after, properties=properties), of_undo(change, batch.id))
    draft.commit()
    if replayed is not None:
        replayed.wait_once()
    after = draft.definition
    changes, layout = diff(now.schema, after.schema), tuple(_layout(now, after))
    return Undone(table.name, change, changes, (), (), plan.stays, layout, after.schema.id, batch)


def _hidden(
    table: CatalogTable,
    now: Definition,
    columns: Sequence[Path],
    change: str,
    counter: ColumnCounter,
    *,
    yes: bool,
) -> tuple[ValueCount, ...]:
    """Count the values of the columns that would be hidden.

    Raises DataError if there are any, unless ``yes``.
    """
    ids = {f.id for _, f in table.readable(now.schema).walk()}
    counted = [path for path in columns if (f := now.schema.find(path)) and f.id in ids]
    uncounted = [path for path in columns if path not in counted]
    hidden = counter.hidden(now.schema, counted)
    if uncounted and not yes:
        raise DataError(
            f"{table.name}: undoing {change} would hide {dotted(uncounted[0])}, whose values Spark cannot count",
            "pass --yes to do it; undo the undo to bring them back",
        )
    if any(v.count for v in hidden) and not yes:
        values = ", ".join(f"{v.count} of {v.path}" for v in hidden if v.count)
        raise DataError(
            f"{table.name}: undoing {change} would hide values: {values}",
            "pass --yes to do it; undo the undo to bring them back",
        )
    return hidden


def _last_change(table: str, versions: Versions) -> Entry:
    """The last change of the definition that was not taken back with a batch."""
    return standing(history.of(table, versions).entries)


def _just_rewritten(table: CatalogTable, versions: Versions) -> bool:
    """True if the last change is a resolve, a promote or a replan, and no row was written since."""
    last = _last_change(table.name, versions)
    if last.by not in ("resolve", "promote", "replan"):
        return False
    now = table.load()
    if now.snapshot == last.after.snapshot:
        return True
    try:  # others are of rows that were only moved; a DuckLake's are of its other tables, too
        appended = table.appended(replace(now, snapshot=last.after.snapshot), now)
    except DataError:  # the snapshot has expired
        return False
    return appended is not None and appended.isEmpty()


def _target(table: str, versions: Versions, now: Definition, to: int | None) -> tuple[str, Definition]:
    """The change to take back, and the table's definition before it."""
    events = history.of(table, versions)
    if to is not None:
        return f"all since schema {to}", replace(now, schema=events.schema(to))
    last = standing(events.entries)
    if last.makes_table:
        raise DataError(f"{table} has not changed since it was created: nothing to undo")
    if last.before is None or last.by == "unknown":
        raise DataError(
            f"the last change of {table} cannot be undone: the earlier metadata was cleaned up",
            "pass --to VERSION for a schema that is still there; see driftline history",
        )
    return _what(last), last.before.definition


def last_change(changes: history.History) -> str | None:
    """The change that `undo` takes back next, in words; None if there is none, as of a new table.

    Of a table with a key, a batch that left the definition as it was comes before it.
    """
    last = standing(changes.entries) if changes.entries else None
    is_first = last is None or last.makes_table or last.before is None or last.by == "unknown"
    return None if last is None or is_first else _what(last)


def _what(entry: Entry) -> str:
    assert entry.before is not None
    words = [in_words(change) for change in reportable(entry.changes)]
    words += _layout(entry.before.definition, entry.after.definition)
    shown = "; ".join(words[:3]) + (f"; and {len(words) - 3} more" if len(words) > 3 else "")
    who = f"batch {entry.record.batch}" if entry.by == "batch" else entry.by
    return f'"{shown}" ({who})'


def _possible(table: CatalogTable, plan: Restoration) -> None:
    """Raise DataError where something else needs a column that would be hidden."""
    ids = {f.id for _, f in plan.after.schema.walk()}
    for column, use in plan.after.column_uses().items():
        if column not in ids:
            path = dotted(plan.before.path_of(column) or ())
            raise DataError(f"{table.name}: {path} cannot be hidden: {use.why}", f"{use.way_out} first")
    check_branches(table, plan.before.schema, plan.after.schema)


def _layout(before: Definition, after: Definition) -> Sequence[str]:
    one, two = Version(0, before), Version(0, after)
    out = []
    if partition_text(one) != partition_text(two):
        out.append(f"partitioned by {', '.join(partition_text(two)) or 'nothing'}")
    if sort_text(one) != sort_text(two):
        out.append(f"sorted by {', '.join(sort_text(two)) or 'nothing'}")
    if key_text(one) != key_text(two):
        out.append(f"rows known by {', '.join(key_text(two)) or 'nothing'}")
    return out


def _back(
    table: CatalogTable, versions: Versions, draft: Draft, plan: Restoration, counter: ColumnCounter
) -> tuple[ValueCount, ...]:
    """The values that come back, and how many there were."""
    ids = {f.id for _, f in table.readable(plan.after.schema).walk()}
    restored = [path for path in plan.back if (f := plan.after.schema.find(path)) and f.id in ids]
    counts = counter.back(draft, plan.after.schema, restored)
    return tuple(
        replace(values, before=_had(table, versions, plan.after.schema, path))
        for values, path in zip(counts, restored, strict=True)
    )


def _had(table: CatalogTable, versions: Versions, schema: Schema, path: Path) -> int | None:
    """The number of values in a column when it was dropped; None if that snapshot is gone."""
    column = schema.find(path)
    assert column is not None
    for before, after in reversed(list(pairwise(versions.versions))):
        if after.definition.path_of(column.id) is None and before.definition.path_of(column.id) is not None:
            for snapshot in table.snapshots(after.snapshot):
                then = versions.schemas.get(snapshot.schema)
                path_then = next((p for p, f in then.walk() if f.id == column.id), None) if then else None
                if then and path_then:
                    return count_values(partial(table.read, snapshot.id), then, [path_then])[0].count
            return None
    return None
