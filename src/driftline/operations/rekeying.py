"""Adds a key or an order to an existing table, or removes it.

Tasks read its rows, and rewrite them in one commit if they get columns of the table's own.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain
from shlex import quote
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.sql import functions as F

from driftline.convert.spark import from_spark
from driftline.core.changes import AddColumn, ColumnChange, DropColumn, Reason
from driftline.core.planning.conversions import NUMBERS
from driftline.core.planning.own_columns import own_column
from driftline.core.planning.policies.by_kind import MOMENTS, order_kind
from driftline.core.schema.definition import DELETES_PROPERTY, KEY_PROPERTY, SOFT, Definition
from driftline.core.schema.naming import Names
from driftline.core.schema.text import counted
from driftline.core.schema.types import Path, Primitive, Schema, Struct
from driftline.core.settings.fields import spelled_path
from driftline.core.settings.properties import from_properties
from driftline.core.settings.row_key import DELETED_KIND, ORDER_KIND, RowKey, table_property
from driftline.errors import DataError
from driftline.formats.base import CatalogTable, CommitConflict, Draft
from driftline.formats.commit import Rewrite
from driftline.ingest.rewrite import check_readable
from driftline.keys.identity import FieldColumns, orders
from driftline.keys.remembered import key_texts
from driftline.keys.stored import PlacedColumn, by_id, columns_of, values_of
from driftline.operations.key_change import KeyChange, key_of
from driftline.operations.replay import explaining
from driftline.runtime.spark_conf import PLAIN, configured
from driftline.sql.quoting import any_value, name
from driftline.tasks.run import converted, numbered

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_EXAMPLES = 3
_REMOVES_ROWS = 2  # the version of Iceberg's format since which that is possible


def rekey(
    table: CatalogTable, change: KeyChange, before: Definition, after: Definition, recorded: Mapping[str, str]
) -> None:
    """Give a table its new key or order, with the properties of ``after`` and those ``recorded``.

    Raises DataError if its rows cannot be known by the key, CommitConflict if others have changed the table.
    """
    state = table.load()
    if (state.schema, state.properties.get(KEY_PROPERTY)) != (
        before.schema,
        before.properties.get(KEY_PROPERTY),
    ):
        raise CommitConflict(f"{table.name} was changed by another writer")
    if after.format_version < _REMOVES_ROWS:
        raise DataError(
            f"{table.name} has format version 1, in which no rows can be removed",
            f"upgrade it first: driftline alter {table_property(table.name, 'format-version', '3')}",
        )
    check_readable(table, state.schema)
    with configured(table.spark, PLAIN), explaining(table.name):
        transaction = table.transaction(state)
        try:
            rekeying = _Rekeying(table.name, change, state.schema, from_properties(after.properties).mark)
            rows = transaction.read()
            rekeying.check(rows)
            transaction.evolve(rekeying.changes())  # type: ignore[arg-type]
            # A row without an order would lose to any change, however old. The table is written once instead
            # of reading the order fields of such rows for ever.
            if not rows.isEmpty() and (values := rekeying.own_values(transaction.schema.struct)).writes:
                with_ids = rows.selectExpr("*", *table.row_ids(any_value(())))
                rewrite = Rewrite(table, transaction, state.schema, with_ids)
                convert = partial(
                    converted, before=state.schema.struct, convert=values.rows, after=values.struct
                )
                rewrite.replace(convert, {"driftline.alter": "true"})
            taken = dict.fromkeys(before.properties.keys() - after.properties.keys(), "")
            transaction.set({**taken, **_changed(before, after), **recorded})
            transaction.commit()
        except BaseException:
            transaction.abandon()
            raise
    transaction.upkeep()


def _changed(before: Definition, after: Definition) -> dict[str, str]:
    return {key: value for key, value in after.properties.items() if before.properties.get(key) != value}


@dataclass(frozen=True, slots=True)
class _Rekeying:
    """A change of a table's key, against the columns that it has. ``mark``: the prefix of docs."""

    table: str
    change: KeyChange
    schema: Schema
    mark: str

    @property
    def _now(self) -> RowKey:
        assert self.change.after is not None
        return self.change.after

    def check(self, rows: DataFrame) -> None:
        """Raise DataError if the table's rows cannot be known or ordered so."""
        if self.change.before is None:
            check_keys(self.table, rows, self.schema.struct, self._now, self.mark)
        for path in self._now.order_by:
            self._check_order(path)
        check_unmarked(self.table, rows, self.schema.struct, self._now)

    def _check_order(self, path: Path) -> None:
        columns = list(columns_of(self.schema.struct, path, self.mark))
        kinds = {order_kind(c.field.type) if isinstance(c.field.type, Primitive) else None for c in columns}
        if len(kinds) > 1 or None in kinds:
            names = ", ".join(f"{spelled_path(c.path)} {c.field.type}" for c in columns)
            raise DataError(
                f"{self.table} cannot be ordered by {spelled_path(path)}: its values are of several kinds, or of none "
                f"that has an order: {names}",
                f"fold them first: driftline resolve {quote(self.table)} {quote(spelled_path(path))} --as TYPE",
            )

    def changes(self) -> list[ColumnChange]:
        """The columns of the table's own that come or go."""
        names, out = Names.of(self.schema.struct), list[ColumnChange]()
        for kind, column in self._now.columns.items():
            if own_column(self.schema.struct, kind) is None:
                named = replace(column, name=names.take(column.name))
                why = (column.doc or "").partition("\n")[2]
                out.append(AddColumn((), named, Reason("metadata", why, (named.name,))))
        marks = own_column(self.schema.struct, DELETED_KIND)
        if marks is not None and not self._now.soft:
            out.append(DropColumn((marks.name,)))
        return out

    def own_values(self, after: Struct) -> OwnValues:
        """The values of the columns of the table's own, in rows of the struct ``after``."""
        was = self.change.before
        order = [list(columns_of(after, path, self.mark)) for path in self._now.order_by]
        new_order = bool(order) and (was is None or not was.order_by)
        marks = self._now.soft and (was is None or not was.soft)
        return OwnValues(
            self.schema.struct,
            after,
            own_place(after, ORDER_KIND) if new_order else None,
            own_place(after, DELETED_KIND) if marks else None,
            tuple(chain.from_iterable(order)),
            tuple(values_of(columns) for columns in order),
        )


