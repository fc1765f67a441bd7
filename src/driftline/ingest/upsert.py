"""A batch of changes by key: its rows wait in slices until it is known which of them count."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from driftline.core.planning.contract import spelled_path
from driftline.core.planning.metadata import own_column
from driftline.core.planning.row_key import ORDER_KIND, RowKey
from driftline.core.schema.types import Struct, dotted
from driftline.core.values.counted import counted
from driftline.errors import DataError
from driftline.formats.base import Transaction
from driftline.ingest.batch import Planned
from driftline.ingest.rewrite import rewrites
from driftline.keys.columns import PlacedColumn, by_id, columns_of, values_of
from driftline.keys.identity import BatchKeys
from driftline.keys.memory import DeletedKeys
from driftline.keys.order import orders
from driftline.keys.settle import KeyCounts, Latest, settle
from driftline.keys.slices import DELETES, Slices

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from pyspark.sql import SparkSession

_FAULT = "nothing of the batch is in: this is a fault of driftline's, please report it"


def check_possible(planned: Planned) -> None:
    """Raise DataError for changes by key that cannot be settled."""
    row_key, table = planned.settings.row_key, planned.batch.table.name
    if row_key is None:
        return
    if rewritten := rewrites(planned.plan.changes):
        raise DataError(
            f"{table} has a key, and {dotted(rewritten[0].path)} would be written anew",
            'unset it: allow_rewrite = "false"',
        )
    if not (row_key.order_by or planned.batch.source.in_order):
        raise DataError(
            f"{table}: records of several types come in no order, and the table has no order_by",
            "name the field that orders changes when the table is made: --order-by PATH",
        )
    # Which row a null value deletes, the key of its message says.
    if count := planned.seen.tally.tombstones:
        raise DataError(
            f"{table}: {counted(count, 'null value')} of the topic would delete rows by the message's key, "
            "which is not read yet",
            "leave them out before, or have deletes come as records: --delete-when",
        )


@dataclass(frozen=True, slots=True)
class Changes:
    """The changes of a batch, as rows of the ``struct`` that its tasks made.

    ``table``: its name, for messages.
    """

    table: str
    slices: Slices
    struct: Struct
    row_key: RowKey
    mark: str

    def settle(self, spark: SparkSession, transaction: Transaction, summary: Mapping[str, str]) -> KeyCounts:
        """Write the rows that count, and have the transaction remove those that they replace or delete."""
        if not self.slices.parts:
            return KeyCounts()
        key = [self._columns(path) for path in self.row_key.key]
        order = [self._columns(path) for path in self.row_key.order_by]
        rows = self.slices.read(self._needed())
        keys = BatchKeys([values_of(columns) for columns in key], by_id(rows, list(chain(*key))))
        self._check_all(keys.own, "key", self.row_key.key)
        texts = None
        if order:
            texts = orders(by_id(rows, list(chain(*order))), [values_of(columns) for columns in order])
            texts = texts.combine_chunks() if isinstance(texts, pa.ChunkedArray) else texts
            self._check_all(texts, "order", self.row_key.order_by)
        latest = Latest.of(keys.own, texts, self._deletes(rows))
        order_column = own_column(self.struct, ORDER_KIND) if order else None
        order_id = None if order_column is None else order_column.id
        remembered = () if order_id is None else transaction.find_deletes(keys, order_id)
        settled = settle(latest, transaction.find(keys, order_id), remembered)
        transaction.remove(settled.dead)
        if texts is not None and order_id is not None and self.row_key.delete_when is not None:
            deletes = DeletedKeys.of(keys, settled.gone, texts, order_id, self.row_key.delete_memory)
            transaction.remember_deletes(deletes)
        taken = None if texts is None else texts.take(pa.array(settled.live))
        place = None if order_column is None else self.struct.fields.index(order_column)
        tasks = self.slices.tasks(spark, settled.live, taken, place)
        written = transaction.write(tasks, self.slices.folder, summary)
        if written != len(settled.live) or settled.counts.total != self.slices.rows:
            raise DataError(
                f"{self.table}: of {self.slices.rows} changes {settled.counts.total} were settled, and {written} of "
                f"{len(settled.live)} rows written",
                _FAULT,
            )
        return settled.counts

    def _columns(self, path: tuple[str, ...]) -> list[PlacedColumn]:
        return list(columns_of(self.struct, path, self.mark))

    def _needed(self) -> Sequence[str]:
        """The names of the columns that hold keys and orders, and of the one that flags deletes."""
        fields = {path[0] for path in (*self.row_key.key, *self.row_key.order_by)}
        columns = chain.from_iterable(columns_of(self.struct, (field,), self.mark) for field in fields)
        flags = [] if self.row_key.delete_when is None else [DELETES]
        return [*(column.path[0] for column in columns), *flags]

    def _deletes(self, rows: pa.Table) -> NDArray[np.bool_]:
        if self.row_key.delete_when is None:
            return np.zeros(len(rows), np.bool_)
        return np.asarray(rows[DELETES], np.bool_)

    def _check_all(self, values: pa.Array, role: str, paths: Sequence[tuple[str, ...]]) -> None:
        """Raise DataError for a record without a key or an order that was let through."""
        if values.null_count:
            row = values.is_null().to_numpy(zero_copy_only=False).argmax()
            raise DataError(
                f"{self.table}: {values.null_count} records have no {role} in {', '.join(map(spelled_path, paths))}, "
                f"the first of them is record {row + 1}",
                _FAULT,
            )
