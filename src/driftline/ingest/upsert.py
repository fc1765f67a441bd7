"""Applies keyed changes: rows are spilled to disk until each key's winning change is known."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from driftline.convert.types import arrow_schema
from driftline.core.history.batch_properties import by_batch, place_of
from driftline.core.history.entries import BATCH, MOVED
from driftline.core.planning.own_columns import own_column
from driftline.core.planning.patchable import variant_in
from driftline.core.schema.definition import ORDER_PROPERTY
from driftline.core.schema.text import counted
from driftline.core.schema.types import Path, Struct, dotted
from driftline.core.settings.condition import MESSAGE_KEY
from driftline.core.settings.fields import excluded_paths, spelled_path
from driftline.core.settings.row_key import (
    DELETED_KIND,
    ORDER_KIND,
    ORDERS_KIND,
    RowKey,
    table_property,
)
from driftline.core.settings.table import TableSettings
from driftline.errors import DataError
from driftline.formats.base import KeyedTransaction, State, Transaction
from driftline.ingest.batch import Planned
from driftline.ingest.pipeline import BatchRun, Written, summary
from driftline.keys.filling import RowFiller
from driftline.keys.identity import BatchKeys, orders
from driftline.keys.patch_rows import PatchedRowsOf, RowMerger
from driftline.keys.remembered import DeletedKeys, KeysAndOlder, LastTruncate, Positions, as_deletes, together
from driftline.keys.settle import Found, KeyCounts, Latest, Settled, settle, settle_first, settle_patches
from driftline.keys.slices import DELETE_FLAG, LiveRowMaker, RowsOf, Slices
from driftline.keys.stored import KeyCache, PlacedColumn, StoredRows, by_id, columns_of, values_of
from driftline.readers.envelopes.messages import SNAPSHOT_TAKEN
from driftline.write import BatchFolder
from driftline.write.positions import ROW_ID

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from pyspark.sql import SparkSession

_FAULT = "nothing was committed; this is a bug in driftline, please report it"


@dataclass(slots=True)
class KeyedBatchRun(BatchRun):
    """One attempt to ingest a batch into a table with a key: its rows are spilled to disk until it is known
    which change of each key counts.

    Attributes:
        changes: of the batch, once they are written.
    """

    changes: Changes | None = None

    def check(self, planned: Planned) -> None:
        """Raise DataError for changes by key that cannot be settled."""
        _check_possible(planned)

    def write_rows(self, transaction: Transaction, planned: Planned, folder: BatchFolder | None) -> Written:
        """Spill the changes into the ``folder``."""
        # The second write, after a speculation that failed, must not settle the changes of the first.
        self.changes, row_key = None, planned.settings.row_key
        if planned.brings_nothing or row_key is None:
            return Written(0)
        transaction.by_key()  # refused before anything is read
        tasks, table = planned.tasks(transaction.row_type), self.batch.table.name
        slices = Slices.of(tasks, folder, table)
        excluded = list(excluded_paths(planned.settings.fields))
        self.changes = Changes(
            table,
            slices,
            transaction.row_type,
            row_key,
            planned.settings.mark,
            excluded,
            self.batch.recent.keys,
        )
        return Written(slices.rows, tasks.results)

    def settle(self, transaction: Transaction, planned: Planned) -> Planned:
        """Write the rows that count, and remove those that they replace or delete."""
        if self.changes is None:
            return replace(planned, counts=KeyCounts())
        # A speculated plan knows of no truncate.
        changes = replace(self.changes, truncate=_truncate(planned))
        return replace(
            planned, counts=changes.settle(self.batch.table.spark, transaction.by_key(), summary(planned))
        )

    def properties(self, planned: Planned) -> dict[str, str]:
        """The properties of any batch, and a new truncate of the source."""
        # Not super(): a dataclass with slots is made twice, and the first class is not the method's.
        return {**BatchRun.properties(self, planned), **_truncated(planned)}

    def feed(self, planned: Planned) -> dict[str, str]:
        """The properties that a table without a column yet will have, and the truncate that it will know."""
        return {**BatchRun.feed(self, planned), **_truncated(planned)}


def _truncate(planned: Planned) -> LastTruncate:
    """The last truncate of the table's source."""
    row_key, tally = planned.settings.row_key, planned.observation.tally
    sent = 0 if row_key is None else row_key.epoch, tally.truncated
    is_snapshot = SNAPSHOT_TAKEN in tally.control_messages and "truncate" not in tally.control_messages
    return LastTruncate.of(place_of(planned.state.properties), sent, updates=is_snapshot)