def own_place(struct: Struct, kind: str) -> int:
    """The place of the table's own column of this kind."""
    column = own_column(struct, kind)
    assert column is not None
    return struct.fields.index(column)


@dataclass(frozen=True, slots=True)
class OwnValues:
    """Makes rows of ``struct``, with values of the table's own, from those of ``before``; sent to tasks.

    ``order``, ``deleted``: the places of these columns, None if they stay as they are; ``fields``: those of
    the order, of these ``columns``.
    """

    before: Struct
    struct: Struct
    order: int | None
    deleted: int | None
    columns: Sequence[PlacedColumn]
    fields: Sequence[FieldColumns]

    @property
    def writes(self) -> bool:
        """True if rows get values."""
        return self.order is not None or self.deleted is not None

    def rows(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """The rows with their order, and with a mark of a delete where they have had none."""
        rows = _named(rows, self.before)
        by_name = dict(zip(rows.schema.names, rows.columns, strict=True))
        arrays = [by_name.get(f.name) for f in self.struct.fields]
        if self.order is not None:
            texts = orders(by_id(rows, self.columns), self.fields) if self.fields else None
            arrays[self.order] = texts.combine_chunks() if isinstance(texts, pa.ChunkedArray) else texts
        if self.deleted is not None:
            # False, not null, so that `not _is_deleted` finds the other rows.
            marks = arrays[self.deleted]
            arrays[self.deleted] = pa.repeat(False, len(rows)) if marks is None else marks.fill_null(False)
        return pa.RecordBatch.from_arrays(arrays, [f.name for f in self.struct.fields])


def check_keys(table: str, rows: DataFrame, struct: Struct, row_key: RowKey, mark: str) -> None:
    """Raise DataError unless each row has a key of its own; with examples of those that have not.

    The keys are compared in tasks, and counted by Spark.
    """
    key = [list(columns_of(struct, path, mark)) for path in row_key.key]
    spelled = ", ".join(map(spelled_path, row_key.key))
    for path, columns in zip(row_key.key, key, strict=True):
        _check_told_apart(table, path, columns)
    tops = {column.path[0] for column in chain.from_iterable(key)}
    part = Struct(tuple(f for f in struct.fields if f.name in tops)) if tops else Struct(struct.fields[:1])
    looked = numbered(rows.select(*(name(f.name) for f in part.fields))).mapInArrow(
        partial(_keys, part, tuple(map(tuple, key))), "key string, complete boolean"
    )
    # Spark counts the keys, so no table is too large for the driver.
    counts = looked.groupBy("complete", "key").count().where("not complete or count > 1")
    wrong_rows = counts.orderBy("complete", F.desc("count"), "key").limit(_EXAMPLES).collect()  # so many
    if not wrong_rows:
        return
    shown = [f"{_shown(row['key'])} ({counted(row['count'], 'row')})" for row in wrong_rows]
    if not wrong_rows[0].complete:
        wrong = [text for text, row in zip(shown, wrong_rows, strict=True) if not row.complete]
        raise DataError(
            f"{table} cannot have the key {spelled}: rows have none: {', '.join(wrong)}",
            "give these rows a value, or name fields that all rows have",
        )
    raise DataError(
        f"{table} cannot have the key {spelled}: several rows have the same: {', '.join(shown)}",
        "keep one row of each, or name more fields",
    )


def _check_told_apart(table: str, path: Path, columns: Sequence[PlacedColumn]) -> None:
    """Raise DataError for a field whose numbers may be moments: such a column has the values of both."""
    types = {c.field.type.name: c for c in columns if isinstance(c.field.type, Primitive)}
    numbers, moments = ([types[n] for n in types if n in names] for names in (NUMBERS, MOMENTS))
    if numbers and moments:
        raise DataError(
            f"{table} cannot have the key {spelled_path(path)}: {spelled_path(numbers[0].path)} has numbers that are "
            f"values of {spelled_path(moments[0].path)} too",
            f"fold them first: driftline resolve {quote(table)} {quote(spelled_path(path))} --as TYPE",
        )


def _keys(
    struct: Struct, key: Sequence[Sequence[PlacedColumn]], batches: Iterable[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """The key of each row as JSON, and if all of its fields have a value."""
    fields = [values_of(columns) for columns in key]
    for batch in batches:
        rows = by_id(_named(from_spark(batch, struct), struct), list(chain.from_iterable(key)))
        if not rows.num_columns:  # no field has a column
            rows = pa.table({"none": pa.nulls(len(batch))})
        texts = key_texts(fields, rows)
        complete = [None not in json.loads(text) for text in texts.to_pylist()]
        yield pa.RecordBatch.from_arrays([texts, pa.array(complete, pa.bool_())], ["key", "complete"])


def _named(rows: pa.RecordBatch, struct: Struct) -> pa.RecordBatch:
    """The rows with the names of their columns."""
    return pa.RecordBatch.from_arrays(rows.columns, [f.name for f in struct.fields])


def _shown(key: str) -> str:
    """A key for people: numbers as they are, texts in quotes."""
    parts = []
    for part in json.loads(key):
        kind, text = part or (None, "null")
        parts.append(json.dumps(text, ensure_ascii=False) if kind == "text" else text)
    return parts[0] if len(parts) == 1 else f"({', '.join(parts)})"


def check_unmarked(table: str, rows: DataFrame, struct: Struct, now: RowKey | None) -> None:
    """Raise DataError if rows are marked as deleted and would count as others again."""
    marks = own_column(struct, DELETED_KIND)
    if marks is None or (now is not None and now.soft):
        return
    if count := rows.where(name(marks.name)).count():
        raise DataError(
            f"{table}: {counted(count, 'row')} with {marks.name} = true would be rows like all others",
            f"delete them first: DELETE FROM {table} WHERE {marks.name}; or keep {DELETES_PROPERTY} = '{SOFT}'",
        )


def check_restored(
    table: str, before: Definition, after: Definition, rows: Callable[[], DataFrame], draft: Draft
) -> None:
    """Raise DataError if the rows that a table has now cannot be known as they were once, by ``after``.

    ``rows``: reads them as they are, ``draft`` as they would read.
    """
    was, now = key_of(before), key_of(after)
    struct = before.schema.struct
    if own_column(after.schema.struct, DELETED_KIND) is None and own_column(struct, DELETED_KIND) is not None:
        check_unmarked(table, rows(), struct, None)
    if now is None or was == now:
        return
    if was is None:
        check_keys(table, rows(), struct, now, from_properties(after.properties).mark)
    marks = own_column(after.schema.struct, DELETED_KIND)
    if (
        now.soft
        and marks is not None
        and (count := draft.read().where(f"{name(marks.name)} is null").count())
    ):
        raise DataError(
            f"{table}: {counted(count, 'row')} came since, and would have no {marks.name}",
            f"set the key anew: driftline alter {table_property(table, KEY_PROPERTY, after.known_by.key)}",
        )