def _truncated(planned: Planned) -> dict[str, str]:
    """The property that records a new truncate."""
    truncate = _truncate(planned)
    place = truncate.epoch, truncate.position
    return by_batch(planned.state.properties, place, planned.batch.id) if truncate.new else {}


def _check_columns(state: State, settings: TableSettings, row_key: RowKey, table: str) -> None:
    """Raise DataError for a table with batches that has lost a column by which its rows are known."""
    # Rows would count as new, or as older, or as never deleted: keys that are there would come a second time.
    if BATCH not in state.properties or state.snapshot is None:  # no row has come
        return
    struct = state.schema.struct
    lost = [spelled_path(path) for path in row_key.key if not any(columns_of(struct, path, settings.mark))]
    own = ((kind, column) for kind, column in row_key.columns.items() if kind != ORDERS_KIND)
    lost += [column.name for kind, column in own if own_column(struct, kind) is None]
    if lost:
        raise DataError(
            f"{table}: it knows its rows by {lost[0]}, and another engine has renamed or dropped that column",
            f"give the column its name back; or driftline undo {table}, if that was its last change",
        )


def _check_possible(planned: Planned) -> None:
    row_key, table = planned.settings.row_key, planned.batch.table.name
    if row_key is None:
        return
    _check_columns(planned.state, planned.settings, row_key, table)
    if rewritten := planned.plan.rewrites:
        raise DataError(
            f"{table}: {dotted(rewritten[0].path)} would have to be rewritten, which is not possible in a table with a key",
            'set allow_rewrite = "false": the column then stays as it is',
        )
    if not (row_key.order_by or planned.batch.source.in_order):
        raise DataError(
            f"{table}: records of several types arrive in no order, and the table has no order_by",
            f"driftline alter {table_property(table, ORDER_PROPERTY, 'PATH')}; for a new table, --order-by PATH",
        )
    if row_key.patch:
        _check_patches(planned)
    # To leave a null value out would keep a row that its sender has deleted.
    if count := planned.observation.tally.tombstones:
        if row_key.keep:
            hint = "make the table with --merge replace and --delete-when 'value is null': no record deletes a row that keeps its first record"
        elif any(path[0] == MESSAGE_KEY for path in row_key.key):
            hint = "set it, beside what deletes now: --delete-when 'value is null'"
        else:
            hint = "make the table with the key of the message, as --key _key or _key.PATH, and --delete-when 'value is null'"
        raise DataError(
            f"{table}: the topic has {counted(count, 'null value')}, and the table does not say that they delete rows",
            hint,
        )


def _check_patches(planned: Planned) -> None:
    """Raise DataError for records that cannot be merged into rows."""
    table = planned.batch.table.name
    # Records of Python become columns before the table's settings are known, so an absent key is already a
    # null.
    if not planned.batch.source.tells_absent:
        raise DataError(
            f"{table}: merge = patch, and records of Python do not tell an absent key from None here",
            "write them to a file of JSON lines, or pass a table with columns",
        )
    if (path := variant_in(planned.plan.schema.struct, planned.settings.mark)) is not None:
        raise DataError(
            f"{table}: merge = patch, and {dotted(path)} is a variant",
            f"leave the field out: --exclude {dotted(path)}",
        )


@dataclass(frozen=True, slots=True)
class Changes:
    """The keyed changes of a batch, as rows of ``struct`` that its tasks made.

    Attributes:
        table: the table's name, for messages.
        cache: keys that previous batches have read.
        truncate: the last known truncate.
    """

    table: str
    slices: Slices
    struct: Struct
    row_key: RowKey
    mark: str
    excluded: Sequence[Path] = ()
    cache: KeyCache | None = None
    truncate: LastTruncate = field(default_factory=LastTruncate)

    def settle(
        self, spark: SparkSession, transaction: KeyedTransaction, summary: Mapping[str, str]
    ) -> KeyCounts:
        """Write the winning rows, and have the transaction remove the rows that they replace or delete."""
        key = [self._columns(path) for path in self.row_key.key]
        order = [self._columns(path) for path in self.row_key.order_by]
        if not self.slices.parts and not (self.truncate.new and all(key) and all(order)):
            return KeyCounts()
        rows = self._rows()
        keys = BatchKeys([values_of(columns) for columns in key], by_id(rows, list(chain(*key))))
        self._check_all(keys.own, "key", self.row_key.key)
        texts = self._orders(rows, order)
        deletes, merges = self._deletes(rows), self.row_key.patch or self._fills
        latest = Latest.of(keys.own, texts, deletes, soft=self.row_key.soft, first=self.row_key.keep)
        own = self._own()
        ids = {kind: self.struct.fields[place].id for kind, place in own.items()}
        order_id = ids.get(ORDER_KIND)
        remembered = () if order_id is None else transaction.find_deletes(keys, order_id)
        if self.cache is not None:
            self.cache.begin(self.row_key.cache)
        hits, older = self._find(transaction, keys, ids, latest)
        if self.truncate.floor:
            remembered = [*remembered, as_deletes(self.truncate.floor, len(keys))]
        if merges:
            settled, merged = settle_patches(latest, deletes, hits, remembered)
        else:
            settled = settle_first(latest, hits) if self.row_key.keep else settle(latest, hits, remembered)
        size = sum(part.size for part in self.slices.parts)
        rows_left = transaction.remove(together(settled.dead, older), size)
        if texts is not None and order_id is not None and self.row_key.remembers:
            gone = DeletedKeys.of(keys, settled.gone, texts, order_id, self.row_key.delete_memory)
            transaction.remember_deletes(gone)
        live, stored = _as_table(settled, latest), self._stored(settled, transaction)
        row_maker: LiveRowMaker = RowsOf(own, stored)
        if merges:
            for name, column in merged.columns(texts, deletes).items():
                live = live.append_column(name, column)
            row_maker = self._merged(own, stored)
        tasks = self.slices.tasks(spark, live, row_maker, rows_left)
        if rows_left is not None:
            summary = {**summary, MOVED: str(len(rows_left))}
        written = transaction.write(tasks, self.slices.folder, summary, with_ids=ROW_ID in live.column_names)
        expected = len(settled.live) + (0 if rows_left is None else len(rows_left))
        if written != expected or settled.counts.total != self.slices.rows:
            raise DataError(
                f"{self.table}: {settled.counts.total} of {self.slices.rows} changes were settled, {written} of "
                f"{expected} rows were written",
                _FAULT,
            )
        return replace(settled.counts, truncated=sum(map(len, older.values())))

    def _orders(self, rows: pa.Table, columns: Sequence[Sequence[PlacedColumn]]) -> pa.Array | None:
        """Return the order of each row from its columns; None if changes count as they arrive."""
        if not columns:
            return None
        texts = orders(
            by_id(rows, list(chain(*columns))), [values_of(parts) for parts in columns], self.row_key.epoch
        )
        texts = texts.combine_chunks() if isinstance(texts, pa.ChunkedArray) else texts
        self._check_all(texts, "order", self.row_key.order_by)
        return texts

    def _find(
        self, transaction: KeyedTransaction, keys: BatchKeys, ids: Mapping[str, int], latest: Latest
    ) -> tuple[Sequence[Found], Positions]:
        """Find the table's rows that have a key of the batch, and those that a truncate removes."""
        order, deleted = ids.get(ORDER_KIND), ids.get(DELETED_KIND)
        if not self.truncate.new or order is None or latest.orders is None:
            return transaction.find(keys, order, deleted, self.cache), {}
        older = KeysAndOlder(keys, order, self.truncate.floor, self.truncate.updated(latest.orders))
        return older.apart(transaction.find(older, order, deleted, self.cache))

    def _rows(self) -> pa.Table:
        """Read the columns that settling the batch needs."""
        if self.slices.parts:
            return self.slices.read(self._needed())
        flags = pa.nulls(0, pa.bool_())
        return arrow_schema(self.struct).empty_table().append_column(DELETE_FLAG, flags)

    @property
    def _fills(self) -> bool:
        """True if rows keep fields that their latest change lacks."""
        return self.row_key.keeps_fields and own_column(self.struct, ORDERS_KIND) is not None

    def _merged(self, own: Mapping[str, int], stored: StoredRows | None) -> PatchedRowsOf:
        if self._fills:
            filler = RowFiller(self.struct, own, self.mark)
            return PatchedRowsOf(filler, stored, filler)
        return PatchedRowsOf(RowMerger(self.struct, own, self.mark, self.excluded), stored)

    def _own(self) -> dict[str, int]:
        """Return the positions of driftline's own columns that each row gets here, by kind."""
        kinds = [*self.row_key.columns, *([ORDERS_KIND] if self._fills else [])]
        columns = {kind: own_column(self.struct, kind) for kind in kinds}
        return {
            kind: self.struct.fields.index(column) for kind, column in columns.items() if column is not None
        }

    def _stored(self, settled: Settled, transaction: KeyedTransaction) -> StoredRows | None:
        """Return a reader of the table's rows with values to keep; None if all values are replaced.

        Raises DataError if values that nothing replaces would be lost.
        """
        if (settled.live.kept < 0).all():
            return None
        if transaction.row_type != transaction.schema.struct:
            raise DataError(
                f"{self.table}: rows of it keep values, and Spark cannot write all of the table's columns",
                "make the table with deletes = hard and merge = replace",
            )
        return transaction.stored()

    def _columns(self, path: tuple[str, ...]) -> list[PlacedColumn]:
        return list(columns_of(self.struct, path, self.mark))

    def _needed(self) -> Sequence[str]:
        """Return the names of the key and order columns, and of the column that flags deletes."""
        fields = {path[0] for path in (*self.row_key.key, *self.row_key.order_by)}
        columns = chain.from_iterable(columns_of(self.struct, (field,), self.mark) for field in fields)
        flags = [] if self.row_key.delete_when is None else [DELETE_FLAG]
        return [*(column.path[0] for column in columns), *flags]

    def _deletes(self, rows: pa.Table) -> NDArray[np.bool_]:
        if self.row_key.delete_when is None:
            return np.zeros(len(rows), np.bool_)
        return np.asarray(rows[DELETE_FLAG], np.bool_)

    def _check_all(self, values: pa.Array, role: str, paths: Sequence[tuple[str, ...]]) -> None:
        """Raise DataError for an admitted record without a key or an order."""
        if values.null_count:
            row = values.is_null().to_numpy(zero_copy_only=False).argmax()
            raise DataError(
                f"{self.table}: {values.null_count} records have no {role} in {', '.join(map(spelled_path, paths))}, "
                f"the first of them is record {row + 1}",
                _FAULT,
            )


def _as_table(settled: Settled, latest: Latest) -> pa.Table:
    """Return the live rows in the form that the tasks making them read."""
    live, codes = settled.live, pa.array(settled.live.codes)
    orders = pa.nulls(len(codes), pa.string()) if latest.orders is None else latest.orders.take(codes)
    row_ids = settled.table.row_ids(live.codes)
    return pa.table(
        {
            "row": live.rows,
            ORDER_KIND: orders,
            DELETED_KIND: live.deleted,
            **settled.table.places(live.kept),
            **({} if row_ids is None else {ROW_ID: row_ids}),
        }
    )
